"""Backbone and configuration of encoders such as BERT: embeddings, bidirectional layers and an optional pooler.

The file of an architecture defines its configuration, tensor names, heads, and the parts that differ from BERT's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import (
    Dense,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    TransformerEmbeddings,
    Visibility,
)
from kerasformer.layers.core import unpacked
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Shape, Tensor, zero_padding
from kerasformer.models.backbone import Backbone
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.creation import normal
from kerasformer.models.text_inputs import POSITION_IDS, TEXT, TextInput
from kerasformer.models.weight_table import Row, dense, embedding, nested, norm

TOKENS = "embeddings.word_embeddings.weight"
"""Name of the token embeddings in checkpoints of BERT and of models that use its names."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Config):
    """Base of the configurations of encoders with the fields of BERT, whose defaults are those of `bert-base-uncased`.

    An architecture declares fields again if their defaults or valid ranges differ.

    Attributes:
        vocab_size: Number of tokens.
        hidden_dim: Size of the hidden states.
        num_layers: Number of layers.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the intermediate layer of the feed-forward network.
        hidden_act: Name of the activation of the feed-forward network.
        hidden_dropout: Dropout rate of the embeddings and of the outputs of attention and feed-forward.
        attention_dropout: Dropout rate of the attention weights.
        num_segments: Number of segment types.
        initializer_range: Standard deviation of random weights.
        tied: Whether the scores of masked words are products with the token embeddings.
        epsilon: Epsilon of the norms.
        pad_token_id: Id of the padding token.
    """

    vocab_size: Size = hf("vocab_size", 30522)
    hidden_dim: Size = hf("hidden_size", 768)
    num_layers: Layers = hf("num_hidden_layers", 12)
    num_heads: Size = hf("num_attention_heads", 12)
    intermediate_dim: Size = hf("intermediate_size", 3072)
    hidden_act: str = hf("hidden_act", "gelu")
    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.1)
    attention_dropout: Rate = hf("attention_probs_dropout_prob", 0.1)
    num_segments: Size = hf("type_vocab_size", 2)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-12)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)

    @property
    def head_dropout(self) -> float:
        """Dropout rate before a classifier."""
        return self.hidden_dropout


