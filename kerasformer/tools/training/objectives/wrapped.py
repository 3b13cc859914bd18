"""Base of models that train other models."""

from __future__ import annotations

from typing import Any, Self

import keras

from kerasformer.layers import LayerConfig
from kerasformer.models import PretrainedModel


class WrappedModel(keras.Model):
    """A Keras model around models of the zoo, for `fit`; they keep their weights and stay usable by themselves."""

    parts: tuple[str, ...] = ("model",)
    """Names of the arguments that are models, the one that is the result of the training last."""

    @property
    def kept(self) -> PretrainedModel:
        """The model that is the result of the training."""
        kept: PretrainedModel = getattr(self, self.parts[-1])
        return kept

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        models = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.parts}
        return {"name": self.name, **models}

    @classmethod
    def from_config(cls, config: LayerConfig, custom_objects: Any = None) -> Self:
        """Creates a model from the result of `get_config`."""
        models = {name: keras.saving.deserialize_keras_object(config[name], custom_objects) for name in cls.parts}
        return cls(**{**config, **models})
