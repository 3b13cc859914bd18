"""Creation of models and backbones: from a configuration, with a dtype policy and initial values of a distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import keras

from kerasformer.basics.arguments import shown
from kerasformer.basics.tasks import FEATURE_EXTRACTION
from kerasformer.errors import InputError
from kerasformer.layers.layer_types import LayerConfig
from kerasformer.models.config import Config

_Model = TypeVar("_Model", bound=keras.Model)


def create(
    model_class: type[_Model],
    config: Config,
    dtype: str | keras.DTypePolicy | None = None,
    build: bool = True,
    **kwargs: Any,
) -> _Model:
    """Creates a model with a dtype policy, and its variables if `build` is true."""
    with dtype_policy(dtype):
        model = model_class(config, **kwargs)
    if build:
        model.build()
    return model


@contextmanager
def dtype_policy(dtype: str | keras.DTypePolicy | None) -> Iterator[None]:
    """Context in which layers are created with a dtype policy; `None` for the current policy."""
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(previous if dtype is None else keras.dtype_policies.get(dtype))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)


def check_config(called_class: type, config: Config) -> None:
    """Checks the first argument of a model class, which others pass the name of a checkpoint.

    Raises:
        InputError: it is no configuration.
    """
    if not isinstance(config, Config):
        raise not_loaded_here(called_class, f"{called_class.__name__}({shown(config)})")


def not_loaded_here(called_class: type, received: str) -> InputError:
    """Returns the error of a model class that is called with the name of a checkpoint; it names `zoo.load`."""
    task = getattr(called_class, "task", FEATURE_EXTRACTION)
    return InputError(
        f"A checkpoint, a preset or a hub id is loaded by kerasformer.zoo.load(source, {task!r}), and a model with "
        f"random weights is created by kerasformer.zoo.build. Received: {received}"
    )


def normal(deviation: float) -> LayerConfig:
    """Returns a normal initializer, serialized, so that each kernel draws different random numbers."""
    return keras.initializers.serialize(keras.initializers.RandomNormal(stddev=deviation))


def fan_in(variance: float) -> LayerConfig:
    """Returns a normal initializer whose variance is divided by the fan-in of a kernel, serialized as in `normal`."""
    return keras.initializers.serialize(keras.initializers.VarianceScaling(variance, "fan_in", "untruncated_normal"))
