"""Causal masks and visibilities in functional models."""

from __future__ import annotations

import keras
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility

if backend.backend() == "jax":
    import jax

    class _Same:
        """Compares a visibility by identity, since arrays have no hash."""

        def __init__(self, visibility: Visibility) -> None:
            self.visibility = visibility

    # Functional models pass all arguments of a layer to JAX, which must not take a visibility for an array.
    jax.tree_util.register_pytree_node(
        Visibility, lambda visibility: ((), _Same(visibility)), lambda same, _: same.visibility
    )


@keras.saving.register_keras_serializable("kerasformer")
class CausalMask(keras.Operation):
    """The operation of `causal_mask` in functional models, whose lengths are known when they run."""

    def call(self, query: Tensor, key: Tensor | None = None) -> Tensor:
        """Computes the mask for tensors `(B, T, …)` and `(B, S, …)`."""
        return causal_mask(query, key)

    def compute_output_spec(self, query: Tensor, key: Tensor | None = None) -> keras.KerasTensor:
        """Returns the shape of the mask."""
        return keras.KerasTensor((1, 1, query.shape[1], (query if key is None else key).shape[1]), "bool")


def causal_mask(query_length: int | Tensor, key_length: int | Tensor | None = None) -> Tensor:
    """Returns the causal mask, boolean `(1, 1, T, S)`; the last query has the slot of the last key.

    For `T = 2` and `S = 3` (one token is in the cache) the rows are `1 1 0` and `1 1 1`.

    Args:
        query_length: Length `T`, a number or a scalar tensor; or a tensor `(B, T, …)` that has it, which may be
            symbolic in a functional model.
        key_length: Length `S`, likewise; `T` by default.

    Raises:
        InputError: `None`, the length of a symbolic tensor, or a tensor with one axis.
    """
    if any(isinstance(length, keras.KerasTensor) for length in (query_length, key_length)):
        return CausalMask()(query_length, *(() if key_length is None else (key_length,)))
    keys = None if key_length is None else _length(key_length)
    mask = Visibility.of_text(_length(query_length), causal=True, key_length=keys).boolean()
    return mask


def _length(of: Tensor) -> int | Tensor:
    """Returns the length of axis 1 of a tensor, or the length itself."""
    axes = len(getattr(of, "shape", ()))
    if of is None or axes == 1:
        raise InputError(
            "A causal mask requires a length. Expected: a number, or a tensor (B, T, …) whose second axis has the "
            f"length, such as a keras.Input. Received: {'None' if of is None else f'shape {tuple(of.shape)}'}"
        )
    return ops.shape(of)[1] if axes else of
