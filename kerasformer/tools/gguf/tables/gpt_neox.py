"""GPT-NeoX, such as Pythia."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target, by_kind
from kerasformer.tools.gguf.rotary import rope_parameters
from kerasformer.tools.gguf.tables.common import EPSILON, head_size, sizes


def _settings(metadata: Metadata) -> Settings:
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        **sizes(metadata),
        "use_parallel_residual": metadata.own("use_parallel_residual", bool, True),
        "attention_bias": metadata.has_tensor("blk.0.attn_qkv.bias"),
        "layer_norm_eps": metadata.own(EPSILON, float),
        "rope_parameters": rope_parameters(metadata, head_size(metadata), partial=True),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    layer = "gpt_neox.layers.{i}"
    return {
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
        "blk.{i}.attn_norm": f"{layer}.input_layernorm",
        "blk.{i}.ffn_norm": f"{layer}.post_attention_layernorm",
        "blk.{i}.attn_qkv": (f"{layer}.attention.query_key_value", by_kind(settings["num_attention_heads"])),
        "blk.{i}.attn_output": f"{layer}.attention.dense",
        "blk.{i}.ffn_up": f"{layer}.mlp.dense_h_to_4h",
        "blk.{i}.ffn_down": f"{layer}.mlp.dense_4h_to_h",
    }


ARCHITECTURE = Architecture("gptneox", _settings, _tensors)
