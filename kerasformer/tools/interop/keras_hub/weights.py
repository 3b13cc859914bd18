"""Weights of KerasHub's models, with the interface of a tensor file."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import keras
import numpy as np

from kerasformer.files.tensors import TensorFile
from kerasformer.models import Names, Row


def hub_variable(model: keras.Model, name: str) -> keras.Variable:
    """Returns the variable that the attributes in `name` lead to, or `None` if the model lacks it.

    For a layer with adapters, that is a tensor with the merged value.
    """
    root, *parts = name.split(".")
    start = getattr(model, "backbone", model) if root == "backbone" else getattr(model, root, None)
    return reduce(lambda at, part: at[int(part)] if part.isdigit() else getattr(at, part, None), parts, start)


@dataclass(frozen=True)
class HubNames(Names):
    """Names of tensors that are attribute paths, without variants."""

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """Returns the name unchanged."""
        return name


class HubWeights(TensorFile):
    """The weights of a KerasHub model, whose types are float types; each tensor is copied when it is read.

    Args:
        model: Task or backbone.
        rows: Weight table with the names of the tensors.
    """

    def __init__(self, model: keras.Model, rows: Sequence[Row]) -> None:
        super().__init__(Path(), ())
        self._model = model
        self._names = [row.tensor for row in rows if hub_variable(model, row.tensor) is not None]

    def __str__(self) -> str:
        return type(self._model).__name__

    def names(self) -> list[str]:
        """Returns the names of the tensors of the table that exist in the model."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor, with heads and head size as one axis."""
        shape = tuple(hub_variable(self._model, name).shape)
        if name.endswith(".bias"):
            return (math.prod(shape),)
        if len(shape) == 3:
            first, middle, last = shape
            return (first * middle, last) if "_output_dense." in name else (first, middle * last)
        return shape

    def problem(self, name: str) -> None:
        """Returns `None`: `from_model` refuses models with weights of other types."""

    def dtype(self, name: str) -> str:
        """Returns the data type of a tensor."""
        return str(keras.backend.standardize_dtype(hub_variable(self._model, name).dtype))

    def _read(self, name: str) -> np.ndarray:
        return np.asarray(keras.ops.convert_to_numpy(hub_variable(self._model, name))).reshape(self.shape(name))
