"""Tracing of a model's functions as TensorFlow graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import keras

from kerasformer.errors import ExportError
from kerasformer.export.graph.functions import Function
from kerasformer.extras import require
from kerasformer.layers.tensor import Tensor, TensorFunction

if TYPE_CHECKING:
    import tensorflow as tf


def trace(function: Function) -> tf.types.experimental.ConcreteFunction:
    """Returns the concrete function, with symbolic dimensions left dynamic.

    Raises:
        ExportError: The results differ in name or dtype from those that the function declares.
    """
    tf = require("tensorflow", "export")

    def call(**tensors: Tensor) -> dict[str, Tensor]:
        results = function.call(**tensors)
        if set(results) != set(function.outputs):
            raise ExportError(f"{function.name} must return {sorted(function.outputs)}. Received: {sorted(results)}")
        return {name: _declared(results[name], info.dtype, name) for name, info in function.outputs.items()}

    specs = {
        name: tf.TensorSpec([None if isinstance(size, str) else size for size in info.shape], info.dtype, name=name)
        for name, info in function.inputs.items()
    }
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _declared(result: Tensor, dtype: str, name: str) -> Tensor:
    received = keras.backend.standardize_dtype(result.dtype)
    if received != dtype:
        raise ExportError(
            f"A SavedModel computes in float32: {name} must be {dtype}. Received: {received}. "
            "Load the model with dtype='float32'"
        )
    # Without the identity, an input that is passed through unchanged would not count as an output.
    return require("tensorflow", "export").identity(result)


def shared(function: Function) -> Function:
    """Returns the function as a part of other graphs; it is traced once, however often they call it."""
    tf = require("tensorflow", "export")
    traced: list[TensorFunction] = []

    def call(**tensors: Tensor) -> dict[str, Tensor]:
        if not traced:
            with tf.init_scope():
                traced.append(trace(function))
        return dict(traced[0](**tensors))

    return replace(function, call=call)
