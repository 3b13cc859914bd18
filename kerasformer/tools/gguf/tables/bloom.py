"""BLOOM."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target, by_kind
from kerasformer.tools.gguf.tables.common import EPSILON, key_value_heads, sizes

_NAMES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "seq_length",
}


def _settings(metadata: Metadata) -> Settings:
    settings = sizes(metadata, _NAMES)
    if settings["n_inner"] == 4 * settings["hidden_size"]:
        settings["n_inner"] = None  # what `config.json` says; another size is refused
    key_value_heads(metadata)  # equal to the number of heads
    return {
        "model_type": "bloom",
        "architectures": ["BloomForCausalLM"],
        **settings,
        "layer_norm_epsilon": metadata.own(EPSILON, float),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    layer = "transformer.h.{i}"
    return {
        "token_embd": "transformer.word_embeddings",
        "token_embd_norm": "transformer.word_embeddings_layernorm",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
        "blk.{i}.attn_norm": f"{layer}.input_layernorm",
        "blk.{i}.ffn_norm": f"{layer}.post_attention_layernorm",
        "blk.{i}.attn_qkv": (f"{layer}.self_attention.query_key_value", by_kind(settings["n_head"])),
        "blk.{i}.attn_output": f"{layer}.self_attention.dense",
        "blk.{i}.ffn_up": f"{layer}.mlp.dense_h_to_4h",
        "blk.{i}.ffn_down": f"{layer}.mlp.dense_4h_to_h",
    }


ARCHITECTURE = Architecture("bloom", _settings, _tensors)
