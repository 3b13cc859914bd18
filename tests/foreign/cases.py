"""Tiny random models for tests in third-party runtimes.

An acceptance test is marked `@pytest.mark.foreign("runtime")` and takes a `case`; docs/runtimes.md has a tick for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from tests.core.export.text_models import (
    CAPACITY,
    LENGTHS,
    OTHERS,
    ROWS,
    Row,
    sentence_row,
    shared_bundle,
    shared_model,
    size_options,
)
from tests.grids import repeats
from tests.shared import once
from tests.tiny_text import pieces_in_texts


@dataclass(frozen=True)
class Case:
    """A model and a recipe.

    Attributes:
        source: A row of the tiny models.
        quantize: The name of the recipe.
        as_task: The task for the export; the task of the model by default.
    """

    source: Row
    quantize: str = "none"
    as_task: str | None = None

    def __str__(self) -> str:
        return f"{self.model_type}-{self.task}-{self.quantize}"

    @property
    def model_type(self) -> str:
        """The architecture."""
        return self.source.model_type

    @property
    def task(self) -> str:
        """The task of the bundle."""
        return self.as_task or self.source.task

    def model(self) -> Any:
        """Returns the Keras model, with its tokenizer."""
        return self.source.model()

    @property
    def _is_row(self) -> bool:
        """Whether the model is a row of `tests.core.export.text_models`, for its own task."""
        return self.as_task is None and self.source in {**ROWS, **OTHERS}.values()

    def shared_model(self) -> Any:
        """Returns the Keras model; that of a row is created once for a test file, and tests must not change it."""
        return shared_model(str(self.source)) if self._is_row else self.model()

    def shared(self, format: str) -> Path:
        """Returns the bundle of a tiny model, exported once in a session; tests must not change it."""
        if self._is_row:
            return shared_bundle(str(self.source), format, self.quantize)

        def make(folder: Path) -> None:
            model = self.model()
            self.export(folder, model, format=format, **size_options(model, format, LENGTHS, CAPACITY))

        return once(f"{self}-{self.task}-{format}", make)

    def export(self, folder: Path, model: Any = None, **settings: Any) -> Path:
        """Exports the bundle into a new folder; `settings` are arguments of `kf.export.export`, such as `target=`."""
        recipe = self.source.recipe(self.quantize)
        model = self.model() if model is None else model
        return kf.export.export(model, folder, quantize=recipe, task=self.as_task, **settings)


def tiny(model_type: str, task: str, quantize: str = "none", as_task: str | None = None) -> Case:
    """Returns the case of a tiny model of `tests.core.export.text_models`."""
    name = f"{model_type}-{task}"
    return Case(ROWS[name] if name in ROWS else OTHERS[name], quantize, as_task)


def embedder(model_type: str, quantize: str = "none") -> Case:
    """Returns the case of a tiny model for sentence-similarity."""
    return Case(sentence_row(model_type), quantize)


_DECODERS = (
    "bloom",
    "ctrl",
    "gemma3_text",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "gpt_bigcode",
    "llama",
    "mistral",
    "openai-gpt",
    "opt",
    "qwen2",
    "qwen3",
    "smollm3",
    "xglm",
    "phi",
)
DECODERS = [tiny(name, "text-generation") for name in _DECODERS]
"""Decoders other than GPT-2."""

_ENCODER_DECODERS = ("bigbird_pegasus", "led", "mt5", "pegasus", "umt5")
ENCODER_DECODERS = [tiny(name, "text2text-generation") for name in _ENCODER_DECODERS]
"""Encoder-decoders other than T5 and BART."""

EMBEDDERS = ("bert", "albert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "gpt2", "longformer")
EMBEDDERS += ("mobilebert", "modernbert", "mpnet", "roberta", "xlm", "xlm-roberta")
"""Architectures that are tested for embeddings."""


def _pairs(row: Row, task: str, **settings: Any) -> Case:
    """Returns the case of a classifier of pairs of texts."""
    return Case(replace(row, settings={**row.settings, **settings}), as_task=task)


CROSS_ENCODER = _pairs(ROWS["bert-text-classification"], "text-ranking", num_labels=1)
CROSS_ENCODER_OF_PIECES = _pairs(
    Row("xlm-roberta", "text-classification", ROWS["xlm-roberta-feature-extraction"].settings, pieces_in_texts),
    "text-ranking",
    num_labels=1,
)
NLI = _pairs(
    replace(ROWS["bert-text-classification"], settings=ROWS["bert-feature-extraction"].settings),
    "zero-shot-classification",
    id2label={0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"},
)


def cases(
    *rows: Case,
    recipes: Collection[str] = ("none",),
    by_task: bool = False,
    shown: Sequence[Case] = (),
) -> Any:
    """Parametrizes a test by `case`.

    CI runs the first model of each kind (`KINDS`) in float32, and the first one in each other recipe that is named. All
    others have the mark `release`: they show a runtime the same kind of input and output with other layers, which
    tests/core/export/test_export.py compares in LiteRT and ONNX Runtime.

    Args:
        rows: The cases.
        recipes: The recipes that CI runs.
        by_task: Whether each task is a kind of its own, where a runtime or its program has code for each.
        shown: Cases that another test runs in the same runtime.
    """
    candidates = [case for case in rows if case.quantize in recipes]
    parts = [(case.task if by_task else kind(case.task), case.quantize) for case in (*shown, *candidates)]
    repeated = dict(zip(map(str, candidates), repeats(parts)[len(shown) :], strict=True))
    marks = [pytest.mark.release if repeated.get(str(case), True) else () for case in rows]
    parameters = [pytest.param(case, marks=mark) for case, mark in zip(rows, marks, strict=True)]
    return pytest.mark.parametrize("case", parameters, ids=str)


KINDS = {
    "text-generation": "decoder",
    **dict.fromkeys(("text2text-generation", "summarization", "translation"), "encoder-decoder"),
    **dict.fromkeys(("feature-extraction", "sentence-similarity"), "embedder"),
}
"""Kinds of models by their task; all other tasks are those of a classifier."""


def kind(task: str) -> str:
    """Returns the kind of the models for a task."""
    return KINDS.get(task, "classifier")
