"""Products and lookups of a model with other matrices than its own, and how far its answers then diverge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from keras import ops

from kerasformer.layers.primitives import Primitives, Weight, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalLM


class Matrix(Protocol):
    """A matrix `(N, K)` that takes the place of one of the model."""

    def product(self, x: Tensor) -> Tensor:
        """Multiplies inputs `(T, K)`; returns `(T, N)`."""

    def looked_up(self, ids: Tensor) -> Tensor:
        """Returns rows of a table, `(..., K)`."""


class ProductsWith(Primitives):
    """Plain primitives that compute with other matrices.

    Args:
        others: These matrices by the path of those that they replace.
    """

    def __init__(self, others: Mapping[str, Matrix]) -> None:
        self.others = others

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product with the other kernel."""
        if kernel.path not in self.others:
            return super().linear(x, kernel, bias, transposed=transposed)
        y = self.others[kernel.path].product(ops.reshape(x, (-1, x.shape[-1])))
        y = ops.reshape(y, (*ops.shape(x)[:-1], y.shape[-1]))
        return y if bias is None else ops.add(y, bias)

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up rows of the other table."""
        other = self.others.get(table.path)
        return super().embedding(table, ids) if other is None else other.looked_up(ids)


def divergence(model: CausalLM, ids: Tensor, others: Primitives) -> Tensor:
    """Returns the mean divergence of next tokens of a model that computes with other primitives from its own.

    Args:
        model: The model with its float32 weights.
        ids: Tokens of texts, `(B, T)`.
        others: Primitives that round.
    """
    inputs = {"input_ids": ids, "attention_mask": ops.ones_like(ids)}
    expected = ops.stop_gradient(ops.log_softmax(model(inputs, training=False)))
    with lowering(others):
        received = ops.log_softmax(model(inputs, training=False))
    return ops.mean(ops.sum(ops.exp(expected) * (expected - received), axis=-1))
