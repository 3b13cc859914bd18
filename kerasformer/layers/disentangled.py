"""Layers of DeBERTa: disentangled attention, and an encoder layer with a convolution over tokens.

Disentangled attention represents the content of tokens and their relative positions by separate vectors.

Shape letters: `B` batch, `T` query length, `S` key length, `H` heads, `D` head size, `E` hidden, `R` relative
embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import keras
import numpy as np
from keras import backend, ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.blocks import EncoderLayer
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Configured, Dense, Dropout, build_once, packed
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.layer_types import Initializer, LayerOptions, Outputs
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.tensor import Shape, Tensor, Tokens, shifted, split_heads, zero_padding
from kerasformer.layers.visibility import Visibility, visibility_of

TERMS = ("c2p", "p2c")
"""Terms of the scores in addition to content-to-content: content-to-position and position-to-content."""


@dataclass(frozen=True)
class RelativeText:
    """Relative embeddings of a text of `T` tokens, shared by all layers.

    The distance of a pair is the index of the query minus the index of the key.

    Attributes:
        embeddings: Vectors `(R, E)`.
        descending: Row of `embeddings` for each distance from `T - 1` down to `1 - T`, and a last entry that is unused,
            int32 `(2 * T,)`.
        ascending: Row of `embeddings` for each distance from `1 - T` up to `T - 1`, and a last entry that is unused.
    """

    embeddings: Tensor
    descending: Tensor
    ascending: Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class RelativeEmbeddings(Configured, Composite):
    """Embeddings of the distance between two tokens; large distances share vectors in buckets of growing size.

    Args:
        max_length: Maximum length of a text, in tokens.
        hidden_dim: Size `E` of a vector.
        max_distance: Distance from which on all pairs of one direction share a vector; `max_length` if not positive.
        num_buckets: Number of vectors for each direction, half of which represent one distance each; if not positive,
            there are `max_distance` vectors for one distance each.
        epsilon: Epsilon of a norm of the vectors; `None` for no norm.
        initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`, of which only the length is used.

    Returns:
        `{"relative": RelativeText}`, a call argument of `DisentangledAttention`.

    Raises:
        InputError: `num_buckets` is outside the range that `max_distance` allows.

    Reference: He et al. 2021, arXiv:2006.03654, section 3.1; buckets: `transformers.models.deberta_v2`.
    """

    def __init__(
        self,
        max_length: int,
        hidden_dim: int,
        max_distance: int = 0,
        num_buckets: int = 0,
        epsilon: float | None = None,
        initializer: Initializer = "random_normal",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        max_distance = max_distance if max_distance > 0 else max_length
        num_buckets = max(num_buckets, 0)
        if num_buckets and not 2 <= num_buckets < 2 * (max_distance - 1):
            raise InputError(
                "num_buckets must be at least 2 and less than 2 * (max_distance - 1). "
                f"Received: num_buckets={num_buckets}, max_distance={max_distance}"
            )
        self.max_length, self.hidden_dim = max_length, hidden_dim
        self.max_distance, self.num_buckets, self.epsilon = max_distance, num_buckets, epsilon
        self.initializer = keras.initializers.get(initializer)
        self.span = num_buckets or max_distance
        # A lookup table is exact on every runtime, whereas a logarithm may be rounded across the bounds of a bucket.
        distances = np.arange(1 - max_length, max_length + 1)
        buckets = log_buckets(distances, num_buckets, max_distance) if num_buckets else distances
        self._rows = np.clip(buckets + self.span, 0, 2 * self.span - 1).astype("int32")
        self.norm = None
        if epsilon is not None:
            self.norm = LayerNormalization(epsilon, name="norm", dtype=self.dtype_policy)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the table `(2 * span, E)`."""
        shape = (2 * self.span, self.hidden_dim)
        self.embeddings = self.add_weight(shape=shape, initializer=self.initializer, name="embeddings")
        if self.norm is not None:
            build_once(self.norm, shape)

    def call(self, x: Tensor, training: bool = False) -> dict[str, RelativeText]:
        """Selects the vectors of the distances that occur in the text."""
        length, longest = ops.shape(x)[1], self.max_length
        table = ops.cast(self.embeddings, self.compute_dtype)  # a tensor; `convert_to_tensor` may return the variable
        # Distances from 1 - T to T; the reversed table also ends with the unused entry.
        ascending, first = self._rows[longest - length : longest + length] if isinstance(length, int) else None, 0
        if ascending is not None:
            first, last = int(ascending[:-1].min()), int(ascending[:-1].max())
            table = table[first : last + 1]
            ascending = np.clip(ascending - first, 0, last - first)
            descending = np.append(ascending[-2::-1], ascending[-1])
        else:
            tables = ops.convert_to_tensor(self._rows), ops.convert_to_tensor(self._descending)
            ascending, descending = (rows[longest - length : longest + length] for rows in tables)
        if self.norm is not None:
            table = self.norm(table)
        return {"relative": RelativeText(table, ops.convert_to_tensor(descending), ops.convert_to_tensor(ascending))}

    @property
    def _descending(self) -> np.ndarray:
        return np.append(self._rows[-2::-1], self._rows[-1])


def log_buckets(distances: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """Returns the bucket of each distance, int64: the distance itself up to half of `num_buckets`, then logarithmic.

    Computes in float32 and in the order of the reference, so that results are rounded alike.
    """
    middle = num_buckets // 2
    size = np.abs(distances)
    far = np.maximum(size, middle).astype("float32") / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((max_distance - 1) / middle)) * np.float32(middle - 1)
    return np.where(size <= middle, distances, np.sign(distances) * (np.ceil(steps).astype("int64") + middle))


@keras.saving.register_keras_serializable(PACKAGE)
class DisentangledAttention(MultiHeadAttention):
    """Disentangled attention, whose scores are sums of content-to-content, content-to-position, position-to-content.

    Args:
        num_heads: Number of attention heads.
        hidden_dim: Size `E` of the output.
        terms: Names from `TERMS` to add, as a sequence or joined by `|`; scores are divided by
            `sqrt(D * (1 + number of terms))`. Other names are ignored, as in the reference.
        share_projections: Whether relative embeddings are projected like the text; otherwise they have the projections
            `relative_key` for `"c2p"`, with a bias if `key_bias` is true, and `relative_query` for `"p2c"`.
        positions: Whether there are relative embeddings; without them the terms change only the divisor.
        relative_dropout: Dropout rate of the relative embeddings.
        kwargs: Arguments of `MultiHeadAttention`, such as `dropout` and `key_bias` (false in version 1).

    Call arguments:
        query: `(B, T, E)`.
        key_value: `(B, S, E)`, of which `query` is the first `T` tokens; `query` itself by default.
        relative: `RelativeText` of the `S` tokens; required if `positions` is true.
        others: As in `MultiHeadAttention`, without a cache.

    Returns:
        `(B, T, E)`, or the dictionary of `MultiHeadAttention`.

    Raises:
        InputError: a call without the required `relative`.

    Reference: He et al. 2021, arXiv:2006.03654, section 3.1; `transformers.models.deberta` and `deberta_v2`.
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        terms: Sequence[str] | None = TERMS,
        share_projections: bool = False,
        positions: bool = True,
        relative_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        named = [name.strip() for name in terms.lower().split("|")] if isinstance(terms, str) else terms or ()
        terms = tuple(term for term in TERMS if term in named)
        kwargs.setdefault("scale", 1.0 / math.sqrt(hidden_dim // num_heads * (1 + len(terms))))
        super().__init__(num_heads, hidden_dim, **kwargs)
        self.terms, self.share_projections, self.positions = terms, share_projections, positions
        self.relative_dropout = relative_dropout
        projected = terms if positions and not share_projections else ()
        self.relative_key = self._dense(hidden_dim, self.key_bias, "relative_key") if "c2p" in projected else None
        self.relative_query = self._dense(hidden_dim, True, "relative_query") if "p2c" in projected else None
        self.embeddings_dropout = Dropout(relative_dropout, name="relative_dropout", dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_value_shape: Shape | None = None, value_shape: Shape | None = None) -> None:
        """Creates the weights for `(B, T, E)` queries, `(B, S, E)` keys, and `(B, S, E')` values."""
        super().build(query_shape, key_value_shape, value_shape)
        for layer in (self.relative_key, self.relative_query):
            if layer is not None:
                build_once(layer, (None, query_shape[-1]))

    def call(
        self,
        query: Tensor,
        key_value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
        value: Tensor | None = None,
        relative: RelativeText | None = None,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        memory = query if key_value is None else key_value
        value = memory if value is None else value
        visibility = visibility_of(visibility, attention_mask, bias, query, memory.shape[1])
        queries, keys, values = self.query(query), self.key(memory), self.value(value)
        scores = visibility.bias(backend.standardize_dtype(queries.dtype))  # rendered once for all layers
        if scores is not None and scores.shape[2] != 1:
            scores = scores[:, :, : ops.shape(query)[1]]
        if self.positions and self.terms:
            if relative is None:
                raise InputError(
                    "Disentangled attention requires relative embeddings. "
                    "Expected: relative=RelativeText. Received: None"
                )
            added = self._relative_scores(queries, keys, relative, training)
            scores = added if scores is None else added + scores
        visibility = Visibility(position_bias=scores)
        dropout = self._drop if training and self.dropout else None
        context, weights, _ = primitives.multi_head_attention(
            queries, keys, values, self.spec, visibility, None, dropout
        )
        return packed(
            self.project_output(context, query, training), return_attention or return_cache, attention=weights
        )

    def _relative_scores(self, queries: Tensor, keys: Tensor, relative: RelativeText, training: bool) -> Tensor:
        """Returns the scores of content-to-position and position-to-content, `(B, H, T, S)`."""
        count, length = ops.shape(queries)[1], ops.shape(keys)[1]
        embeddings = self.embeddings_dropout(relative.embeddings, training=training)
        scores = []
        if "c2p" in self.terms:
            # Starts at the largest distance of these queries, which may be only the first ones of the text.
            rows = self._heads((self.relative_key or self.key)(embeddings), relative.descending[length - count :])
            scores.append(by_distance(ops.matmul(split_heads(queries, self.spec.head_dim), rows), length))
        if "p2c" in self.terms:
            rows = self._heads((self.relative_query or self.query)(embeddings), relative.ascending[: length + count])
            transposed = by_distance(ops.matmul(split_heads(keys, self.spec.head_dim), rows), count)
            scores.append(ops.transpose(transposed, (0, 1, 3, 2)))
        return sum(scores[1:], scores[0])

    def _heads(self, rows: Tensor, index: Tensor) -> Tensor:
        """Returns the scaled rows `index` `(N,)` of `(R, H * D)`, split into heads: `(1, H, D, N)`."""
        selected = ops.take(rows * self.spec.scale, index, axis=0)
        shape = (1, ops.shape(selected)[0], self.spec.num_heads, self.spec.head_dim)
        return ops.transpose(ops.reshape(selected, shape), (0, 2, 3, 1))


def by_distance(scores: Tensor, columns: Tensor) -> Tensor:
    """Converts scores of distances to scores of pairs of tokens.

    Row `i` of the result starts at entry `T - 1 - i` of row `i` of `scores`, so that column `j` is the score of the
    distance `i - j`. Reshaping the flattened rows to rows that are one entry shorter shifts each by one more entry.

    Args:
        scores: `(B, H, T, T + S)`; the last entry of a row is unused.
        columns: Number `S` of columns.

    Returns:
        `(B, H, T, S)`.

    Reference: Dai et al. 2019, arXiv:1901.02860, appendix B.
    """
    batch, heads, rows, width = ops.shape(scores)
    flat = ops.reshape(scores, (batch, heads, rows * width))
    shifted = flat[:, :, rows - 1 : rows - 1 + rows * (width - 1)]
    return ops.reshape(shifted, (batch, heads, rows, width - 1))[:, :, :, :columns]


@keras.saving.register_keras_serializable(PACKAGE)
class ConvolutionEncoderLayer(EncoderLayer):
    """An `EncoderLayer` in parallel with a convolution over tokens: `norm(layer(x) + activation(conv(x)))`.

    Args:
        attention: The self attention.
        feed_forward: The feed-forward network.
        kernel_size: Number of tokens in the kernel of the convolution; odd.
        activation: Name of the activation of the convolution.
        kernel_initializer: A Keras initializer for the convolution; that of the feed-forward by default.
        kwargs: Arguments of `EncoderLayer`.

    Call arguments:
        x: `(B, T, E)`; padding must be 0, so that it does not affect the convolution.
        visibility: As in `EncoderLayer`; the output is 0 where `key_mask` is 0.
        others: As in `EncoderLayer`.

    Raises:
        InputError: `kernel_size` is not positive and odd.

    Reference: He et al. 2021, arXiv:2006.03654, section 4.1; `transformers.models.deberta_v2`.
    """

    computes_single_tokens = False

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: FeedForward,
        kernel_size: int = 3,
        activation: str = "tanh",
        kernel_initializer: Initializer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, feed_forward, **kwargs)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise InputError(f"kernel_size must be positive and odd. Received: kernel_size={kernel_size}")
        self.kernel_size, self.activation = kernel_size, activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer or feed_forward.kernel_initializer)
        self._activate = get_activation(activation)
        # A dense layer over concatenated neighbours, so that its kernel is stored and quantized as all matrices are.
        self.convolution = Dense(
            feed_forward.hidden_dim,
            kernel_initializer=keras.initializers.serialize(self.kernel_initializer),
            name="convolution",
            dtype=self.dtype_policy,
        )
        self.convolution_norm = self._norm("convolution_norm")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`; the kernel is `(kernel_size * E, E)`."""
        super().build(input_shape)
        build_once(self.convolution, (*input_shape[:-1], self.kernel_size * self.convolution.units))
        build_once(self.convolution_norm, input_shape)

    def finish(
        self, output: Tensor, inputs: Tensor, tokens: Tokens, visibility: Visibility | None, training: bool
    ) -> Tensor:
        """Adds the convolution of the inputs, and sets the output of padding to 0."""
        neighbors = ops.concatenate(shifted(inputs, self.kernel_size // 2, tokens.count), axis=-1)
        y = self._activate(self.residual_dropout(self.convolution(neighbors), training=training))
        output = self.convolution_norm(primitives.residual(output, y))
        if visibility is not None and visibility.key_mask is not None:
            output = zero_padding(output, tokens.of(visibility.key_mask))
        return output
