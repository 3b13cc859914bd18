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
from sentence_transformers.sentence_transformer.modules import Pooling

from tests import tiny_text

HIDDEN = 32
BERT = {
    "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "max_position_embeddings": 64,
}  # fmt: skip

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
}


def write(folder: Path, kind: str = "mean-normalize", **options: Any) -> SentenceTransformer:
    """Writes a folder of sentence-transformers, and returns its model."""
    pooling, steps = KINDS[kind]
    tokenizer = tiny_text.wordpiece()
    generator = torch.Generator().manual_seed(3)
    config = transformers.BertConfig(vocab_size=tokenizer.vocab_size, pad_token_id=0, **BERT)
    encoder = transformers.BertModel(config)
    size, modules = HIDDEN * len(pooling), []
    for step in steps:
        if step == "normalize":
            modules.append(Normalize())
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
    layers = [Transformer(str(plain), max_seq_length=48), Pooling(HIDDEN, list(pooling)), *modules]
    model = SentenceTransformer(modules=layers, device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model


def change(folder: Path, name: str, **entries: Any) -> None:
    """Changes entries of a JSON file of a folder."""
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **entries}))
