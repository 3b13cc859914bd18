"""Models whose sums exceed the range of float32: an error in every task, and no answer of NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from keras import ops

import kerasformer as kf
from kerasformer.errors import GenerationError, InputError
from kerasformer.pipelines.vectors import similarity, unit
from kerasformer.tools.evaluation.likelihood import next_token_distribution
from tests.core.export.text_models import ROWS
from tests.grids import grid
from tests.keras_pipelines import keras_pipeline

pytestmark = pytest.mark.grid

TEXT = "The rain falls on the town."

TASKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text-classification": ("bert-text-classification", lambda pipe: pipe(TEXT)),
    "ranking": ("bert-text-classification", lambda pipe: pipe.rank(TEXT, [TEXT], label="LABEL_1")),
    "token-classification": ("bert-token-classification", lambda pipe: pipe(TEXT)),
    "question-answering": ("bert-question-answering", lambda pipe: pipe(question="Where?", context=TEXT)),
    "fill-mask": ("bert-fill-mask", lambda pipe: pipe("The [MASK] falls.")),
    "feature-extraction": ("bert-feature-extraction", lambda pipe: pipe(TEXT)),
    "sentence-similarity": ("bert-sentence-similarity", lambda pipe: pipe.encode(TEXT)),
    "greedy": ("gpt2-text-generation", lambda pipe: pipe(TEXT, max_new_tokens=2)),
    "encoder-decoder": ("t5-text2text-generation", lambda pipe: pipe(TEXT, max_new_tokens=2)),
    "likelihood": ("gpt2-text-generation", lambda pipe: kf.sequence_logprob(pipe, TEXT)),
    "target": ("t5-text2text-generation", lambda pipe: kf.sequence_logprob(pipe, TEXT, target=TEXT)),
    "next token": ("gpt2-text-generation", lambda pipe: next_token_distribution(pipe, TEXT)),
}


@pytest.mark.parametrize(
    "task", grid(TASKS, always=("text-classification", "question-answering", "greedy", "likelihood"))
)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_sums_that_overflow_raise(task: str) -> None:
    name, answer = TASKS[task]
    model = ROWS[name].model()
    for variable in model.trainable_variables:
        variable.assign(100 * variable.value if len(variable.shape) == 2 else ops.full(variable.shape, 1e38))
    with pytest.raises((GenerationError, InputError), match="finite.*Received: -?(nan|inf)"):
        answer(keras_pipeline(model) if "generation" in model.task else kf.pipeline(model))


def test_vectors_whose_squares_overflow_raise() -> None:
    long, short = np.full((1, 4), 1e38, "float32"), np.ones((1, 4), "float32")
    with pytest.raises(InputError, match="length of an embedding must be a finite number. Received: inf"):
        unit(long)
    for kind in ("dot", "cosine"):
        with pytest.raises(InputError, match="must be a finite number. Received: inf"):
            similarity(long, long, kind)
    assert similarity(short, short, "cosine") == pytest.approx(1.0)
