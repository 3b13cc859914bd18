"""Models with another number of tokens: `with_vocabulary`.

A variable whose shape depends on the size of the vocabulary is changed along that axis: token embeddings, and the
matrix and the bias of an output. The shapes in a model with the other vocabulary show which variables these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.core import merged_lora
from kerasformer.layers.tensor import Shape
from kerasformer.models.config import Config
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.variables import deferred_variables, initialize_with, variables_by_path


def with_vocabulary(
    model: PretrainedModel, config: Config, change: Callable[[np.ndarray, int], np.ndarray]
) -> PretrainedModel:
    """Returns a model with another configuration, whose vocabulary has another size.

    Args:
        model: The model; it does not change.
        config: The configuration.
        change: Returns the values of a variable with another size along an axis.

    Raises:
        UnsupportedConfigError: a variable whose shape differs has another size than the vocabulary.
    """
    arguments = {**model.get_config(), "config": config.to_hf()}
    with merged_lora(model), deferred_variables():
        other: PretrainedModel = type(model).from_config(arguments)
        originals = variables_by_path(model)
        for path, variable in variables_by_path(other).items():
            original = originals[path]
            axes = _axes(path, original.shape, variable.shape, (model.config.vocab_size, config.vocab_size))
            initialize_with(variable, partial(_changed, original, axes, change), original.dtype)
    other.generation_config = model.generation_config
    other.new_variables = model.new_variables
    return other


def _axes(path: str, before: Sequence[int], after: Sequence[int], sizes: tuple[int, int]) -> list[int]:
    """Returns the axes of a variable that differ."""
    changes = {axis: pair for axis, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]}
    if any(pair != sizes for pair in changes.values()):
        raise UnsupportedConfigError(
            f"The shape of {path} depends on the size of the vocabulary in an unknown way. Expected: an axis of "
            f"{sizes[0]} that becomes {sizes[1]}. Received: {tuple(before)} that becomes {tuple(after)}"
        )
    return list(changes)


def _changed(
    original: np.ndarray,
    axes: Sequence[int],
    change: Callable[[np.ndarray, int], np.ndarray],
    shape: Shape,
    dtype: str,
) -> np.ndarray:
    """Returns the initial value of a variable."""
    value = np.asarray(original)
    for axis in axes:
        value = change(value, axis)
    return value
