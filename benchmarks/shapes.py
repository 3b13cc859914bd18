"""The models that are measured: shapes of well-known checkpoints, with random weights, as nobody's answers matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One question of a batch of 1.

    Attributes:
        read: Tokens of the input.
        write: Tokens to generate, exactly; 0 for an encoder.
    """

    read: int
    write: int = 0

    def __str__(self) -> str:
        return f"{self.read} tokens in, {self.write} out" if self.write else f"{self.read} tokens"


@dataclass(frozen=True)
class Shape:
    """A model.

    Attributes:
        title: As it stands in tables.
        kind: Name of its class in `transformers`, whose configuration's defaults are the shape.
        cases: What it is asked.
        settings: Fields of its configuration, by Hugging Face's names.
    """

    title: str
    kind: str
    cases: tuple[Case, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def inputs(self, case: Case) -> np.ndarray:
        """The same int32 ids `(1, T)` for every candidate; above those that vocabularies keep for special tokens."""
        return np.random.default_rng(0).integers(300, 30000, (1, case.read), "int32")


SHAPES = {
    "gpt2": Shape("GPT-2 124M", "GPT2LMHeadModel", (Case(32, 128),)),
    "t5": Shape(
        "T5-small", "T5ForConditionalGeneration", (Case(64, 64),), {"decoder_start_token_id": 0, "dropout_rate": 0.0}
    ),
    "bert": Shape("BERT-base", "BertForSequenceClassification", (Case(128), Case(16))),
    "tiny": Shape(  # to try the scripts
        "GPT-2, tiny", "GPT2LMHeadModel", (Case(32, 32),), {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 256}
    ),
}


def write_checkpoint(shape: Shape, folder: Path) -> None:
    """A checkpoint in Hugging Face's format with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, shape.kind)
    kind(kind.config_class(**shape.settings)).save_pretrained(folder)
