"""T5: an encoder reads a text, a decoder writes another; where tokens stand is told by their distances alone.

Paper: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
arXiv:1910.10683; gated feed-forward (1.1, Flan): Shazeer 2020, arXiv:2002.05202. Reference: `transformers.models.t5`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import keras
from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import (
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    RelativePositionBias,
    RMSNormalization,
    Visibility,
)
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Distance, Epsilon, Factor, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.pretrained import Backbone, by_task
from kerasformer.models.task_models import FeatureExtraction
from kerasformer.models.tensor_files import TensorFile
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    """Configuration of T5; the defaults are those of `t5-small`."""

    model_type = "t5"
    required = {"is_decoder": (False,)}
    ignored = frozenset({"classifier_dropout", "n_positions"})

    vocab_size: Size = hf("vocab_size", 32128)
    hidden_dim: Size = hf("d_model", 512, "hidden_size")
    head_dim: Size = hf("d_kv", 64)
    intermediate_dim: Size = hf("d_ff", 2048)
    num_layers: Layers = hf("num_layers", 6)
    decoder_layers: Layers | None = hf("num_decoder_layers", None)
    num_heads: Size = hf("num_heads", 8, "num_attention_heads")
    num_buckets: Size = hf("relative_attention_num_buckets", 32)
    max_distance: Distance = hf("relative_attention_max_distance", 128)
    dropout: Rate = hf("dropout_rate", 0.1)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-6)
    initializer_factor: Factor = hf("initializer_factor", 1.0)
    feed_forward: str = hf("feed_forward_proj", "relu")
    activation: str | None = hf("dense_act_fn", None)
    gate: bool | None = hf("is_gated_act", None)
    tied: bool = hf("tie_word_embeddings", True)
    scale_output: bool | None = hf("scale_decoder_outputs", None)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", None)

    def __post_init__(self) -> None:
        """Refuses a feed-forward that is neither `"relu"` nor `"gated-relu"`, with any activation."""
        super().__post_init__()
        if self.feed_forward.count("-") > self.feed_forward.startswith("gated-"):
            raise UnsupportedConfigError(
                "feed_forward_proj must be the name of an activation, with or without 'gated-' before it. "
                f"Received: {self.feed_forward!r}"
            )

    def with_tied_output(self, tied: bool) -> T5Config:
        """See `Config.with_tied_output`; the scale of the output stays what it was."""
        return replace(self, tied=tied, scale_output=self.scales_output)

    def to_hf(self) -> dict[str, Any]:
        """See `Config.to_hf`; with the decoder's layers, which transformers.js does not count by itself."""
        return {**super().to_hf(), "num_decoder_layers": self.num_decoder_layers}

    @property
    def num_decoder_layers(self) -> int:
        """As many as the encoder has, if not given."""
        return self.num_layers if self.decoder_layers is None else self.decoder_layers

    @property
    def gated(self) -> bool:
        """The feed-forward has a gate."""
        return self.feed_forward.startswith("gated-") if self.gate is None else self.gate

    @property
    def hidden_act(self) -> str:
        """The activation; `gated-gelu` always meant the tanh approximation."""
        name = "gelu_new" if self.feed_forward == "gated-gelu" else self.feed_forward.removeprefix("gated-")
        return self.activation or name

    @property
    def scales_output(self) -> bool:
        """Hidden states are divided by the root of their size before the output; 1.0 did so since it tied it."""
        return self.tied if self.scale_output is None else self.scale_output


