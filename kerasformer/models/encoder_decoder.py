"""Backbone of encoder-decoders such as T5 and BART.

The file of an architecture defines its configuration, tensor names, heads, and the parts that differ from BART's.

Shape letters: `B` batch, `T` query length, `M` length of the encoded text, `G` key heads, `D` head size, `E` hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import (
    CacheSpec,
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Visibility,
    normalization,
)
from kerasformer.layers.blocks import Order
from kerasformer.layers.core import as_ids
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Shape, Tensor, scaled
from kerasformer.models.backbone import Backbone
from kerasformer.models.creation import normal
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat

Stack = Literal["encoder", "decoder"]


class EncoderDecoder(Backbone):
    """Base of encoder-decoder backbones.

    A subclass defines `rows`, and overrides the attributes, properties and `make_…` methods below where it differs. The
    layers are those of BART by default.

    Args:
        config: A configuration with `vocab_size`, `hidden_dim`, `num_layers`, `num_decoder_layers`, `num_heads`,
            `intermediate_dim`, `hidden_act`, `dropout`, `initializer_range`, and `max_length` for learned positions.
            Optional are `decoder_num_heads` and `decoder_intermediate_dim` (by default as in the encoder),
            `attention_dropout` and `activation_dropout` (`dropout` by default), and `epsilon` of the norms (1e-5 by
            default).
        encoder_only: Whether to omit the decoder; the tensors of a checkpoint's decoder are then ignored.
        kwargs: `keras.layers.Layer` arguments.

    Attributes:
        norm: Kind of all norms, `"layer_norm"` or `"rms_norm"`.
        learned_positions: Whether each stack adds a learned vector for each of `config.max_length` positions.
        position_offset: Row of a position table that belongs to position 0.
        order: What layers normalize, see `EncoderLayer`.
        embedding_norm: Whether the embeddings of both stacks are normalized.
        final_norm: Whether the output of both stacks is normalized.
        output_dropout: Whether dropout is applied to the output of both stacks.
        batch_dependent: Whether the answer for a text depends on the other texts of its batch.

    Call arguments:
        ids: Input ids of the encoder, `(B, M)` int32.
        attention_mask: 1 for real tokens, `(B, M)`.
        flags: `return_hidden_states` and `return_attention` of `Encoder`.

    Returns:
        Hidden states of the encoder, `(B, M, E)`, or the dictionary of `Encoder`.
    """

    input_arrays = (INPUT_IDS, ATTENTION_MASK)
    norm: ClassVar[str] = "layer_norm"
    learned_positions: ClassVar[bool] = False
    position_offset: ClassVar[int] = 0
    order: ClassVar[Order] = "post_norm"
    embedding_norm: ClassVar[bool] = False
    final_norm: ClassVar[bool] = False
    output_dropout: ClassVar[bool] = False
    batch_dependent: ClassVar[bool] = False

    def __init__(self, config: Any, encoder_only: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.encoder_only = encoder_only
        self.tokens = Embedding(config.vocab_size, config.hidden_dim, self.token_initializer, name="tokens")
        self.decoder_tokens = None
        if self.decoder_vocab_size is not None and not encoder_only:
            size = self.decoder_vocab_size, config.hidden_dim
            self.decoder_tokens = Embedding(*size, self.token_initializer, name="decoder_tokens")
        self.dropout = Dropout(config.dropout, name="dropout")
        self.encoder_positions = self.make_positions("encoder")
        self.encoder_embeddings_norm = self._norm("encoder_embeddings_norm", self.embedding_norm)
        self.encoder_bias = self.make_position_bias("encoder")
        layers = [self.make_layer("encoder", index) for index in range(config.num_layers)]
        self.encoder = Encoder(layers, self._norm("final_norm", self.final_norm), name="encoder")
        if encoder_only:
            return
        self.decoder_positions = self.make_positions("decoder")
        self.decoder_embeddings_norm = self._norm("decoder_embeddings_norm", self.embedding_norm)
        self.decoder_bias = self.make_position_bias("decoder")
        layers = [self.make_layer("decoder", index) for index in range(config.num_decoder_layers)]
        self.decoder = Decoder(layers, self._norm("final_norm", self.final_norm), name="decoder")

    def checkpoint_names(self) -> Names:
        """Returns the names of the tensors in checkpoints; a backbone without decoder ignores those of the decoder."""
        return replace(self.names, ignored=(*self.names.ignored, r"decoder\..*")) if self.encoder_only else self.names

    @property
    def decoder_vocab_size(self) -> int | None:
        """Number of rows of separate token embeddings of the decoder; `None` if both stacks share a table."""
        return None

    @property
    def output_tokens(self) -> Embedding:
        """The token embeddings of the decoder, to which an output may be tied."""
        return self.tokens if self.decoder_tokens is None else self.decoder_tokens

    @property
    def embedding_scale(self) -> float:
        """Factor of the token embeddings at the input."""
        return 1.0

    @property
    def epsilon(self) -> float:
        """Epsilon of all norms."""
        return float(getattr(self.config, "epsilon", 1e-5))

    @property
    def initializer(self) -> LayerConfig:
        """Initializer of all kernels; serialized, so that each draws different random numbers."""
        return normal(self.config.initializer_range)

    @property
    def token_initializer(self) -> LayerConfig:
        """Initializer of the token embeddings."""
        return self.initializer

    def make_positions(self, stack: Stack) -> keras.layers.Layer | None:
        """Creates a layer that maps positions to vectors, such as `SinusoidalPositions`; optional."""
        if not self.learned_positions:
            return None
        count = self.config.max_length + self.position_offset
        return Embedding(count, self.config.hidden_dim, self.initializer, name=f"{stack}_positions")

    def position_rows(self, stack: Stack, ids: Tensor, visibility: Visibility) -> Tensor:
        """Returns the argument of the layer of positions for each token, int32 `(B, T)` or `(1, T)`.

        Args:
            stack: The stack that reads the tokens.
            ids: `(B, T)` int32.
            visibility: Slots and positions of the tokens, and the `key_mask` of the encoder.
        """
        index = visibility.query_positions(ops.shape(ids)[1])
        return index + self.position_offset if self.position_offset else index

    def make_position_bias(self, stack: Stack) -> keras.layers.Layer | None:
        """Creates a layer that maps slots of queries and keys to scores, such as `RelativePositionBias`; optional."""
        return None

    def layer_arguments(self, stack: Stack, index: int) -> LayerArguments:
        """Returns the arguments that the layers of both stacks have in common."""
        return {
            "attention": self.make_attention(stack, "attention", index=index),
            "feed_forward": self.make_feed_forward(stack),
            "norm": self.norm,
            "epsilon": self.epsilon,
            "order": self.order,
            "dropout": self.config.dropout,
            "name": f"layer_{index}",
        }

    def make_layer(self, stack: Stack, index: int) -> EncoderLayer:
        """Creates the layer of this index, named `layer_{index}`; layers may differ."""
        arguments = self.layer_arguments(stack, index)
        if stack == "encoder":
            return EncoderLayer(**arguments)
        return DecoderLayer(**arguments, cross_attention=self.make_attention(stack, "cross_attention", index=index))

    def make_attention(
        self,
        stack: Stack,
        name: str,
        *,
        index: int,
        kind: type[MultiHeadAttention] = MultiHeadAttention,
        **options: Any,
    ) -> MultiHeadAttention:
        """Creates the self attention or cross attention of a layer.

        Args:
            stack: The stack of the layer.
            name: `"attention"` or `"cross_attention"`.
            index: Index of the layer, for subclasses whose layers differ.
            kind: Class of the attention.
            options: Further arguments of the attention.
        """
        num_heads = self._value("num_heads", stack)
        dropout = getattr(self.config, "attention_dropout", self.config.dropout)
        arguments = {"dropout": dropout, "kernel_initializer": self.initializer, "name": name, **options}
        return kind(num_heads, self.config.hidden_dim, **arguments)

    def make_feed_forward(self, stack: Stack, **options: Any) -> FeedForward:
        """Creates the feed-forward network of a layer; `options` are further arguments of it."""
        sizes = self.config.hidden_dim, self._value("intermediate_dim", stack)
        dropout = getattr(self.config, "activation_dropout", self.config.dropout)
        arguments = {"dropout": dropout, "kernel_initializer": self.initializer, "name": "feed_forward", **options}
        return FeedForward(*sizes, self.config.hidden_act, **arguments)

    def _value(self, name: str, stack: Stack) -> int:
        """Returns a size from the configuration, which may differ in the decoder."""
        size = getattr(self.config, f"decoder_{name}", None) if stack == "decoder" else None
        return getattr(self.config, name) if size is None else size

    @property
    def layer_counts(self) -> dict[Stack, int]:
        """Number of layers of each stack."""
        counts: dict[Stack, int] = {"encoder": self.config.num_layers, "decoder": self.config.num_decoder_layers}
        return {"encoder": counts["encoder"]} if self.encoder_only else counts

    def _norm(self, name: str, enabled: bool) -> keras.layers.Layer | None:
        return normalization(self.norm, self.epsilon, name=name) if enabled else None

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates all variables."""
        states = (None, None, self.config.hidden_dim)
        self.tokens.build((None, None))
        if self.decoder_tokens is not None:
            self.decoder_tokens.build((None, None))
        for stack in self.layer_counts:
            parts = {"positions": (None, None), "embeddings_norm": states, "bias": (None,)}
            for part, shape in parts.items():
                layer = getattr(self, f"{stack}_{part}")
                if layer is not None:
                    layer.build(shape)
            getattr(self, stack).build(states)

    def call(
        self, ids: Tensor, attention_mask: Tensor | None = None, training: bool = False, **flags: bool
    ) -> Tensor | Outputs:
        """Applies the encoder."""
        return self.encode(ids, attention_mask=attention_mask, training=training, visibility=None, **flags)

    def encode(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        training: bool = False,
        visibility: Visibility | None = None,
        **flags: bool,
    ) -> Tensor | Outputs:
        """Applies the encoder; arguments and result are those of the call, with a `visibility` instead of the mask."""
        if visibility is None:
            visibility = self.encoder_visibility(ids, attention_mask)
        return self._run("encoder", self.tokens, ids, visibility, training, flags)

    def encoder_visibility(self, ids: Tensor, attention_mask: Tensor | None) -> Visibility:
        """Returns which tokens of the text see each other; all of them by default.

        Args:
            ids: `(B, M)`.
            attention_mask: 1 for real tokens, `(B, M)`; optional.
        """
        return Visibility.of_text(ops.shape(ids)[1], attention_mask)

    def decode(
        self, ids: Tensor, visibility: Visibility | None = None, training: bool = False, **arguments: object
    ) -> Tensor | Outputs:
        """Applies the decoder.

        Args:
            ids: `(B, T)` int32.
            visibility: Slots of the tokens and of the keys; by default each token attends to itself and earlier tokens.
            training: Whether to apply dropout.
            arguments: `memory`, `memory_mask`, `caches`, `cross_caches` and the flags of `Decoder`.

        Returns:
            `(B, T, E)`, or the dictionary of `Decoder`.

        Raises:
            InputError: the backbone was created without a decoder.
        """
        if self.encoder_only:
            raise InputError(f"{type(self).__name__} was created without a decoder. Expected: encoder_only=False")
        if visibility is None:
            visibility = Visibility.of_text(ops.shape(ids)[1], causal=True)
        return self._run("decoder", self.output_tokens, ids, visibility, training, arguments)

    def _run(
        self,
        stack: Stack,
        tokens: Embedding,
        ids: Tensor,
        visibility: Visibility,
        training: bool,
        arguments: LayerArguments,
    ) -> Tensor | Outputs:
        """Embeds tokens and applies a stack."""
        positions, embeddings_norm, bias, layers = (
            getattr(self, name) for name in (f"{stack}_positions", f"{stack}_embeddings_norm", f"{stack}_bias", stack)
        )
        ids = as_ids(ids)
        x = scaled(tokens(ids), self.embedding_scale)
        if positions is not None:
            x = x + positions(self.position_rows(stack, ids, visibility))
        if embeddings_norm is not None:
            x = embeddings_norm(x)
        if bias is not None:
            visibility = visibility.with_bias(bias(visibility.query_slots, visibility.key_slots))
        x = self.dropout(x, training=training)
        states = layers(x, visibility=visibility, training=training, **arguments)
        if not self.output_dropout:
            return states
        if not isinstance(states, dict):
            return self.dropout(states, training=training)
        return {**states, "output": self.dropout(states["output"], training=training)}

    def shift_right(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Returns what the decoder reads when it learns to write a text: the text shifted by one, after a start token.

        Args:
            ids: Texts with their special tokens, padded on the right, `(B, T)` int32.
            attention_mask: 1 for real tokens, `(B, T)`; optional.
        """
        return ops.concatenate([ops.full_like(ids[:, :1], self.start_token_id), ids[:, :-1]], axis=1)

    @property
    def start_token_id(self) -> int | None:
        """The token before a text that `shift_right` shifts; `None` if it is the last token of the text."""
        start: int = self.config.generation_settings()["decoder_start_token_id"]
        return start

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Projects the encoded text to the cross-attention keys and values `(B, G, M, D)` of each decoder layer."""
        return [layer.cross_attention.project(memory) for layer in self.decoder.layers]

    def cache_specs(self) -> list[CacheSpec]:
        """Returns what each layer of the decoder keeps of earlier tokens."""
        return self.decoder.cache_specs()

    def memory_specs(self) -> list[CacheSpec]:
        """Returns what the cross attention of each layer keeps of the encoded text."""
        return self.decoder.memory_specs()

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "encoder_only": self.encoder_only}


