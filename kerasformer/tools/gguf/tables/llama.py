"""LLaMA and the decoders with its layers: Mistral (a `llama` for llama.cpp), SmolLM3, Qwen2 and Qwen3.

llama.cpp rotates neighbours where the checkpoint has the two halves of each head, and reorders queries and keys of
LLaMA and SmolLM3 accordingly; for Qwen, it rotates the halves.
"""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target, paired
from kerasformer.tools.gguf.rotary import FACTORS, rope_parameters
from kerasformer.tools.gguf.tables.common import RMS_EPSILON, head_size, key_value_heads, sizes

LAYERS: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{i}.attn_norm": "model.layers.{i}.input_layernorm",
    "blk.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.attn_q": "model.layers.{i}.self_attn.q_proj",
    "blk.{i}.attn_k": "model.layers.{i}.self_attn.k_proj",
    "blk.{i}.attn_v": "model.layers.{i}.self_attn.v_proj",
    "blk.{i}.attn_output": "model.layers.{i}.self_attn.o_proj",
    "blk.{i}.ffn_gate": "model.layers.{i}.mlp.gate_proj",
    "blk.{i}.ffn_up": "model.layers.{i}.mlp.up_proj",
    "blk.{i}.ffn_down": "model.layers.{i}.mlp.down_proj",
}
QUERY_KEY_NORMS: Mapping[str, str] = {
    "blk.{i}.attn_q_norm": "model.layers.{i}.self_attn.q_norm",
    "blk.{i}.attn_k_norm": "model.layers.{i}.self_attn.k_norm",
}


def gated_decoder(metadata: Metadata) -> Settings:
    """Returns the settings that these decoders have in common."""
    size = head_size(metadata)
    metadata.own("attention.value_length", int, size)  # the shapes of the matrices show another size
    return {
        **sizes(metadata),
        "num_key_value_heads": key_value_heads(metadata),
        "head_dim": size,
        "rms_norm_eps": metadata.own(RMS_EPSILON, float),
    }


def _biases(metadata: Metadata) -> Settings:
    return {
        "attention_bias": metadata.has_tensor("blk.0.attn_q.bias"),
        "mlp_bias": metadata.has_tensor("blk.0.ffn_up.bias"),
    }


def _llama(metadata: Metadata) -> Settings:
    settings = gated_decoder(metadata)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **settings,
        **_biases(metadata),
        "rope_parameters": rope_parameters(metadata, settings["head_dim"]),
    }


def _smollm3(metadata: Metadata) -> Settings:
    # Layers without rotary positions have the interval that llama.cpp assumes, the default of `config.json`.
    return {**_llama(metadata), "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}


def _qwen2(metadata: Metadata) -> Settings:
    settings = gated_decoder(metadata)
    size = settings.pop("head_dim")
    return {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        **settings,
        "use_sliding_window": False,
        "rope_parameters": rope_parameters(metadata, size),
    }


def _qwen3(metadata: Metadata) -> Settings:
    settings = gated_decoder(metadata)
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        **settings,
        "attention_bias": metadata.has_tensor("blk.0.attn_q.bias"),
        "use_sliding_window": False,
        "rope_parameters": rope_parameters(metadata, settings["head_dim"]),
    }


def _paired_tensors(settings: Settings) -> Mapping[str, Target]:
    return {
        **LAYERS,
        "blk.{i}.attn_q": (LAYERS["blk.{i}.attn_q"], paired(settings["num_attention_heads"])),
        "blk.{i}.attn_k": (LAYERS["blk.{i}.attn_k"], paired(settings["num_key_value_heads"])),
    }


ARCHITECTURES = (
    Architecture("llama", _llama, _paired_tensors, ignored=(FACTORS,)),
    Architecture("smollm3", _smollm3, _paired_tensors, ignored=(FACTORS,)),
    Architecture("qwen2", _qwen2, lambda settings: LAYERS),
    Architecture("qwen3", _qwen3, lambda settings: {**LAYERS, **QUERY_KEY_NORMS}),
)