class T5Encoder(Backbone):
    """The encoder of T5.

    Call arguments:
        ids: `(B, M)` int32.
        attention_mask: 1 for real tokens, `(B, M)`.
        flags: `return_hidden_states` and `return_attention` of `Encoder`.

    Returns:
        `(B, M, E)`, or the dictionary of `Encoder`.
    """

    config_type = T5Config
    inputs = (INPUT_IDS, ATTENTION_MASK)
    names = Names(
        ignored=(r"decoder\..*",),
        copies={"encoder.embed_tokens.weight": "shared.weight"},
        mark="encoder.block.0.layer.0.SelfAttention.q.weight",
        tokens="shared.weight",
    )

    def __init__(self, config: T5Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        normal = keras.initializers.RandomNormal(stddev=config.initializer_factor)
        self.tokens = Embedding(config.vocab_size, config.hidden_dim, normal, name="tokens")
        self.dropout = Dropout(config.dropout, name="dropout")
        layers = [EncoderLayer(**self._parts(), name=f"layer_{i}") for i in range(config.num_layers)]
        self.encoder = Encoder(layers, RMSNormalization(config.epsilon, name="final_norm"), name="encoder")
        self.encoder_bias = self._bias("encoder_bias", bidirectional=True)

    def _bias(self, name: str, bidirectional: bool) -> RelativePositionBias:
        """The scores of distances, which all layers of a stack share."""
        config = self.config
        return RelativePositionBias(config.num_buckets, config.max_distance, config.num_heads, bidirectional, name=name)

    def _attention(self, name: str) -> MultiHeadAttention:
        """Attention with unscaled scores: queries that begin smaller make up for it."""
        config = self.config
        sizes = config.num_heads, config.hidden_dim, config.head_dim
        kernels = {"use_bias": False, "kernel_initializer": self.initializer()}
        attention = MultiHeadAttention(*sizes, scale=1.0, dropout=config.dropout, name=name, **kernels)
        attention.query.kernel_initializer = self.initializer(1.0 / config.head_dim)
        return attention

    def _parts(self) -> dict[str, Any]:
        """What the layers of both stacks are made of."""
        config = self.config
        kernels = {"use_bias": False, "kernel_initializer": self.initializer()}
        feed_forward = FeedForward(
            config.hidden_dim,
            config.intermediate_dim,
            config.hidden_act,
            gated=config.gated,
            dropout=config.dropout,
            name="feed_forward",
            **kernels,
        )
        norms = {"norm": "rms_norm", "epsilon": config.epsilon, "norm_first": True}
        return {
            "attention": self._attention("attention"),
            "feed_forward": feed_forward,
            "dropout": config.dropout,
            **norms,
        }

    def initializer(self, scale: float = 1.0) -> keras.initializers.Initializer:
        """Of a kernel; its variance is `scale / inputs`."""
        scale *= self.config.initializer_factor**2
        return keras.initializers.VarianceScaling(scale, "fan_in", "untruncated_normal")

    def build(self, input_shape: Any = None) -> None:
        """Creates every variable."""
        self.tokens.build((None, None))
        self.encoder_bias.build((None,))
        self.encoder.build((None, None, self.config.hidden_dim))

    def call(self, ids: Tensor, attention_mask: Tensor | None = None, training: bool = False, **flags: bool) -> Any:
        """Reads a text."""
        slots = ops.arange(ops.shape(ids)[1], dtype="int32")
        visibility = Visibility(key_mask=attention_mask, position_bias=self.encoder_bias(slots, slots))
        return self._run(self.encoder, ids, visibility=visibility, training=training, **flags)

    def _run(self, stack: Any, ids: Tensor, training: bool, **arguments: Any) -> Any:
        """Tokens through a stack, with dropout at both ends."""
        x = self.dropout(self.tokens(ids), training=training)
        states = stack(x, training=training, **arguments)
        if not isinstance(states, dict):
            return self.dropout(states, training=training)
        return {**states, "output": self.dropout(states["output"], training=training)}

    def rows(self) -> list[Row]:
        """The weight table."""
        return [*embedding("tokens", "shared"), *self._stack_rows("encoder", self.config.num_layers)]

    def _stack_rows(self, stack: str, count: int) -> list[Row]:
        """Rows of one stack; the table of distances lies in its first layer."""
        parts = [("attention", "SelfAttention"), ("cross_attention", "EncDecAttention")][: 1 + (stack == "decoder")]
        last = f"layer.{len(parts)}"
        widen = {"gate": "wi_0", "up": "wi_1"} if self.config.gated else {"intermediate": "wi"}
        layer = [*norm("feed_forward_norm", f"{last}.layer_norm", bias=False)]
        for path, tensor in {**widen, "output": "wo"}.items():
            layer += dense(f"feed_forward/{path}", f"{last}.DenseReluDense.{tensor}", bias=False)
        for place, (part, name) in enumerate(parts):
            layer += norm(f"{part}_norm", f"layer.{place}.layer_norm", bias=False)
            for path in ("query", "key", "value", "output"):
                layer += dense(f"{part}/{path}", f"layer.{place}.{name}.{path[0]}", bias=False)
        return [
            *embedding(f"{stack}_bias", f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"),
            *repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{stack}.block.{{i}}.")),
            *norm(f"{stack}/final_norm", f"{stack}.final_layer_norm", bias=False),
        ]


class T5(T5Encoder):
    """T5 without output: encoder and decoder."""

    # Left over without loss: a table of distances to the encoded text, which older code made and never used.
    names = Names(
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
        copies={f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")},
        mark=T5Encoder.names.mark,
        tokens=T5Encoder.names.tokens,
    )

    def __init__(self, config: T5Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        layers = [
            DecoderLayer(**self._parts(), cross_attention=self._attention("cross_attention"), name=f"layer_{i}")
            for i in range(config.num_decoder_layers)
        ]
        self.decoder = Decoder(layers, RMSNormalization(config.epsilon, name="final_norm"), name="decoder")
        self.decoder_bias = self._bias("decoder_bias", bidirectional=False)

    def build(self, input_shape: Any = None) -> None:
        """Creates every variable."""
        super().build(input_shape)
        self.decoder_bias.build((None,))
        self.decoder.build((None, None, self.config.hidden_dim))

    def encode(self, ids: Tensor, attention_mask: Tensor | None = None, training: bool = False, **flags: bool) -> Any:
        """Reads a text; see `T5Encoder`."""
        return self(ids, attention_mask=attention_mask, training=training, **flags)

    def decode(
        self,
        ids: Tensor,
        visibility: Visibility | None = None,
        training: bool = False,
        **memory: Any,
    ) -> Any:
        """Some tokens of the decoder.

        Args:
            ids: `(B, T)` int32.
            visibility: Slots of the tokens and of the keys; each token sees those before it by default.
            training: Applies dropout.
            memory: `memory`, `memory_mask`, `caches`, `cross_caches` and the flags of `Decoder`.

        Returns:
            `(B, T, E)`, or the dictionary of `Decoder`.
        """
        if visibility is None:
            visibility = Visibility.of_text(ops.shape(ids)[1], causal=True)
        visibility = visibility.with_bias(self.decoder_bias(visibility.query_slots, visibility.key_slots))
        return self._run(self.decoder, ids, visibility=visibility, training=training, **memory)

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each decoder layer's keys and values `(B, H, M, D)` of the encoded text."""
        return [layer.cross_attention.project(memory) for layer in self.decoder.layers]

    def cache_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, S, D)` of the keys (and of the values) of each decoder layer."""
        return self.decoder.cache_shapes(batch, length)

    def memory_shapes(self, batch: Any, length: Any) -> list[tuple[Any, ...]]:
        """Shape `(B, G, M, D)` of the keys (and of the values) of each layer's encoded text."""
        return self.decoder.memory_shapes(batch, length)

    def rows(self) -> list[Row]:
        """The weight table."""
        return [*super().rows(), *self._stack_rows("decoder", self.config.num_decoder_layers)]


class T5Seq2SeqLM(Seq2SeqLM):
    """T5 for texts from texts: summaries, translations, answers."""

    backbone_type = T5
    architecture = "T5ForConditionalGeneration"
    bare = True

    @classmethod
    def parts(cls, tensors: TensorFile) -> dict[str, Any]:
        """See `Seq2SeqLM.parts`; without an output the table is used, whatever `tie_word_embeddings` says."""
        return super().parts(tensors) or {"tied": True}

    def head_options(self) -> dict[str, Any]:
        """Further arguments of `LMHead`."""
        scale = self.config.hidden_dim**-0.5 if self.config.scales_output else 1.0
        return {"scale": scale, "kernel_initializer": self.backbone.initializer()}


class T5Features(FeatureExtraction):
    """The encoder of T5; a checkpoint's decoder is left over."""

    backbone_type = T5Encoder
    architecture = "T5EncoderModel"


MODELS = by_task(T5Seq2SeqLM, T5Features)
