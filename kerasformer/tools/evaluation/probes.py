"""Classifiers on the vectors of a frozen model: what its pretraining alone is worth for a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.basics.progress import CountProgress
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import Example
from kerasformer.tools.evaluation.baselines import class_names
from kerasformer.tools.evaluation.glue import GlueTask
from kerasformer.tools.evaluation.outcome import Outcome, of_classes

_NEIGHBOURS = 5
_EXTRA = "metrics"


def probes(
    pipe: Any,
    train: Sequence[Example],
    examples: Sequence[Example],
    glue: GlueTask | None = None,
    *,
    batch_size: int = 8,
    progress: CountProgress | None = None,
) -> dict[str, Outcome]:
    """Classifies texts by their five nearest neighbours and by logistic regression, with scikit-learn.

    Args:
        pipe: Pipeline for sentence-similarity, whose embeddings are used; or for feature-extraction, whose hidden
            states are, as the mean over the tokens of a text. On any engine.
        train: Training texts with one class each.
        examples: Evaluated texts, likewise.
        glue: Task of GLUE that has the classes and metrics.
        batch_size: Number of texts in one batch.
        progress: Called with the number of completed texts.

    Returns:
        Outcomes by name: `"nearest neighbours"`, by the cosine of the vectors, and `"logistic regression"`, on vectors
        that are scaled to a variance of 1 in each entry.

    Raises:
        InputError: there are no training texts, or they have one class alone, or the pipeline has no vectors.
        MissingExtraError: scikit-learn is not installed.

    Reference: Tunstall, von Werra, Wolf 2022, "Natural Language Processing with Transformers", chapters 2 and 9.
    """
    neighbors, linear = (require(f"sklearn.{name}", _EXTRA) for name in ("neighbors", "linear_model"))
    scaler = require("sklearn.preprocessing", _EXTRA).StandardScaler()
    if pipe.task not in ("sentence-similarity", "feature-extraction"):
        raise InputError(f"A model for sentence-similarity or feature-extraction was expected. Received: {pipe.task}")
    known = class_names([*train, *examples], glue)
    of_train, right = ([known.find(example.label, example) for example in part] for part in (train, examples))
    if len(set(of_train)) < 2:
        raise InputError(f"Training texts of at least two classes were expected. Received: {len(set(of_train))}")
    vectors = _vectors(pipe, [*train, *examples], batch_size, progress)
    read, asked = vectors[: len(train)], vectors[len(train) :]
    nearest = neighbors.KNeighborsClassifier(min(_NEIGHBOURS, len(train)), metric="cosine").fit(read, of_train)
    regression = linear.LogisticRegression(max_iter=1000).fit(scaler.fit_transform(read), of_train)
    return {
        "nearest neighbours": of_classes(known, nearest.predict(asked).tolist(), right),
        "logistic regression": of_classes(known, regression.predict(scaler.transform(asked)).tolist(), right),
    }


def _vectors(pipe: Any, examples: Sequence[Example], batch_size: int, progress: CountProgress | None) -> np.ndarray:
    """Returns a vector of each text, float32 `(N, E)`; that of a pair is one of both texts in two lines."""
    pooling = {"pooling": "mean"} if pipe.task == "feature-extraction" else {}
    texts = [example.text if example.pair is None else f"{example.text}\n{example.pair}" for example in examples]
    parts: list[np.ndarray] = []
    for start in range(0, len(texts), batch_size):
        part = texts[start : start + batch_size]
        parts.append(np.stack(pipe(part, truncation=True, batch_size=batch_size, **pooling)))
        if progress is not None:
            progress(start + len(part), len(texts))
    return np.concatenate(parts)
