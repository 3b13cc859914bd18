"""Weights of classes that are rare, for the loss of every head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend import set_keras_mask

from kerasformer.basics.arguments import BOOLEAN, check
from kerasformer.errors import InputError
from kerasformer.layers import PACKAGE, LayerConfig, Tensor

IGNORED = -100
"""Label of positions that do not count."""


def class_weights(labels: Any, *, multi_label: bool = False) -> dict[int, float]:
    """Returns a weight for each class, so that all classes have the same influence on the loss.

    The weight of a class is `N / (K * n)` for `n` of `N` labels and `K` classes that occur, as in
    `sklearn.utils.class_weight.compute_class_weight("balanced", …)`. That of an independent class is the number of rows
    without it divided by the number of rows with it, which is the `pos_weight` of PyTorch.

        weights = class_weights(labels)
        model.compile(optimizer, WeightedCrossentropy(weights))

    Args:
        labels: Ids of classes: of texts `(N,)` or tokens `(N, T)`, or a list of lists; -100 is ignored. For independent
            classes, rows of zeros and ones `(N, K)`.
        multi_label: Whether the classes are independent.

    Raises:
        InputError: there are no labels; a label is not an id; an independent class occurs in no row.

    Reference: King and Zeng 2001, Logistic Regression in Rare Events Data.
    """
    if check("multi_label", multi_label, BOOLEAN):
        rows = np.asarray(labels)
        if rows.ndim != 2 or not rows.size or not np.isin(rows, (0, 1)).all():
            raise InputError(f"Rows of zeros and ones (N, K) were expected. Received: labels of shape {rows.shape}")
        counts = rows.sum(0)
        if not counts.all():
            raise InputError(f"Each class must occur in a row. Received: none with class {int(counts.argmin())}")
        return {index: float((len(rows) - count) / count) for index, count in enumerate(counts)}
    ragged = isinstance(labels, list | tuple) and labels and isinstance(labels[0], list | tuple | np.ndarray)
    flat = np.concatenate([np.asarray(row).ravel() for row in labels]) if ragged else np.asarray(labels).ravel()
    flat = flat[flat != IGNORED]
    if not flat.size or not np.issubdtype(flat.dtype, np.integer) or flat.min() < 0:
        raise InputError(f"Ids of classes from 0 were expected. Received: labels of type {flat.dtype}, {flat[:5]}")
    classes, counts = np.unique(flat, return_counts=True)
    return {int(index): float(flat.size / (len(classes) * n)) for index, n in zip(classes, counts, strict=True)}


class _Weighted(keras.losses.Loss):
    """Base of losses with weights of classes."""

    def __init__(self, weights: Mapping[int, float], name: str, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.weights = {int(index): float(weight) for index, weight in weights.items()}  # JSON has names alone

    def _vector(self, like: Tensor) -> Tensor:
        """Returns the weights of all classes `(K,)`; 1 for those that have none."""
        count = like.shape[-1]
        if outside := [index for index in self.weights if not 0 <= index < count]:
            raise InputError(f"The model has {count} classes. Expected: weights of these. Received: {outside}")
        return ops.convert_to_tensor([self.weights.get(index, 1.0) for index in range(count)], like.dtype)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "weights": {str(index): weight for index, weight in self.weights.items()}}


@keras.saving.register_keras_serializable(PACKAGE)
class WeightedCrossentropy(_Weighted):
    """Cross-entropy of integer labels with a weight for each class, as `torch.nn.CrossEntropyLoss(weight=…)`.

    It serves heads for texts and for tokens. `class_weight` of `fit` takes labels of texts alone.

    Args:
        weights: Weight by class, see `class_weights`; 1 for other classes.
        ignore_class: Label of positions that do not count.
        kwargs: `keras.losses.Loss` arguments.

    Call arguments:
        y_true: Labels, integers `(...)`.
        y_pred: Logits `(..., K)`.

    Returns:
        The mean over all positions that count, weighted by their classes.
    """

    def __init__(
        self,
        weights: Mapping[int, float],
        ignore_class: int = IGNORED,
        name: str = "weighted_crossentropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, name, **kwargs)
        self.ignore_class = ignore_class

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the loss of each position, relative to the mean weight of all positions that count."""
        labels = ops.cast(y_true, "int32")
        counts = ops.not_equal(labels, self.ignore_class)
        labels = ops.where(counts, labels, 0)
        losses = keras.losses.sparse_categorical_crossentropy(labels, y_pred, from_logits=True)
        weights = ops.where(counts, ops.take(self._vector(y_pred), labels), 0.0)
        total = ops.sum(weights) / ops.maximum(ops.sum(ops.cast(counts, weights.dtype)), 1.0)
        losses = ops.divide_no_nan(losses * weights, total)
        set_keras_mask(losses, mask=counts)
        return losses

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(PACKAGE)
class WeightedBinaryCrossentropy(_Weighted):
    """Cross-entropy of independent classes whose ones have weights, as `torch.nn.BCEWithLogitsLoss(pos_weight=…)`.

    Args:
        weights: Weight by class, see `class_weights(…, multi_label=True)`; 1 for other classes.
        kwargs: `keras.losses.Loss` arguments.

    Call arguments:
        y_true: Zeros and ones `(B, K)`.
        y_pred: Logits `(B, K)`.

    Returns:
        The mean over all rows and classes.
    """

    def __init__(self, weights: Mapping[int, float], name: str = "weighted_binary_crossentropy", **kwargs: Any) -> None:
        super().__init__(weights, name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the mean loss of each row."""
        labels = ops.cast(y_true, y_pred.dtype)
        factor = 1.0 + (self._vector(y_pred) - 1.0) * labels
        losses = ops.softplus(y_pred) - labels * y_pred  # -log of the probability of the label
        return ops.mean(losses * factor, axis=-1)
