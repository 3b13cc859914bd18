"""Encoder and decoder layers: attention and feed-forward with residual connections and norms.

Called by `stacks`, once for each layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack, get_args

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import (
    PACKAGE,
    Composite,
    Configured,
    Dropout,
    build_once,
    packed,
    unpacked,
)
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.layer_types import LayerOptions, Outputs
from kerasformer.layers.norms import normalization
from kerasformer.layers.tensor import Tensor, Tokens, scaled, zero_padding
from kerasformer.layers.visibility import Visibility, visibility_of

Order = Literal["post_norm", "pre_norm", "feed_forward_pre_norm", "sandwich_norm", "parallel", "shared_parallel"]
"""Values of `EncoderLayer.order`."""


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(Configured, Composite):
    """Transformer encoder layer: self attention and feed-forward, each with a residual connection, norm and dropout.

    Args:
        attention: The self attention: a `MultiHeadAttention`, or a layer with the same call arguments.
        feed_forward: The feed-forward network.
        norm: Kind of the norms, see `normalization`.
        epsilon: Epsilon of the norms.
        feed_forward_epsilon: Epsilon of the norm of the feed-forward network; `epsilon` by default.
        order: What is normalized: the residual sums (`"post_norm"`, BERT); the inputs of attention and feed-forward
            (`"pre_norm"`, GPT-2, T5), of the feed-forward alone (`"feed_forward_pre_norm"`, the first layer of
            ModernBERT, whose input is normalized already), or their inputs and outputs (`"sandwich_norm"`, Gemma 2).
            With `"parallel"`, attention and feed-forward both take the input of the layer, each with a norm, and the
            sum of their outputs is added to it (GPT-NeoX); with `"shared_parallel"`, after one norm (GPT-J, Phi).
        dropout: Dropout rate on the outputs of attention and feed-forward.
        norm_bias: Whether layer norms have a bias.
        residual_scale: Factor of the outputs of attention and feed-forward that are added to their inputs (Granite).
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, `(B, T, S)` or `(B, H, T, S)`, where axes may have
            size 1.
        bias: Added to the scores, float, broadcastable to `(B, H, T, S)`; optional.
        visibility: `Visibility` shared by all layers of a stack, optional.
        cache: `LayerCache`, optional.
        count: Number of first tokens to compute (`T` of the output), all by default; they still attend to all tokens.
            A classifier that uses only the first token needs no others from the last layer. Unsupported with a cache
            or rotary positions.
        slots: Slot of the only token of each row to compute, int32 `(B,)`, instead of `count`; likewise, and only for
            layers with `computes_single_tokens`.
        attention_inputs: Further keyword arguments of the attention's call, optional.
        return_attention: Returns a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Returns a dictionary of `output` and `cache`, the updated cache.

    Returns:
        `(B, T, E)`, or the dictionary.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.1; norm first: Xiong et al. 2020, arXiv:2002.04745.
    """

    computes_single_tokens: ClassVar[bool] = True
    """Whether a call supports `slots`."""

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: FeedForward,
        norm: str = "layer_norm",
        epsilon: float = 1e-5,
        order: Order = "post_norm",
        dropout: float = 0.0,
        norm_bias: bool = True,
        feed_forward_epsilon: float | None = None,
        residual_scale: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if order not in get_args(Order):
            raise InputError(f"order must be one of {', '.join(get_args(Order))}. Received: order={order!r}")
        self.norm, self.epsilon, self.feed_forward_epsilon = norm, epsilon, feed_forward_epsilon
        self.order, self.dropout, self.norm_bias = order, dropout, norm_bias
        self.residual_scale = residual_scale
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = self.feed_forward_norm = None
        self.attention_output_norm = self.feed_forward_output_norm = None
        if order != "feed_forward_pre_norm":
            self.attention_norm = self._norm("attention_norm")
        if order != "shared_parallel":
            self.feed_forward_norm = self._norm("feed_forward_norm", feed_forward_epsilon)
        if order == "sandwich_norm":
            self.attention_output_norm = self._norm("attention_output_norm")
            self.feed_forward_output_norm = self._norm("feed_forward_output_norm")
        self.residual_dropout = Dropout(dropout, name="residual_dropout", dtype=self.dtype_policy)

    @property
    def parallel(self) -> bool:
        """Whether attention and feed-forward both take the input of the layer."""
        return self.order in ("parallel", "shared_parallel")

    def _norm(self, name: str, epsilon: float | None = None) -> keras.layers.Layer:
        epsilon = self.epsilon if epsilon is None else epsilon
        return normalization(self.norm, epsilon, self.norm_bias, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        norms = (self.attention_norm, self.feed_forward_norm, self.attention_output_norm, self.feed_forward_output_norm)
        for layer in (self.attention, self.feed_forward, *norms):
            if layer is not None:
                build_once(layer, input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        count: int | None = None,
        slots: Tensor | None = None,
        attention_inputs: Mapping[str, Tensor] | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        flags = {"training": training, "return_attention": return_attention, "return_cache": return_cache}
        tokens = Tokens(count, slots)
        residual, query, others = self.attended(x, tokens)
        if visibility is not None:
            visibility = visibility.of_tokens(tokens)
        y, states = split_output(
            self.attention(
                query,
                attention_mask=attention_mask,
                bias=bias,
                visibility=visibility,
                cache=cache,
                **others,
                **(attention_inputs or {}),
                **flags,
            )
        )
        output = self.finish(self._output(residual, query, y, training), x, tokens, visibility, training)
        return packed(output, return_attention or return_cache, **states)

    def attended(self, x: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns the tensors from which attention is computed; subclasses may project them.

        Args:
            x: Input of the layer, `(B, T, E)`.
            tokens: The `N` tokens to compute.

        Returns:
            `(input of the residual sum, queries, further tensors)` of `(B, N, E)` each; the further tensors
            are `(B, T, E)`, by their names in the call of the attention.
        """
        query = self._normed(x, self.attention_norm)
        return tokens.of(x), tokens.of(query), {} if tokens.all else {"key_value": query}

    def finish(
        self, output: Tensor, inputs: Tensor, tokens: Tokens, visibility: Visibility | None, training: bool
    ) -> Tensor:
        """Returns the output of the layer; subclasses may add further computations.

        Args:
            output: `(B, N, E)`, computed by attention and feed-forward.
            inputs: Input of the layer, `(B, T, E)`.
            tokens: The `N` tokens to compute.
            visibility: That of these tokens.
            training: As in the call.
        """
        return output

    def _output(self, x: Tensor, query: Tensor, attention_output: Tensor, training: bool) -> Tensor:
        """Returns the output of the layer from its input, and the input and the output of the attention."""
        total = self._attend(x, attention_output, training)
        if not self.parallel:
            return self._feed(total, training)
        y = self.feed_forward(query if self.feed_forward_norm is None else self.feed_forward_norm(x), training=training)
        return self._add(total, y, self.feed_forward_norm, training)

    def _normed(self, x: Tensor, norm: keras.layers.Layer | None) -> Tensor:
        """Returns the input of attention or feed-forward."""
        return x if norm is None or self.order == "post_norm" else norm(x)

    def _attend(self, x: Tensor, y: Tensor, training: bool) -> Tensor:
        """Returns the residual sum of the input and the output of the self attention."""
        y = y if self.attention_output_norm is None else self.attention_output_norm(y)
        return self._add(x, y, self.attention_norm, training)

    def _feed(self, x: Tensor, training: bool) -> Tensor:
        """Returns the residual sum of the input and the output of the feed-forward network."""
        y = self.feed_forward(self._normed(x, self.feed_forward_norm), training=training)
        y = y if self.feed_forward_output_norm is None else self.feed_forward_output_norm(y)
        return self._add(x, y, self.feed_forward_norm, training)

    def _add(self, x: Tensor, y: Tensor, norm: keras.layers.Layer | None, training: bool) -> Tensor:
        y = self.residual_dropout(y, training=training)
        total = primitives.residual(x, scaled(y, self.residual_scale))
        return total if norm is None or self.order != "post_norm" else norm(total)


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedEncoderLayer(EncoderLayer):
    """An `EncoderLayer` whose output is 0 for padding (XLM).

    Call arguments:
        visibility: As in `EncoderLayer`; padding has 0 in its `query_mask`, or in its `key_mask` without `query_mask`.
        others: As in `EncoderLayer`.
    """

    def finish(
        self, output: Tensor, inputs: Tensor, tokens: Tokens, visibility: Visibility | None, training: bool
    ) -> Tensor:
        """Sets the output of padding to 0."""
        if visibility is None:
            return output
        if visibility.query_mask is not None:
            return zero_padding(output, visibility.query_mask)
        return output if visibility.key_mask is None else zero_padding(output, tokens.of(visibility.key_mask))


