"""Attention layers of few architectures: global tokens, a relative bias, other windows, sparse blocks, and gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.banded import GlobalTokens, States
from kerasformer.layers.core import PACKAGE, build_once
from kerasformer.layers.masks import mask_to_bias, slot_rows
from kerasformer.layers.positions import RelativePositionBias
from kerasformer.layers.random_blocks import SparseBlocks
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.layers.visibility import Visibility


@keras.saving.register_keras_serializable(PACKAGE)
class GlobalMultiHeadAttention(MultiHeadAttention):
    """Sliding window attention with separate projections for the attention of global tokens.

    A token attends to the tokens in its window and to the global tokens with the projections of `MultiHeadAttention`. A
    global token attends to all tokens with `query_global`, `key_global` and `value_global`, which are computed only if
    the `visibility` has a `global_mask`.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        window: Number of tokens that a token attends to on each side.
        kwargs: Arguments of `MultiHeadAttention`, except `rotary`, `query_key_norm` and `num_key_value_heads`.

    Raises:
        InputError: an unsupported argument of `MultiHeadAttention`.

    Reference: Beltagy et al. 2020, arXiv:2004.05150, section 3.1; `transformers.models.longformer`.
    """

    zero_padding = True

    def __init__(self, num_heads: int, hidden_dim: int, window: int, **kwargs: Any) -> None:
        super().__init__(num_heads, hidden_dim, window=window, **kwargs)
        self.check_features("rotary", "query_key_norm", "num_key_value_heads")
        size = num_heads * self.spec.head_dim
        self.query_global = self._dense(size, self.use_bias, "query_global")
        self.key_global = self._dense(size, self.key_bias, "key_global")
        self.value_global = self._dense(size, self.use_bias, "value_global")

    def build(self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None) -> None:
        """Creates the weights for `(B, T, E)` queries, `(B, S, E')` keys, and `(B, S, E'')` values."""
        super().build(query_shape, key_value_shape, value_shape)
        build_once(self.query_global, query_shape)
        build_once(self.key_global, key_value_shape or query_shape)
        build_once(self.value_global, value_shape or key_value_shape or query_shape)

    def global_states(self, query: Tensor, memory: Tensor, value: Tensor) -> Callable[[GlobalTokens], States]:
        """Returns a function that projects queries of the global tokens, and keys and values of all tokens."""

        def states(tokens: GlobalTokens) -> States:
            return self.query_global(tokens.select(query)), self.key_global(memory), self.value_global(value)

        return states


@keras.saving.register_keras_serializable(PACKAGE)
class RelativeAttention(MultiHeadAttention):
    """Self attention with a relative position bias of its own, instead of one that all layers of a stack share.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        relative_bias: The relative position bias.
        kwargs: Arguments of `MultiHeadAttention`.

    Raises:
        InputError: in a call, a `visibility` without slots, which the bias compares.

    Reference: Chung et al. 2023, arXiv:2304.09151; `transformers.models.umt5`.
    """

    def __init__(self, num_heads: int, hidden_dim: int, relative_bias: RelativePositionBias, **kwargs: Any) -> None:
        super().__init__(num_heads, hidden_dim, **kwargs)
        self.relative_bias = relative_bias

    def build(self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None) -> None:
        """Creates the weights for `(B, T, E)` queries, `(B, S, E')` keys, and `(B, S, E'')` values."""
        super().build(query_shape, key_value_shape, value_shape)
        build_once(self.relative_bias, (None,))

    def position_bias(self, visibility: Visibility) -> Tensor:
        """Returns the bias of all pairs of a query and a key, `(1, H, T, S)`."""
        if visibility.query_slots is None or visibility.key_slots is None:
            raise InputError(
                "A relative position bias requires the slots of queries and keys. Expected: a visibility with "
                "query_slots and key_slots, such as Visibility.of_text(T). "
                f"Received: query_slots={visibility.query_slots}, key_slots={visibility.key_slots}"
            )
        return self.relative_bias(visibility.query_slots, visibility.key_slots)


@keras.saving.register_keras_serializable(PACKAGE)
class UnevenWindowAttention(MultiHeadAttention):
    """Self attention within a window that has one token less before a query than after it (T5Gemma 2).

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        window: Number of tokens that a token attends to after it.
        kwargs: Arguments of `MultiHeadAttention`.

    Reference: `transformers.models.t5gemma2`.
    """

    def __init__(self, num_heads: int, hidden_dim: int, window: int, **kwargs: Any) -> None:
        super().__init__(num_heads, hidden_dim, window=window, **kwargs)

    def position_bias(self, visibility: Visibility) -> Tensor:
        """Returns the bias that hides the first key of the symmetric window, `(B or 1, 1, T, S)`."""

        def render() -> Tensor:
            first = slot_rows(visibility.query_slots, -1) - self.window
            return mask_to_bias(slot_rows(visibility.key_slots, -2) != first, self.compute_dtype)

        return visibility.rendered(("first of window", self.window, self.compute_dtype), render)


@keras.saving.register_keras_serializable(PACKAGE)
class BlockSparseAttention(MultiHeadAttention):
    """Block-sparse self attention, in memory that grows linearly with the length of the text.

    Texts are divided into blocks. The first and the last block attend to all tokens. Each other block attends to these
    two, to itself, and to its two neighbors; in training also to random blocks, which are constants of the layer, the
    length of the text and the head. In evaluation, the keys of the first block count `num_random` times more instead,
    as in the reference. Texts of up to `blocks.full_length` tokens have full attention.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        blocks: Description of the blocks, `SparseBlocks` or a dictionary of its attributes; full attention by default.
        kwargs: Arguments of `MultiHeadAttention`, except `rotary`, `query_key_norm`, `num_key_value_heads` and
            `window`. `dropout` applies to full attention only, as in the reference.

    Raises:
        InputError: an unsupported argument of `MultiHeadAttention`; a causal mask; or, in training, texts of a length
            that is unknown when TensorFlow traces the layer.

    Reference: Zaheer et al. 2020, arXiv:2007.14062, section 2; `transformers.models.big_bird`.
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        blocks: SparseBlocks | dict[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, hidden_dim, **kwargs)
        self.check_features("rotary", "query_key_norm", "num_key_value_heads", "window")
        self.blocks = SparseBlocks(**blocks) if isinstance(blocks, dict) else blocks
        self.spec = replace(self.spec, blocks=self.blocks)


@keras.saving.register_keras_serializable(PACKAGE)
class GatedAttention(MultiHeadAttention):
    """Attention whose joined heads are multiplied by a gate, `sigmoid(gate(query))`, before the output projection.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        kwargs: Arguments of `MultiHeadAttention`.

    Reference: `transformers.models.qwen3_5`.
    """

    def __init__(self, num_heads: int, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(num_heads, hidden_dim, **kwargs)
        self.gate = self._dense(num_heads * self.spec.head_dim, self.use_bias, "gate")

    def build(self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None) -> None:
        """Creates the weights for `(B, T, E)` queries, `(B, S, E')` keys, and `(B, S, E'')` values."""
        super().build(query_shape, key_value_shape, value_shape)
        build_once(self.gate, query_shape)

    def project_output(self, context: Tensor, query: Tensor, training: bool) -> Tensor:
        """Projects the gated heads to the output `(B, T, E)`."""
        return super().project_output(context * ops.sigmoid(self.gate(query)), query, training)
