"""Base of layers that take the place of causal attention."""

from __future__ import annotations

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import Composite, Configured, Dense, packed
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility, visibility_of


class TokenMixer(Configured, Composite):
    """Base of layers that take the place of the attention of a `DecoderLayer`.

    Attributes:
        hidden_dim: Size `E` of the output.
        kernel_initializer: Keras initializer of the projections.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 for real tokens, `(B, T)`, or `(B, S)` with a cache; optional.
        visibility: `Visibility` shared by all layers of a stack, optional; only its slots and its padding matter.
        cache: `LayerCache` as `cache_spec` declares it, optional.
        return_attention: Ignored, since there are no weights.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: in a call, a visibility that is not causal or a mask with a row for each query.
    """

    hidden_dim: int
    kernel_initializer: keras.initializers.Initializer

    def mix(self, x: Tensor, real: Tensor | None, cache: LayerCache | None) -> tuple[Tensor, LayerCache | None]:
        """Mixes each token with earlier ones.

        Args:
            x: `(B, T, E)`.
            real: `True` for tokens, `(B or 1, T)`; `None` if there is no padding, which must contribute nothing.
            cache: As in the call of the layer.

        Returns:
            `((B, T, E), updated cache or None)`.
        """
        raise NotImplementedError

    def dense(self, units: int, name: str, use_bias: bool = False) -> Dense:
        """Returns a projection."""
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return Dense(units, use_bias, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        length = ops.shape(x)[1]
        visibility = visibility_of(visibility, attention_mask, None, x, None if cache is not None else x.shape[1])
        if visibility.causal is False:
            raise InputError(
                f"A {type(self).__name__} is causal. Expected: a visibility with causal=True. Received: False"
            )
        y, cache = self.mix(x, visibility.with_slots(length, [cache]).real_queries(length), cache)
        return packed(y, return_attention or return_cache, cache=cache if return_cache else None)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to itself."""
        return (*input_shape[:-1], self.hidden_dim)
