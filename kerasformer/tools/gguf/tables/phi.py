"""Phi 1, 1.5 and 2, the `phi2` of llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target
from kerasformer.tools.gguf.rotary import rope_parameters
from kerasformer.tools.gguf.tables.common import EPSILON, head_size, key_value_heads, sizes


def _settings(metadata: Metadata) -> Settings:
    return {
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        **sizes(metadata),
        "num_key_value_heads": key_value_heads(metadata),
        "layer_norm_eps": metadata.own(EPSILON, float),
        "rope_parameters": rope_parameters(metadata, head_size(metadata), partial=True),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    layer = "model.layers.{i}"
    return {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.final_layernorm",
        "output": "lm_head",
        "blk.{i}.attn_norm": f"{layer}.input_layernorm",
        "blk.{i}.attn_q": f"{layer}.self_attn.q_proj",
        "blk.{i}.attn_k": f"{layer}.self_attn.k_proj",
        "blk.{i}.attn_v": f"{layer}.self_attn.v_proj",
        "blk.{i}.attn_output": f"{layer}.self_attn.dense",
        "blk.{i}.ffn_up": f"{layer}.mlp.fc1",
        "blk.{i}.ffn_down": f"{layer}.mlp.fc2",
    }


ARCHITECTURE = Architecture("phi2", _settings, _tensors)
