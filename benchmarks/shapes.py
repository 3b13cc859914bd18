"""The measured models: shapes of well-known checkpoints with random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasformer.bench.question import Question
from kerasformer.bench.rounds import Workload

VOCABULARY = 30000
"""Upper bound of the token ids of the questions, which is valid for all shapes."""


@dataclass(frozen=True)
class Shape:
    """Shape of a model.

    Attributes:
        title: Title in tables.
        kind: Name of the class in `transformers`, whose default configuration defines the shape.
        questions: Questions that are measured.
        settings: Fields of the configuration that differ from the defaults.
    """

    title: str
    kind: str
    questions: tuple[Question, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def generates(self) -> bool:
        """Whether the model is generative."""
        return bool(self.questions[0].write)

    @property
    def works(self) -> list[Workload]:
        """One workload for each question."""
        return [Workload(f"{self.title}, {described(question)}", (question,)) for question in self.questions]


def described(question: Question) -> str:
    """Returns a description of a question."""
    text = f"{question.read} tokens in, {question.write} out" if question.write else f"{question.read} tokens"
    return text if question.batch == 1 else f"{text}, batch {question.batch}"


SHAPES = {
    "gpt2": Shape("GPT-2 124M", "GPT2LMHeadModel", (Question(32, 128), Question(32, 64, batch=8))),
    "t5": Shape(
        "T5-small",
        "T5ForConditionalGeneration",
        (Question(64, 64),),
        {"decoder_start_token_id": 0, "dropout_rate": 0.0},
    ),
    "bert": Shape("BERT-base", "BertForSequenceClassification", (Question(128), Question(16))),
    # For trying the scripts.
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
    """Writes a checkpoint in Hugging Face's format with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, shape.kind)
    kind(kind.config_class(**shape.settings)).save_pretrained(folder)