class BidirectionalEncoder(Backbone):
    """Base of encoder backbones.

    The methods `make_…` create the parts; an architecture overrides those that differ from BERT's.

    Args:
        config: A configuration with `vocab_size`, `max_length`, `hidden_dim`, `num_layers`, `num_heads`,
            `intermediate_dim`, `hidden_act`, `epsilon`, `hidden_dropout`, `attention_dropout`, `num_segments` and
            `initializer_range`; `embedding_dim` is optional.
        pooler: Whether to add a pooler, a dense layer over the first token.
        kwargs: `keras.layers.Layer` arguments.

    Attributes:
        attention_type: Class of the attention layers.
        layer_type: Class of the layers.
        pooler_activation: Activation of the pooler.
        zero_padding: Whether the embeddings of padding are 0.
        blind_padding: Whether padding attends to no token; otherwise it attends to the real tokens. The outputs differ
            if a head uses the first token and that is padding.

    Call arguments:
        ids: `(B, T)` int32.
        attention_mask: 1 for real tokens, `(B, T)`.
        visibility: The keys that each token attends to, instead of `attention_mask`; optional.
        count: Number of first tokens to compute in the last layer, all by default.
        slots: Slot of the only token of each row to compute in the last layer, int32 `(B,)`; optional, and only if
            `computes_single_tokens`.
        return_pooled: Returns a dictionary of `output` and `pooled`, the output of the pooler `(B, E)`.
        return_hidden_states: Returns a dictionary of `output` and `hidden_states`: the embeddings and the output of
            each layer, `(B, T, E)` each.
        return_attention: Returns a dictionary of `output` and `attentions`, `(B, H, T, T)` for each layer.
        arrays: Further arrays of `input_arrays` for the embeddings, `(B, T)` int32, by the names of their arguments.

    Returns:
        `(B, T, E)`, or the dictionary.

    Raises:
        InputError: `return_pooled` without a pooler.
    """

    input_arrays: ClassVar[tuple[TextInput, ...]] = (*TEXT, POSITION_IDS)
    attention_type: ClassVar[type[MultiHeadAttention]] = MultiHeadAttention
    layer_type: ClassVar[type[EncoderLayer]] = EncoderLayer
    pooler_activation: ClassVar[str] = "tanh"
    zero_padding: ClassVar[bool] = False
    blind_padding: ClassVar[bool] = False

    def __init__(self, config: Any, pooler: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.embeddings = self.make_embeddings()
        schedule = self.schedule
        layers = [self.make_layer(index) for index in range(max(schedule, default=-1) + 1)]
        self.encoder = Encoder(layers, self.make_final_norm(), schedule=schedule, name="encoder")
        self.relative = self.make_relative()
        self.position_bias = self.make_position_bias()
        self.pooler = self.make_pooler() if pooler else None

    @property
    def initializer(self) -> LayerConfig:
        """Initializer of all kernels and tables; serialized, so that each draws different random numbers."""
        return normal(self.config.initializer_range)

    @property
    def layer_dim(self) -> int:
        """Size of the states in a layer, on which attention and feed-forward network work."""
        size: int = self.config.hidden_dim
        return size

    @property
    def projected_dim(self) -> int | None:
        """Size of the embeddings if it differs from that of the hidden states, so that they are projected."""
        size: int | None = self.config.embedding_dim
        return None if size == self.config.hidden_dim else size

    @property
    def schedule(self) -> list[int]:
        """Indices of the layers in the order in which they are applied, which may repeat."""
        return list(range(self.config.num_layers))

    @property
    def computes_single_tokens(self) -> bool:
        """Whether the last layer can compute any single token.

        Rotary positions of queries alone, the blocks of sparse attention, and convolutions over tokens are not
        implemented.
        """
        layer = self.encoder.layers[self.schedule[-1]]
        spec = layer.attention.spec
        plain = layer.computes_single_tokens and type(layer.attention) is MultiHeadAttention
        return plain and self.relative is None and spec.rotary is None and spec.window is None

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates the embeddings, named `embeddings`; `options` are further arguments of `TransformerEmbeddings`."""
        config = self.config
        return TransformerEmbeddings(
            config.vocab_size,
            **{
                "max_length": config.max_length,
                "hidden_dim": config.hidden_dim,
                "embedding_dim": getattr(config, "embedding_dim", None),
                "num_segments": config.num_segments,
                "epsilon": config.epsilon,
                "dropout": config.hidden_dropout,
                "initializer": self.initializer,
                "name": "embeddings",
                **options,
            },
        )

    def make_layer(self, index: int, kind: type[EncoderLayer] | None = None, **options: Any) -> EncoderLayer:
        """Creates the layer of this index, named `layer_{index}`.

        Args:
            index: Index of the layer.
            kind: Class of the layer; `layer_type` by default.
            options: Further arguments of the class.
        """
        config = self.config
        arguments = {"epsilon": config.epsilon, "dropout": config.hidden_dropout, "name": f"layer_{index}", **options}
        return (kind or self.layer_type)(self.make_attention(index), self.make_feed_forward(), **arguments)

    def make_feed_forward(self, **options: Any) -> FeedForward:
        """Creates the feed-forward network of a layer; `options` are further arguments of it."""
        config = self.config
        arguments = {"kernel_initializer": self.initializer, "name": "feed_forward", **options}
        return FeedForward(self.layer_dim, config.intermediate_dim, config.hidden_act, **arguments)

    def make_attention(self, index: int) -> MultiHeadAttention:
        """Creates the attention of the layer of this index, named `attention`."""
        config = self.config
        return self.attention_type(
            config.num_heads,
            self.layer_dim,
            dropout=config.attention_dropout,
            kernel_initializer=self.initializer,
            name="attention",
            **self.attention_options(index),
        )

    def attention_options(self, index: int) -> LayerArguments:
        """Returns further arguments of the attention of the layer of this index."""
        return {}

    def make_pooler(self) -> keras.layers.Layer:
        """Creates the layer over the first token `(B, E)`, named `pooler`."""
        return Dense(
            self.config.hidden_dim,
            activation=self.pooler_activation,
            kernel_initializer=self.initializer,
            name="pooler",
        )

    def make_relative(self) -> keras.layers.Layer | None:
        """Creates a layer named `relative` that returns further arguments of the call of each attention; optional.

        It is called with the embeddings `(B, T, E)` and may return relative position embeddings, for example.
        """
        return None

    def make_position_bias(self) -> keras.layers.Layer | None:
        """Creates a layer that maps slots of queries and keys to scores, such as `RelativePositionBias`; optional.

        It is named `position_bias`, and all layers share its scores.
        """
        return None

    def make_final_norm(self) -> keras.layers.Layer | None:
        """Creates a norm of the output of the last layer, named `final_norm`; optional."""
        return None

    def make_visibility(self, ids: Tensor, attention_mask: Tensor | None) -> Visibility:
        """Returns the keys that each token attends to, by default all real tokens."""
        return Visibility(key_mask=attention_mask)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates all variables."""
        shape = (None, None, self.config.hidden_dim)
        self.embeddings.build((None, None))
        for part in (self.encoder, self.relative, self.position_bias, self.pooler):
            if part is not None:
                part.build(shape)

    def call(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        visibility: Visibility | None = None,
        count: int | None = None,
        slots: Tensor | None = None,
        training: bool = False,
        return_pooled: bool = False,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        **arrays: Tensor | None,
    ) -> Tensor | Outputs:
        """Applies the backbone."""
        x = self.embeddings(ids, training=training, attention_mask=attention_mask, **arrays)
        if visibility is None:
            visibility = self.make_visibility(ids, attention_mask)
        if arrays.get("positions") is not None:  # rotary positions are part of the attention
            visibility = replace(visibility, positions=arrays["positions"])
        if self.position_bias is not None:
            every = ops.arange(ops.shape(ids)[1], dtype="int32")
            visibility = visibility.with_bias(self.position_bias(every, every))
        if self.zero_padding and attention_mask is not None:
            x = zero_padding(x, attention_mask)
        if self.blind_padding and attention_mask is not None:
            visibility = replace(visibility, query_mask=attention_mask)
        states = self.encoder(
            x,
            visibility=visibility,
            count=count,
            slots=slots,
            attention_inputs=None if self.relative is None else self.relative(x, training=training),
            training=training,
            return_hidden_states=return_hidden_states,
            return_attention=return_attention,
        )
        if not return_pooled:
            return states
        if self.pooler is None:
            raise InputError(f"{type(self).__name__} was created without a pooler. Expected: pooler=True")
        states = unpacked(states)
        return {**states, "pooled": self.pooler(states["output"][:, 0])}

    def rows(self) -> list[Row]:
        """Returns the weight table, in the names of BERT."""
        layers = self.layer_rows(self.layer_table(), "encoder.layer.{}.".format)
        return [*self.embedding_rows(), *layers, *self.pooler_rows("pooler.dense")]

    def layer_table(self) -> list[Row]:
        """Returns the rows of one layer, in the names of BERT."""
        return bert_layer_table()

    def embedding_rows(self, projection: str = "") -> list[Row]:
        """Returns the rows of the embeddings in the names of BERT; `projection` names the tensor of the projection."""
        tables = [
            *embedding("tokens", "word_embeddings"),
            *(embedding("positions", "position_embeddings") if self.embeddings.positions is not None else []),
            *(embedding("segments", "token_type_embeddings") if self.embeddings.segments is not None else []),
            *norm("norm", "LayerNorm"),
        ]
        rows = nested(tables, "embeddings/", "embeddings.")
        layer = self.embeddings.token_projection or self.embeddings.projection
        return rows if layer is None else rows + dense(f"embeddings/{layer.name}", projection, bias=layer.use_bias)

    def layer_rows(self, rows: Iterable[Row], prefix: Callable[[int], str]) -> list[Row]:
        """Repeats the rows of a layer for all layers; `prefix` returns the prefix of the tensors of a layer."""
        rows = list(rows)
        indices = range(len(self.encoder.layers))
        return [row for index in indices for row in nested(rows, f"encoder/layer_{index}/", prefix(index))]

    def pooler_rows(self, tensor: str) -> list[Row]:
        """Returns the rows of the pooler, if there is one with weights."""
        return dense("pooler", tensor) if isinstance(self.pooler, Dense) else []

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "pooler": self.pooler is not None}


