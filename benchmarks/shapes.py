"""The models that are measured: shapes of well-known checkpoints, with random weights, as nobody's answers matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasformer.bench.question import Question
from kerasformer.bench.rounds import Workload

VOCABULARY = 30000
"""Ids of the questions are below this; it fits into every shape."""


@dataclass(frozen=True)
class Shape:
    """A model.

    Attributes:
        title: As it stands in tables.
        kind: Name of its class in `transformers`, whose configuration's defaults are the shape.
        questions: What it is asked.
        settings: Fields of its configuration, by Hugging Face's names.
    """

    title: str
    kind: str
    questions: tuple[Question, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def generates(self) -> bool:
        """Whether it writes tokens."""
        return bool(self.questions[0].write)

    @property
    def works(self) -> list[Workload]:
        """Each question as a work of its own."""
        return [Workload(f"{self.title}, {described(question)}", (question,)) for question in self.questions]


def described(question: Question) -> str:
    """A question in words."""
    words = f"{question.read} tokens in, {question.write} out" if question.write else f"{question.read} tokens"
    return words if question.batch == 1 else f"{words}, batch {question.batch}"


SHAPES = {
    "gpt2": Shape("GPT-2 124M", "GPT2LMHeadModel", (Question(32, 128), Question(32, 64, batch=8))),
    "t5": Shape(
        "T5-small",
        "T5ForConditionalGeneration",
        (Question(64, 64),),
        {"decoder_start_token_id": 0, "dropout_rate": 0.0},
    ),
    "bert": Shape("BERT-base", "BertForSequenceClassification", (Question(128), Question(16))),
    # To try the scripts.
    "tiny-gpt2": Shape(
        "GPT-2, tiny",
        "GPT2LMHeadModel",
        (Question(32, 32), Question(32, 16, batch=2)),
        {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 256},
    ),
    "tiny-t5": Shape(
        "T5, tiny",
        "T5ForConditionalGeneration",
        (Question(16, 16),),
        {"decoder_start_token_id": 0, "dropout_rate": 0.0, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_model": 64},
    ),
    "tiny-bert": Shape(
        "BERT, tiny",
        "BertForSequenceClassification",
        (Question(32), Question(16)),
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128},
    ),
}


def write_checkpoint(shape: Shape, folder: Path) -> None:
    """A checkpoint in Hugging Face's format with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, shape.kind)
    kind(kind.config_class(**shape.settings)).save_pretrained(folder)
