"""Folders for retrieval with tiny random models: sparse vectors and several vectors of each text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

from kerasformer.tokenization import Tokenizer
from tests import tiny_text

SIZES: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": 66, "pad_token_id": 0,
}  # fmt: skip
DISTIL = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 66}
SPARSE: dict[str, tuple[Any, Any, Any, dict[str, str]]] = {
    "bert": (transformers.BertConfig, SIZES, MLMTransformer, {}),
    "distilbert": (transformers.DistilBertConfig, DISTIL, Transformer, {"pooling_strategy": "sum"}),
    "roberta": (transformers.RobertaConfig, SIZES, Transformer, {"activation_function": "log1p_relu"}),
}
"""Configuration, sizes, class of the first module and options of the pooling, by the name of the architecture."""


def randomize(*modules: torch.nn.Module, seed: int = 5, std: float = 0.3) -> None:
    """Draws all weights; scales of norms are near 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in modules:
            for name, parameter in module.named_parameters():
                is_scale = parameter.ndim == 1 and name.endswith("weight")
                parameter.copy_(is_scale + std * torch.randn(parameter.shape, generator=generator))


def base(folder: Path, model: torch.nn.Module, tokenizer: Tokenizer | None = None) -> Path:
    """Writes a model of `transformers` with random weights, and a tokenizer."""
    randomize(model)
    model.save_pretrained(folder)  # type: ignore[operator]
    (tokenizer or tiny_text.wordpiece()).save(folder)
    return folder


def write_sparse(folder: Path, kind: str, **options: Any) -> SparseEncoder:
    """Writes a folder of `SparseEncoder`, and returns its model."""
    config, sizes, module, pooling = SPARSE[kind]
    made = config(vocab_size=tiny_text.wordpiece().vocab_size, **sizes)
    plain = base(folder.with_name(f"{kind}-plain"), transformers.AutoModelForMaskedLM.from_config(made))
    arguments = {} if module is MLMTransformer else {"transformer_task": "fill-mask"}
    modules = [module(str(plain), max_seq_length=60, **arguments), SpladePooling(**pooling)]
    model = SparseEncoder(modules=modules, device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model