def layer_table(attention: Sequence[str], feed_forward: Sequence[str]) -> list[Row]:
    """Returns the rows of an `EncoderLayer`, from the names of its tensors without `.weight` and `.bias`.

    Args:
        attention: Names for the query, key, value, output and norm of the attention; only the last two for a model with
            other rows of query, key and value, such as one tensor for all.
        feed_forward: Names for the first layer, the second layer and the norm of the feed-forward network.
    """
    *projections, output, attention_norm = attention
    inner, outer, feed_forward_norm = feed_forward
    paths = _PROJECTIONS if projections else ()
    rows = [row for path, name in zip(paths, projections, strict=True) for row in dense(path, name)]
    rows += [*dense("attention/output", output), *norm("attention_norm", attention_norm)]
    rows += [*dense("feed_forward/intermediate", inner), *dense("feed_forward/output", outer)]
    return [*rows, *norm("feed_forward_norm", feed_forward_norm)]


def bert_layer_table(projection: str | None = "attention.self.{}") -> list[Row]:
    """Returns the rows of an `EncoderLayer` with the names of BERT.

    Args:
        projection: Names of query, key and value, with a placeholder; `None` to omit their rows.
    """
    names = [] if projection is None else [projection.format(name) for name in ("query", "key", "value")]
    return layer_table(
        (*names, "attention.output.dense", "attention.output.LayerNorm"),
        ("intermediate.dense", "output.dense", "output.LayerNorm"),
    )


_PROJECTIONS = ("attention/query", "attention/key", "attention/value")
