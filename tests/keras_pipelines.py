"""Pipelines of tiny Keras models."""

from __future__ import annotations

from typing import Any

import kerasformer as kf
from kerasformer.models.keras_engine import KerasStep


def keras_pipeline(source: Any, task: str | None = None) -> Any:
    """Returns the pipeline of a Keras model, which generates without XLA.

    XLA takes seconds to compile each model, longer than a tiny one runs, and TensorFlow keeps the code, about 60 MB for
    each model, until the process ends.
    """
    pipe = kf.pipeline(source, task)
    if isinstance(pipe.model, KerasStep):
        pipe.model = KerasStep(pipe.model.model, pipe.model.capacity, jit_compile=False)
    return pipe