@keras.saving.register_keras_serializable(PACKAGE)
class DecoderLayer(EncoderLayer):
    """Transformer decoder layer: an `EncoderLayer` with optional cross attention to a memory, the encoded text.

    Args:
        attention: The self attention. It is causal unless the mask or the visibility of a call specifies otherwise.
        feed_forward: The feed-forward network.
        cross_attention: Attention to the memory; `None` in a decoder-only model.
        kwargs: Arguments of `EncoderLayer`.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)`; `None` without cross attention, or if its cache is complete.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, or another mask with a row for all queries, is
            combined with the causal mask; `(B, T, S)` or `(B, H, T, S)` with a row for each query replaces it.
        bias: Added to the scores of the self attention, float, broadcastable to `(B, H, T, S)`; optional.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        visibility: `Visibility` of the self attention, causal unless it has `causal=False`; optional.
        memory_visibility: `Visibility` of the cross attention, optional.
        cache: `LayerCache` of the self attention, optional.
        cross_cache: `LayerCache` of the cross attention, optional.
        attention_inputs: Further keyword arguments of the self attention's call, optional.
        return_attention: Returns a dictionary of `output`, `attention` `(B, H, T, S)` and `cross_attention`
            `(B, H, T, M)`.
        return_cache: Returns a dictionary of `output`, `cache` and `cross_cache`, the updated caches.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: a memory without cross attention, or cross attention without a memory.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.1.
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: FeedForward,
        cross_attention: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, feed_forward, **kwargs)
        if self.parallel and cross_attention is not None:
            raise InputError("A parallel layer cannot have cross attention. Expected: cross_attention=None")
        self.cross_attention = cross_attention
        self.cross_attention_norm: Any = None if cross_attention is None else self._norm("cross_attention_norm")
        self.cross_attention_output_norm: Any = None
        if cross_attention is not None and self.order == "sandwich_norm":
            self.cross_attention_output_norm = self._norm("cross_attention_output_norm")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        super().build(input_shape)
        for layer in (self.cross_attention, self.cross_attention_norm, self.cross_attention_output_norm):
            if layer is not None:
                build_once(layer, input_shape)

    def call(  # type: ignore[override]  # the memory is its second input, as in PyTorch
        self,
        x: Tensor,
        memory: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        memory_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        memory_visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        attention_inputs: Mapping[str, Tensor] | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Tensor | Outputs:
        """Applies the layer."""
        check_memory(self.name, self.cross_attention is not None, memory, cross_cache)
        flags = {"training": training, "return_attention": return_attention, "return_cache": return_cache}
        query = self._normed(x, self.attention_norm)
        visibility = decoder_visibility(visibility, attention_mask, bias, x, [cache])
        y, states = split_output(
            self.attention(query, visibility=visibility, cache=cache, **(attention_inputs or {}), **flags)
        )
        if self.cross_attention is not None:
            x = self._attend(x, y, training)
            y, cross_states = split_output(
                self.cross_attention(
                    self._normed(x, self.cross_attention_norm),
                    key_value=memory,
                    attention_mask=memory_mask,
                    visibility=memory_visibility,
                    cache=cross_cache,
                    **flags,
                )
            )
            y = y if self.cross_attention_output_norm is None else self.cross_attention_output_norm(y)
            x = self._add(x, y, self.cross_attention_norm, training)
            states |= {f"cross_{name}": value for name, value in cross_states.items()}
            output = self._feed(x, training)
        else:
            output = self._output(x, query, y, training)
        return packed(output, return_attention or return_cache, **states)


def split_output(result: Tensor | Outputs) -> tuple[Tensor, Outputs]:
    """Splits the result of a layer into its output and the other entries."""
    entries = unpacked(result)
    return entries.pop("output"), entries


def decoder_visibility(
    visibility: Visibility | None,
    attention_mask: Tensor | None,
    bias: Tensor | None,
    x: Tensor,
    caches: Sequence[LayerCache | None],
) -> Visibility:
    """Combines the arguments of a decoder's call to a `Visibility`, which is causal unless they specify otherwise.

    Args:
        visibility: A visibility, optional.
        attention_mask: A mask, optional.
        bias: Added to the scores, optional.
        x: `(B, T, E)`.
        caches: The caches of the self attention, or `None` for each.
    """
    cached = any(cache is not None for cache in caches)
    visibility = visibility_of(visibility, attention_mask, bias, x, None if cached else x.shape[1])
    return visibility.causal_unless_specified(x.shape[1] or ops.shape(x)[1], caches)


def check_memory(name: str, attends: bool, memory: Tensor | None, cache: LayerCache | None) -> None:
    """Raises an error for a memory without cross attention, and for cross attention without a memory."""
    if attends == (memory is not None or cache is not None):
        return
    expected, received = ("memory= or a cross cache", "neither") if attends else ("no memory", "one")
    state = "cross attention" if attends else "no cross attention"
    raise InputError(f"{name} has {state}. Expected: {expected}. Received: {received}")
