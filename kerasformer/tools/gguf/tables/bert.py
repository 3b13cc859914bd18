"""BERT, and the encoders that llama.cpp stores as it: RoBERTa and XLM-RoBERTa, known by their tokenizers.

The first rows of their table of positions, which no token has, are missing. So are poolers and heads.
"""

from __future__ import annotations

from collections.abc import Mapping

from kerasformer.errors import UnsupportedConfigError
from kerasformer.tools.gguf.architecture import AS_IT_IS, Architecture, Metadata, Settings, Target, without_first
from kerasformer.tools.gguf.tables.common import EPSILON, sizes

_MODEL = "tokenizer.ggml.model"
_KINDS = {
    "bert": ("bert", "BertModel"),
    "gpt2": ("roberta", "RobertaModel"),
    "t5": ("xlm-roberta", "XLMRobertaModel"),
}
_PAD = 1  # id of the padding token of RoBERTa


def _settings(metadata: Metadata) -> Settings:
    tokenizer = metadata.get(_MODEL, str)
    if tokenizer not in _KINDS:
        raise UnsupportedConfigError(
            f"{_MODEL} in {metadata.container.path} must be one of {', '.join(_KINDS)}, which shows whether the "
            f"model is BERT, RoBERTa or XLM-RoBERTa. Received: {tokenizer!r:.100}"
        )
    model_type, name = _KINDS[tokenizer]
    settings = sizes(metadata)
    settings.pop("tie_word_embeddings")
    metadata.own("attention.causal", bool, False)
    metadata.own("pooling_type", int, 0)
    if tokenizer != "bert":
        settings["max_position_embeddings"] = metadata.size("position_embd.weight") + _PAD + 1
        settings["pad_token_id"] = _PAD
    types = metadata.size("token_types.weight") if metadata.has_tensor("token_types.weight") else 0
    return {
        "model_type": model_type,
        "architectures": [name],
        **settings,
        "type_vocab_size": types,
        "layer_norm_eps": metadata.own(EPSILON, float),
    }


def _tensors(settings: Settings) -> Mapping[str, Target]:
    layer = "encoder.layer.{i}"
    positions = AS_IT_IS if settings["model_type"] == "bert" else without_first(_PAD + 1)
    return {
        "token_embd": "embeddings.word_embeddings",
        "position_embd": ("embeddings.position_embeddings", positions),
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
        "blk.{i}.attn_q": f"{layer}.attention.self.query",
        "blk.{i}.attn_k": f"{layer}.attention.self.key",
        "blk.{i}.attn_v": f"{layer}.attention.self.value",
        "blk.{i}.attn_output": f"{layer}.attention.output.dense",
        "blk.{i}.attn_output_norm": f"{layer}.attention.output.LayerNorm",
        "blk.{i}.ffn_up": f"{layer}.intermediate.dense",
        "blk.{i}.ffn_down": f"{layer}.output.dense",
        "blk.{i}.layer_output_norm": f"{layer}.output.LayerNorm",
    }


ARCHITECTURE = Architecture("bert", _settings, _tensors)
