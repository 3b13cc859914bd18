"""Metrics for training."""

from __future__ import annotations

import keras
from keras import ops

from kerasformer.layers.core import PACKAGE
from kerasformer.layers.layer_types import LayerConfig
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Share of positions whose highest score is that of the label, among those that count.

    The metric `"accuracy"` of Keras counts ignored positions as wrong, although a loss with `ignore_class` omits them.

    Args:
        ignore_class: Label of positions that do not count, such as padding.
        name: Name of the metric.
        kwargs: `keras.metrics.Metric` arguments.

    Call arguments:
        y_true: Labels, integers `(...)`.
        y_pred: Scores `(..., V)`.
        sample_weight: Weights, broadcastable to the labels; optional.
    """

    def __init__(self, ignore_class: int = -100, name: str = "accuracy", **kwargs: object) -> None:
        super().__init__(name=name, **kwargs)
        self.ignore_class = ignore_class

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds the positions of a batch."""
        labels = ops.convert_to_tensor(y_true)
        counts = ops.cast(ops.not_equal(ops.cast(labels, "int32"), self.ignore_class), self.dtype)
        if sample_weight is not None:
            weight = ops.cast(sample_weight, self.dtype)
            missing = len(counts.shape) - len(weight.shape)
            counts = counts * ops.reshape(weight, (*ops.shape(weight), *[1] * missing))
        super().update_state(labels, y_pred, sample_weight=counts)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        config = super().get_config()
        return {**config, "ignore_class": self.ignore_class}