COPIES = {f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")}
"""Copies of the shared token embeddings in checkpoints of T5, BART and similar models; see `Names`."""


PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
"""Names of the projections of attention in checkpoints of BART and similar models."""


def token_rows(backbone: EncoderDecoder) -> list[Row]:
    """Returns the rows of the token embeddings: one table of both stacks, or one of each."""
    shared = embedding("tokens", "shared")
    if backbone.decoder_vocab_size is None:
        return shared
    tables = embedding("tokens", "encoder.embed_tokens")
    if backbone.decoder_tokens is not None:
        tables += embedding("decoder_tokens", "decoder.embed_tokens")
    return [*tables, *(replace(row, copy=True) for row in shared)]


def bart_rows(
    backbone: EncoderDecoder,
    encoder_projections: Mapping[str, str] = PROJECTIONS,
    attention_bias: bool = True,
    final_norm: str = "layer_norm",
) -> list[Row]:
    """Returns the weight table with the names that BART, mBART, Marian, PEGASUS and M2M-100 share.

    It contains only the parts that the backbone has, without sinusoidal positions.

    Args:
        backbone: The backbone.
        encoder_projections: Names of the projections of the encoder's attention, if they differ from `PROJECTIONS`.
        attention_bias: Whether the projections of all attention have a bias.
        final_norm: Name of the final norm of a stack.
    """
    tables = token_rows(backbone)
    for stack, count in backbone.layer_counts.items():
        parts = {"attention": "self_attn", "cross_attention": "encoder_attn"}
        projections = encoder_projections if stack == "encoder" else PROJECTIONS
        layer = [*dense("feed_forward/intermediate", "fc1"), *dense("feed_forward/output", "fc2")]
        layer += norm("feed_forward_norm", "final_layer_norm")
        for part, tensor in list(parts.items())[: 1 + (stack == "decoder")]:
            layer += norm(f"{part}_norm", f"{tensor}_layer_norm")
            for path, projection in projections.items():
                layer += dense(f"{part}/{path}", f"{tensor}.{projection}", bias=attention_bias)
        tables += repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{stack}.layers.{{i}}."))
        if backbone.learned_positions:
            tables += embedding(f"{stack}_positions", f"{stack}.embed_positions")
        if backbone.embedding_norm:
            tables += norm(f"{stack}_embeddings_norm", f"{stack}.layernorm_embedding")
        if backbone.final_norm:
            tables += norm(f"{stack}/final_norm", f"{stack}.{final_norm}")
    return tables
