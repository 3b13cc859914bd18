"""Variables whose values are deferred, released or replaced.

This is the only file that uses private attributes of Keras for the values of variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import keras
from keras.src.backend.common import global_state

from kerasformer.layers.core import LOW_RANK
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.process import return_memory

Source = Callable[[Shape, str], Tensor]
"""Function that returns the value of a variable, from its shape and its data type."""

_SAMPLED = 16
"""Number of values of a weight that `sampled_values` reads."""
_SOURCE = "_kerasformer_source"
"""Attribute of a variable: the function that returns its value again."""


def variables_by_path(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their path below the model, without states of random number generators.

    Low-rank matrices are not included: weights must be saved within `merged_lora`.
    """
    return {
        variable.path.split("/", 1)[1]: variable
        for variable in model.variables
        if not any(name in variable.path for name in ("seed_generator", "metrics", f"/{LOW_RANK}"))
    }


def sampled_values(model: keras.Model) -> dict[str, bytes]:
    """Returns a few values of each weight in memory by its path, by which training, or an assignment, is noticed."""
    samples = {}
    for path, variable in variables_by_path(model).items():
        if variable._value is not None:
            flat = keras.ops.reshape(variable.value, (-1,))
            values = flat[:: max(1, math.prod(variable.shape) // _SAMPLED)]
            samples[path] = keras.ops.convert_to_numpy(values).tobytes()
    return samples


@contextmanager
def deferred_variables() -> Iterator[None]:
    """Context that defers the allocation and initialization of new variables to its end; an error discards them."""
    previous = list(global_state.get_global_attribute("uninitialized_variables") or [])

    def discard() -> None:
        # Keras initializes all deferred variables when any scope ends, which would include those of this model.
        global_state.set_global_attribute("uninitialized_variables", previous)

    try:
        with keras.StatelessScope():
            try:
                yield
            except BaseException:
                discard()
                raise
    except BaseException:
        discard()
        raise


@contextmanager
def abstract_variables() -> Iterator[None]:
    """Context in which new variables have shapes and no values; they must not be used after it."""

    class Done(Exception):
        """Ends the context of deferred variables, which forgets them."""

    with suppress(Done), deferred_variables():
        yield
        raise Done


def initialize_with(variable: keras.Variable, source: Source, dtype: str | None = None) -> None:
    """Sets the initial value of a deferred variable, and its data type if that is not `None`."""
    if dtype is not None:
        variable._dtype = dtype
    variable._initializer = source


def read_again_with(variable: keras.Variable, source: Source | None) -> None:
    """Sets what returns the value of a variable after `release_weights`; with `None`, it stays in memory."""
    if source is None:
        vars(variable).pop(_SOURCE, None)
    else:
        setattr(variable, _SOURCE, source)


def source_of(variable: keras.Variable) -> Source | None:
    """Returns what `read_again_with` has set."""
    source: Source | None = getattr(variable, _SOURCE, None)
    return source


def forget_sources(model: keras.Model) -> None:
    """Makes the weights of a model stay in memory, since their files will not."""
    for variable in model.variables:
        read_again_with(variable, None)


def replace_value(variable: keras.Variable, value: Tensor, keep: bool) -> Callable[[], None]:
    """Replaces the value of a variable, and returns a function that restores it.

    Args:
        variable: The variable.
        value: A tensor.
        keep: Whether the original value stays in memory meanwhile. Otherwise it is read again, if it has a source.
    """
    source = source_of(variable)
    original = variable._value if keep or source is None else None
    variable._value = None
    variable._initialize(value)

    def restore() -> None:
        variable._value = original
        read_again_with(variable, source)
        if original is None:
            variable._initializer = source

    return restore


def release_weights(model: keras.Model) -> None:
    """Frees the memory of the weights of a loaded model; from then on, each is read from its file where it is used.

    This is for an export, which uses one weight after the other. The model still computes the same, but slowly, and
    changes of its weights are lost. Weights stay in memory if the files did not contain them, or if the files are not
    safetensors.
    """
    for variable in model.variables:
        source = source_of(variable)
        if source is not None and variable._value is not None:
            _free(variable._value)
            # The state of a variable whose initialization is deferred: its value is what the initializer returns.
            variable._value, variable._initializer = None, source
    vars(model).pop("_compiled_functions", None)  # they read the variables
    return_memory()


def _free(value: Tensor) -> None:
    """Frees the memory of a variable of the backend, which compiled functions may still refer to."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.raw_ops.AssignVariableOp(resource=value.handle, value=tf.zeros((0,), value.dtype))
