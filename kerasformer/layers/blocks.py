"""Encoder and decoder layers: attention and feed-forward with residual connections and norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.cache import LayerCache
from kerasformer.layers.core import PACKAGE, Composite, Dropout, build_once, packed, serialize_part, unpacked
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.norms import normalization
from kerasformer.layers.tensor import Tensor
from kerasformer.layers.visibility import Visibility


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(Composite):
    """Self attention, then feed-forward, each with a residual connection, a norm and dropout.

    Args:
        attention: The self attention: a `MultiHeadAttention`, or a layer with the same call arguments.
        feed_forward: The feed-forward.
        norm: `"layer_norm"` or `"rms_norm"`.
        epsilon: Epsilon of the norms.
        norm_first: Normalizes the input of attention and feed-forward (GPT-2, T5) rather than the residual sum (BERT).
        parallel: Attention and feed-forward both read the input of the layer, and their outputs are added to it
            together (GPT-J, GPT-NeoX); only with `norm_first`.
        dropout: Dropout rate on the outputs of attention and feed-forward.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        attention_mask: `True` or 1 attends: `(B, S)` for padding, `(B, T, S)` or `(B, H, T, S)`; axes may be 1.
        bias: Float, added to the scores.
        visibility: `Visibility` that all layers of a stack share, optional.
        cache: `LayerCache`, optional.
        count: Only this many first tokens are computed (`T` of the output); they still see all. A classifier that reads
            the first token needs no others from the last layer. Not with a cache, nor with rotary positions.
        attention_inputs: Further keyword arguments of the attention's call, optional.
        return_attention: Returns a dictionary of `output` and `attention`, the weights `(B, H, T, S)`.
        return_cache: Likewise with `cache`, the updated one.

    Returns:
        `(B, T, E)`, or the dictionary.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 3.1; norm first: Xiong et al. 2020, arXiv:2002.04745.
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: FeedForward,
        norm: str = "layer_norm",
        epsilon: float = 1e-5,
        norm_first: bool = False,
        parallel: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if parallel and not norm_first:
            raise InputError("A parallel layer normalizes its input. Expected: norm_first=True. Received: False")
        self.norm, self.epsilon = norm, epsilon
        self.norm_first, self.parallel, self.dropout = norm_first, parallel, dropout
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self.residual_dropout = Dropout(dropout, name="residual_dropout", dtype=self.dtype_policy)

    def _norm(self, name: str) -> keras.layers.Layer:
        return normalization(self.norm, self.epsilon, name=name, dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        for layer in (self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            build_once(layer, input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        visibility: Visibility | None = None,
        cache: LayerCache | None = None,
        count: int | None = None,
        attention_inputs: Mapping[str, Any] | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies the layer."""
        flags = {"training": training, "return_attention": return_attention, "return_cache": return_cache}
        query, key_value = self._normed(x, self.attention_norm), None
        if count is not None:
            key_value, x, query = query, x[:, :count], query[:, :count]
        y, states = attended(
            self.attention(
                query,
                key_value=key_value,
                attention_mask=attention_mask,
                bias=bias,
                visibility=visibility,
                cache=cache,
                **(attention_inputs or {}),
                **flags,
            )
        )
        return packed(self._output(x, y, training), return_attention or return_cache, **states)

    def _output(self, x: Tensor, attended: Tensor, training: bool) -> Tensor:
        """The layer's output from its input and that of the attention."""
        if not self.parallel:
            return self._feed(self._add(x, attended, self.attention_norm, training), training)
        y = self.feed_forward(self._normed(x, self.feed_forward_norm), training=training)
        return self._add(x, attended + y, self.feed_forward_norm, training)

    def _normed(self, x: Tensor, norm: keras.layers.Layer) -> Tensor:
        """The input of attention or feed-forward."""
        return norm(x) if self.norm_first else x

    def _feed(self, x: Tensor, training: bool) -> Tensor:
        y = self.feed_forward(self._normed(x, self.feed_forward_norm), training=training)
        return self._add(x, y, self.feed_forward_norm, training)

    def _add(self, x: Tensor, y: Tensor, norm: keras.layers.Layer, training: bool) -> Tensor:
        total = primitives.residual(x, self.residual_dropout(y, training=training))
        return total if self.norm_first else norm(total)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("norm", "epsilon", "norm_first", "parallel", "dropout")
        parts = ("attention", "feed_forward")
        own = {name: getattr(self, name) for name in names}
        own |= {name: serialize_part(getattr(self, name)) for name in parts}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EncoderLayer:
        """A layer from `get_config`."""
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("attention", "feed_forward", "cross_attention")
            if config.get(name) is not None
        }
        return cls(**{**config, **parts})


@keras.saving.register_keras_serializable(PACKAGE)
class DecoderLayer(EncoderLayer):
    """An `EncoderLayer` that may also attend to a memory, the encoded text, between self attention and feed-forward.

    Args:
        attention: The self attention; the caller's mask or visibility makes it causal.
        feed_forward: The feed-forward.
        cross_attention: Attention to the memory; `None` in a decoder-only model.
        kwargs: As in `EncoderLayer`.

    Call arguments:
        x: `(B, T, E)`.
        memory: `(B, M, E)`, or `None` where there is no cross attention or its cache is complete.
        attention_mask: `True` attends: `(B, T, S)` or `(B, H, T, S)`, of which axes may be 1.
        bias: Float, added to the scores of the self attention.
        memory_mask: `True` or 1 attends: `(B, M)` for padding, `(B, T, M)` or `(B, H, T, M)`.
        visibility: `Visibility` of the self attention, optional.
        memory_visibility: `Visibility` of the cross attention, optional.
        cache: `LayerCache` of the self attention.
        cross_cache: `LayerCache` of the cross attention.
        return_attention: Returns a dictionary of `output`, `attention` `(B, H, T, S)` and `cross_attention`
            `(B, H, T, M)`.
        return_cache: Likewise with `cache` and `cross_cache`, the updated ones.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: a memory without cross attention, cross attention without a memory, or a mask of padding alone,
            with which tokens would see those after them.

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
            raise InputError("A parallel layer has no cross attention. Expected: cross_attention=None")
        self.cross_attention = cross_attention
        self.cross_attention_norm: Any = None if cross_attention is None else self._norm("cross_attention_norm")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        super().build(input_shape)
        if self.cross_attention is not None:
            build_once(self.cross_attention, input_shape)
            build_once(self.cross_attention_norm, input_shape)

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
        attention_inputs: Mapping[str, Any] | None = None,
        training: bool = False,
        return_attention: bool = False,
        return_cache: bool = False,
    ) -> Any:
        """Applies the layer."""
        check_causal(attention_mask)
        check_memory(self.name, self.cross_attention is not None, memory, cross_cache)
        flags = {"training": training, "return_attention": return_attention, "return_cache": return_cache}
        y, states = attended(
            self.attention(
                self._normed(x, self.attention_norm),
                attention_mask=attention_mask,
                bias=bias,
                visibility=visibility,
                cache=cache,
                **(attention_inputs or {}),
                **flags,
            )
        )
        if self.cross_attention is not None:
            x = self._add(x, y, self.attention_norm, training)
            y, crossed = attended(
                self.cross_attention(
                    self._normed(x, self.cross_attention_norm),
                    key_value=memory,
                    attention_mask=memory_mask,
                    visibility=memory_visibility,
                    cache=cross_cache,
                    **flags,
                )
            )
            x = self._add(x, y, self.cross_attention_norm, training)
            states |= {f"cross_{name}": value for name, value in crossed.items()}
            output = self._feed(x, training)
        else:
            output = self._output(x, y, training)
        return packed(output, return_attention or return_cache, **states)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "cross_attention": serialize_part(self.cross_attention)}


def attended(result: Any) -> tuple[Tensor, dict[str, Any]]:
    """What an attention gave, and the rest of it."""
    found = unpacked(result)
    return found.pop("output"), found


def check_causal(mask: Tensor | None) -> None:
    """A decoder's mask says for each token which others it sees."""
    if mask is not None and len(mask.shape) == 2:
        raise InputError(
            "A decoder's attention_mask is (B, T, S) or (B, H, T, S): with padding alone, tokens would see those after "
            "them. Expected ops.logical_and(layers.causal_mask(T), layers.padding_mask(mask)). "
            f"Received: shape {tuple(mask.shape)}"
        )


def check_memory(name: str, attends: bool, memory: Tensor | None, cache: LayerCache | None) -> None:
    """A memory that no layer reads is an error, and so is a layer that has none to read."""
    if attends == (memory is not None or cache is not None):
        return
    expected, received = ("memory= or a cross cache", "neither") if attends else ("no memory", "one")
    state = "cross attention" if attends else "no cross attention"
    raise InputError(f"{name} has {state}. Expected: {expected}. Received: {received}")
