"""GPT-2, whose matrices llama.cpp transposes, and GPT-BigCode, its `starcoder`."""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.tools.gguf.architecture import TRANSPOSED, Architecture, Metadata, Settings, Target
from kerasformer.tools.gguf.tables.common import EPSILON, key_value_heads, sizes

_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_MATRICES = {
    "blk.{i}.attn_qkv": "transformer.h.{i}.attn.c_attn",
    "blk.{i}.attn_output": "transformer.h.{i}.attn.c_proj",
    "blk.{i}.ffn_up": "transformer.h.{i}.mlp.c_fc",
    "blk.{i}.ffn_down": "transformer.h.{i}.mlp.c_proj",
}
_TENSORS = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "blk.{i}.attn_norm": "transformer.h.{i}.ln_1",
    "blk.{i}.ffn_norm": "transformer.h.{i}.ln_2",
    **_MATRICES,
}


def _settings(metadata: Metadata, model_type: str, name: str) -> Settings:
    return {
        "model_type": model_type,
        "architectures": [name],
        **sizes(metadata, _NAMES),
        "layer_norm_epsilon": metadata.own(EPSILON, float),
    }


def _gpt2(metadata: Metadata) -> Settings:
    key_value_heads(metadata)  # equal to the number of heads
    return _settings(metadata, "gpt2", "GPT2LMHeadModel")


def _starcoder(metadata: Metadata) -> Settings:
    settings = _settings(metadata, "gpt_bigcode", "GPTBigCodeForCausalLM")
    return {**settings, "multi_query": key_value_heads(metadata) == 1}


def _transposed(settings: Settings) -> Mapping[str, Target]:
    return {**_TENSORS, **{name: (target, TRANSPOSED) for name, target in _MATRICES.items()}}


ARCHITECTURES = (
    Architecture("gpt2", _gpt2, _transposed),
    Architecture("starcoder", _starcoder, lambda settings: _TENSORS),
)
