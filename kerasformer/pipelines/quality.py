"""Quality on labelled texts before and after export; the texts and the figures of Keras are recorded in the bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasformer.bundle import ModelInfo
from kerasformer.engines import Forward, Step
from kerasformer.errors import BundleError
from kerasformer.extras import tool
from kerasformer.files.reading import parse_json
from kerasformer.pipelines.base import Pipeline
from kerasformer.pipelines.creation import PIPELINES
from kerasformer.pipelines.labelled_texts import Example, examples
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Tokenizer

MEASURES = "kerasformer.tools.evaluation"
"""Module that measures: `check(task, texts)` and `evaluate(pipe, texts)`; it is imported when texts have labels."""
QUALITY = "labelled.texts"
"""Name of the reference array that contains the labelled texts."""
_FIGURES = "labelled.figures"

Quality = dict[str, dict[str, float]]
"""Figures of Keras (`"keras"`) and of the bundle (`"bundle"`), by metric."""


def pipeline_of(engine: Forward | Step, info: ModelInfo, tokenizer: Tokenizer) -> Pipeline:
    """Returns the pipeline of a model's task for an engine that is already open."""
    return PIPELINES[info.task](Opened("", engine, tokenizer, info, info.task))


def check_labels(task: str, texts: Sequence[Example]) -> None:
    """Checks that the metrics of a task can be computed on labelled texts.

    Raises:
        InputError: the task has no metric, or a label is missing.
    """
    tool(MEASURES).check(task, texts)


def _evaluate(pipe: Pipeline, texts: Sequence[Example]) -> dict[str, float]:
    return tool(MEASURES).evaluate(pipe, texts)


def record_quality(pipe: Pipeline, texts: Sequence[Example]) -> dict[str, np.ndarray]:
    """Evaluates a Keras model on labelled texts, and returns the texts and figures as references.

    Args:
        pipe: Pipeline of the Keras model.
        texts: Labelled texts, which become part of the bundle.
    """
    rows = [example.to_dict() for example in texts]
    return {QUALITY: np.array(json.dumps(rows)), _FIGURES: np.array(json.dumps(_evaluate(pipe, texts)))}


def compare_quality(pipe: Pipeline, references: Mapping[str, np.ndarray]) -> Quality:
    """Evaluates a bundle on the recorded texts, and returns its figures with those of Keras.

    Raises:
        BundleError: the recorded texts cannot be read.
    """
    try:
        rows: list[Any] = parse_json(references[QUALITY].item(), QUALITY)
        before: dict[str, float] = parse_json(references[_FIGURES].item(), _FIGURES)
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"The recorded labelled texts cannot be read: {error}. Export the model again") from error
    after = _evaluate(pipe, examples(rows))
    return {name: {"keras": value, "bundle": after[name]} for name, value in before.items() if name in after}
