"""Keras models as engines: `kerasformer.pipelines.opening` imports this module by name when a source is no bundle."""

from __future__ import annotations

from kerasformer.errors import InputError
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.keras_forward import KerasForward
from kerasformer.models.loading import load
from kerasformer.models.pretrained import PretrainedModel

__all__ = ["engine", "load"]


def engine(model: object) -> KerasForward | KerasStep:
    """Returns the engine of a model.

    Raises:
        InputError: It is not a model of `kerasformer.zoo`.
    """
    if not isinstance(model, PretrainedModel):
        raise InputError(
            f"A model of kerasformer.zoo, a folder, a preset or a hub id was expected. Received: {type(model).__name__}"
        )
    return KerasStep(model) if model.generates else KerasForward(model)
