"""ModernBERT, the `modern-bert` of llama.cpp, without its heads."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import Architecture, Metadata, Settings, Target
from kerasformer.tools.gguf.rotary import rope_parameters
from kerasformer.tools.gguf.tables.common import EPSILON, FULL, SLIDING, head_size, layer_types, sizes

_GLOBAL_EVERY = 3
_POOLINGS = {1: "mean", 2: "cls"}


def _settings(metadata: Metadata) -> Settings:
    settings = sizes(metadata)
    settings.pop("tie_word_embeddings")
    metadata.own("attention.causal", bool, False)
    metadata.own("pooling_type", int, 0)
    local = {"rope_type": "default", "rope_theta": metadata.own("rope.freq_base_swa", float, 10000.0)}
    return {
        "model_type": "modernbert",
        "architectures": ["ModernBertModel"],
        **settings,
        "norm_eps": metadata.own(EPSILON, float),
        "hidden_activation": metadata.own("hidden_activation", str, "gelu"),
        "local_attention": metadata.own("attention.sliding_window", int),
        "layer_types": layer_types(metadata, _GLOBAL_EVERY, full_first=True),
        "rope_parameters": {FULL: rope_parameters(metadata, head_size(metadata)), SLIDING: local},
        "norm_bias": metadata.has_tensor("output_norm.bias"),
        "attention_bias": metadata.has_tensor("blk.0.attn_qkv.bias"),
        "mlp_bias": metadata.has_tensor("blk.0.ffn_up.bias"),
        "classifier_pooling": _POOLINGS.get(metadata.own("classifier.pooling_type", int, 2), "cls"),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    layer = "layers.{i}"
    return {
        "token_embd": "embeddings.tok_embeddings",
        "token_embd_norm": "embeddings.norm",
        "output_norm": "final_norm",
        "blk.{i}.attn_norm": f"{layer}.attn_norm",
        "blk.{i}.ffn_norm": f"{layer}.mlp_norm",
        "blk.{i}.attn_qkv": f"{layer}.attn.Wqkv",
        "blk.{i}.attn_output": f"{layer}.attn.Wo",
        "blk.{i}.ffn_up": f"{layer}.mlp.Wi",
        "blk.{i}.ffn_down": f"{layer}.mlp.Wo",
    }


ARCHITECTURE = Architecture("modern-bert", _settings, _tensors)
