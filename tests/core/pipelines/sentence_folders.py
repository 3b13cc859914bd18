"""Folders of sentence-transformers with tiny random models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from kerasformer.tokenization import Tokenizer
from tests import tiny_text

HIDDEN = 32
SIZES = {
    "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "max_position_embeddings": 64,
}  # fmt: skip
DECODER = {**SIZES, "max_position_embeddings": 160, "num_key_value_heads": 1, "head_dim": 12}
GEMMA = {
    **DECODER, "use_bidirectional_attention": True, "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
QWEN = {**DECODER, "pad_token_id": 0, "eos_token_id": 0}

# Names of folders with the kinds of pooling and what follows them.
KINDS: dict[str, tuple[Sequence[str], Sequence[Any]]] = {
    "mean-normalize": (["mean"], ["normalize"]),
    "cls": (["cls"], []),
    "max": (["max"], []),
    "last": (["lasttoken"], ["normalize"]),
    "root-dense": (["mean_sqrt_len_tokens"], [(13, torch.nn.Tanh(), True)]),
    "weighted-dense-normalize": (["weightedmean"], [(21, torch.nn.Identity(), False), "normalize"]),
    "two-poolings-two-layers": (
        ["mean", "cls"],
        [(24, torch.nn.GELU(), True), (9, torch.nn.ReLU(), True), "normalize"],
    ),
    "norms-dropout": (["mean"], ["layer-norm", "dropout", (24, torch.nn.Tanh(), True), "layer-norm"]),
    "embeddinggemma": (["mean"], [(48, torch.nn.Identity(), False), (HIDDEN, torch.nn.Identity(), False), "normalize"]),
    "qwen3-embedding": (["lasttoken"], ["normalize"]),
}


def ended_byte_pairs() -> Tokenizer:
    """A tokenizer like that of Qwen3-Embedding: bytes, `… <|endoftext|>`, padding on the left."""
    backend = Backend.from_str(tiny_text.byte_pairs().backend.to_str())
    end = "<|endoftext|>"
    backend.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, 0)])
    return Tokenizer(backend, special_tokens={"pad_token": end, "eos_token": end}, padding_side="left")


def backbone(kind: str) -> tuple[torch.nn.Module, Tokenizer]:
    """Returns the backbone of a kind and its tokenizer."""
    if kind == "embeddinggemma":
        tokenizer = tiny_text.byte_fallback()
        config = transformers.Gemma3TextConfig(vocab_size=tokenizer.vocab_size, **GEMMA)
        return transformers.Gemma3TextModel(config), tokenizer
    if kind == "qwen3-embedding":
        tokenizer = ended_byte_pairs()
        return transformers.Qwen3Model(transformers.Qwen3Config(vocab_size=tokenizer.vocab_size, **QWEN)), tokenizer
    tokenizer = tiny_text.wordpiece()
    config = transformers.BertConfig(vocab_size=tokenizer.vocab_size, pad_token_id=0, **SIZES)
    return transformers.BertModel(config), tokenizer


def write(folder: Path, kind: str = "mean-normalize", **options: Any) -> SentenceTransformer:
    """Writes a folder of sentence-transformers, and returns its model."""
    pooling, steps = KINDS[kind]
    encoder, tokenizer = backbone(kind)
    generator = torch.Generator().manual_seed(3)
    size, modules = HIDDEN * len(pooling), []
    for step in steps:
        if step == "normalize":
            modules.append(Normalize())
        elif step == "dropout":
            modules.append(Dropout(0.3))
        elif step == "layer-norm":
            modules.append(LayerNorm(size))
        else:
            modules.append(Dense(size, step[0], activation_function=step[1], bias=step[2]))
            size = step[0]
    with torch.no_grad():
        for module in (encoder, *modules):
            for name, parameter in module.named_parameters():
                is_scale = parameter.ndim == 1 and name.endswith("weight")
                parameter.copy_(is_scale + 0.3 * torch.randn(parameter.shape, generator=generator))
    plain = folder.with_name(f"{folder.name}-plain")
    encoder.save_pretrained(plain)
    tokenizer.save(plain)
    layers = [
        Transformer(str(plain), max_seq_length=encoder.config.max_position_embeddings * 3 // 4),
        Pooling(HIDDEN, list(pooling)),
        *modules,
    ]
    model = SentenceTransformer(modules=layers, device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model


def change(folder: Path, name: str, **entries: Any) -> None:
    """Changes entries of a JSON file of a folder."""
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **entries}))
