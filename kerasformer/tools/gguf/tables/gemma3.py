"""Gemma 3, the part for texts."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import ONE_LESS, Architecture, Metadata, Settings, Target
from kerasformer.tools.gguf.rotary import rope_parameters
from kerasformer.tools.gguf.tables.common import FULL, SLIDING, layer_types
from kerasformer.tools.gguf.tables.llama import LAYERS, QUERY_KEY_NORMS, gated_decoder

_GLOBAL_EVERY = 6  # llama.cpp assumes it; the converter does not write it
_LAYERS_OF_27B = 62


def _settings(metadata: Metadata) -> Settings:
    settings = gated_decoder(metadata)
    head_dim, heads = settings["head_dim"], settings["num_attention_heads"]
    window = metadata.own("attention.sliding_window", int, None)
    base = metadata.own("rope.freq_base_swa", float, 10000.0)
    # As in llama.cpp, the number of layers shows which model scales its scores otherwise.
    scale = settings["hidden_size"] // heads if settings["num_hidden_layers"] == _LAYERS_OF_27B else head_dim
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        **settings,
        "query_pre_attn_scalar": scale,
        "final_logit_softcapping": metadata.own("final_logit_softcapping", float, None),
        "sliding_window": window,
        "layer_types": layer_types(metadata, _GLOBAL_EVERY, full_first=False),
        "rope_parameters": {
            FULL: rope_parameters(metadata, head_dim),
            SLIDING: {"rope_type": "default", "rope_theta": base},
        },
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    norms = {
        "output_norm": LAYERS["output_norm"],
        "blk.{i}.attn_norm": LAYERS["blk.{i}.attn_norm"],
        "blk.{i}.post_attention_norm": "model.layers.{i}.post_attention_layernorm",
        "blk.{i}.ffn_norm": "model.layers.{i}.pre_feedforward_layernorm",
        "blk.{i}.post_ffw_norm": "model.layers.{i}.post_feedforward_layernorm",
        **QUERY_KEY_NORMS,
    }
    return {**LAYERS, **{name: (target, ONE_LESS) for name, target in norms.items()}}


ARCHITECTURE = Architecture("gemma3", _settings, _tensors)
