"""Losses for training."""

from __future__ import annotations

import keras
from keras import ops
from keras.src.backend import set_keras_mask

from kerasformer.errors import InputError
from kerasformer.layers.core import PACKAGE
from kerasformer.layers.layer_types import LayerConfig
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy with label smoothing for integer labels, as `torch.nn.CrossEntropyLoss(label_smoothing=…)`.

    A share `label_smoothing` of the target distribution is uniform over all classes, and the rest belongs to the label.
    Without smoothing it equals `keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=…)`. One-hot
    labels, which Keras's own loss with label smoothing needs, would have the size of the logits.

    Args:
        label_smoothing: Share of the uniform distribution, from 0 to 1.
        ignore_class: Label of positions that do not count, such as padding.
        kwargs: `keras.losses.Loss` arguments.

    Call arguments:
        y_true: Labels, integers `(...)`.
        y_pred: Logits `(..., V)`.

    Returns:
        The mean over all positions that count, 0 if there are none; with `reduction="none"`, the loss of each `(...)`.

    Raises:
        InputError: `label_smoothing` is not from 0 to 1.

    Reference: Szegedy et al. 2016, arXiv:1512.00567, section 7; Vaswani et al. 2017, arXiv:1706.03762, section 5.4.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        ignore_class: int = -100,
        name: str = "smoothed_crossentropy",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing <= 1:
            raise InputError(f"label_smoothing must be from 0 to 1. Received: label_smoothing={label_smoothing}")
        self.label_smoothing, self.ignore_class = label_smoothing, ignore_class

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the loss of each position."""
        labels = ops.cast(y_true, "int32")
        counts = ops.not_equal(labels, self.ignore_class)
        labels = ops.expand_dims(ops.where(counts, labels, 0), -1)
        total = ops.logsumexp(y_pred, axis=-1)
        label = ops.squeeze(ops.take_along_axis(y_pred, labels, axis=-1), -1)
        share = self.label_smoothing
        losses = ops.where(counts, total - (1 - share) * label - share * ops.mean(y_pred, axis=-1), 0.0)
        set_keras_mask(losses, mask=counts)
        return losses

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        names = ("label_smoothing", "ignore_class")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
