"""T5: an encoder-decoder with relative position biases.

Derived from: the Transformer.
Paper: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
arXiv:1910.10683; gated feed-forward (1.1, Flan): Shazeer 2020, arXiv:2002.05202. Reference: `transformers.models.t5`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kerasformer.layers import FeedForward, MultiHeadAttention, RelativePositionBias
from kerasformer.layers.layer_types import LayerArguments, LayerConfig
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Distance, Epsilon, Factor, FeedForwardKind, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.creation import fan_in, normal
from kerasformer.models.encoder_decoder import COPIES, EncoderDecoder, Stack, token_rows
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    """Configuration of T5; the defaults are those of `t5-small`."""

    model_type = "t5"
    required = {"is_decoder": (False,)}
    ignored = frozenset({"n_positions"})
    same_as = {"num_decoder_layers": "num_layers", "scale_output": "tied"}

    vocab_size: Size = hf("vocab_size", 32128)
    hidden_dim: Size = hf("d_model", 512, "hidden_size")
    head_dim: Size = hf("d_kv", 64)
    intermediate_dim: Size = hf("d_ff", 2048)
    num_layers: Layers = hf("num_layers", 6)
    num_decoder_layers: Layers | None = hf("num_decoder_layers", None)
    num_heads: Size = hf("num_heads", 8, "num_attention_heads")
    num_buckets: Size = hf("relative_attention_num_buckets", 32)
    max_distance: Distance = hf("relative_attention_max_distance", 128)
    dropout: Rate = hf("dropout_rate", 0.1)
    head_dropout: Rate = hf("classifier_dropout", 0.0)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-6)
    initializer_factor: Factor = hf("initializer_factor", 1.0)
    feed_forward: FeedForwardKind = hf("feed_forward_proj", "relu")
    activation: str | None = hf("dense_act_fn", None)
    gate: bool | None = hf("is_gated_act", None)
    tied: bool = hf("tie_word_embeddings", True)
    # No key of the reference, which compares the tensors: whether encoder and decoder have separate token embeddings.
    separate_tables: bool | None = hf("separate_tables", None)
    scale_output: bool | None = hf("scale_decoder_outputs", None)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", None)

    @property
    def gated(self) -> bool:
        """Whether the feed-forward network is gated."""
        return self.feed_forward.startswith("gated-") if self.gate is None else self.gate

    @property
    def hidden_act(self) -> str:
        """Name of the activation; `gated-gelu` means GELU with the tanh approximation."""
        name = "gelu_new" if self.feed_forward == "gated-gelu" else self.feed_forward.removeprefix("gated-")
        return self.activation or name


class T5(EncoderDecoder):
    """T5 without head."""

    config_type = T5Config
    norm = "rms_norm"
    order = "pre_norm"
    final_norm = True
    output_dropout = True
    # Ignored: relative positions of the cross attention, which older versions created and never used.
    names = Names(
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
        copies=COPIES,
        tokens="shared.weight",
        other_prefixes=("transformer.",),
    )

    @property
    def decoder_vocab_size(self) -> int | None:
        """Size of the decoder's token embeddings if they are not those of the encoder."""
        return self.config.vocab_size if self.config.separate_tables else None

    @classmethod
    def untied(cls, config: T5Config, tables: bool, problem: str) -> T5Config:
        """See `Backbone.untied`; the output matrix need not be separate from the tables, nor they from each other."""
        return replace(config, tied=False, separate_tables=tables or config.separate_tables)

    @property
    def initializer(self) -> LayerConfig:
        """Initializer of kernels."""
        return fan_in(self.config.initializer_factor**2)

    @property
    def token_initializer(self) -> LayerConfig:
        """Initializer of the token embeddings."""
        return normal(self.config.initializer_factor)

    def make_position_bias(self, stack: Stack) -> RelativePositionBias | None:
        """Creates the relative position bias, which all layers of a stack share."""
        sizes = self.config.num_buckets, self.config.max_distance, self.config.num_heads
        return RelativePositionBias(*sizes, bidirectional=stack == "encoder", name=f"{stack}_bias")

    def make_attention(self, stack: Stack, name: str, **options: Any) -> MultiHeadAttention:
        """Creates attention with unscaled scores, for which smaller initial weights of the queries compensate."""
        head_dim, variance = self.config.head_dim, self.config.initializer_factor**2
        options |= {"query_initializer": fan_in(variance / head_dim), "use_bias": False}
        return super().make_attention(stack, name, head_dim=head_dim, scale=1.0, **options)

    def make_feed_forward(self, stack: Stack, **options: Any) -> FeedForward:
        """Creates a feed-forward network, which is gated since version 1.1."""
        return super().make_feed_forward(stack, gated=self.config.gated, use_bias=False, **options)

    def rows(self) -> list[Row]:
        """Returns the weight table; the relative position biases are tensors of the first layers."""
        rows = token_rows(self)
        inner = {"gate": "wi_0", "up": "wi_1"} if self.config.gated else {"intermediate": "wi"}
        for stack, count in self.layer_counts.items():
            kinds = {"attention": "SelfAttention", "cross_attention": "EncDecAttention"}
            parts = list(kinds.items())[: 1 + (stack == "decoder")]
            last = f"layer.{len(parts)}"
            layer = norm("feed_forward_norm", f"{last}.layer_norm", bias=False)
            for path, tensor in {**inner, "output": "wo"}.items():
                layer += dense(f"feed_forward/{path}", f"{last}.DenseReluDense.{tensor}", bias=False)
            for index, (part, kind) in enumerate(parts):
                layer += norm(f"{part}_norm", f"layer.{index}.layer_norm", bias=False)
                for path in ("query", "key", "value", "output"):
                    layer += dense(f"{part}/{path}", f"layer.{index}.{kind}.{path[0]}", bias=False)
            rows += embedding(f"{stack}_bias", f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias")
            rows += repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{stack}.block.{{i}}."))
            rows += norm(f"{stack}/final_norm", f"{stack}.final_layer_norm", bias=False)
        return rows


class T5Seq2SeqLM(Seq2SeqLM, backbone=T5):
    """T5 for text-to-text generation: summarization, translation, question answering."""

    bare = True
    declares_ties = False
    former_architecture = "T5WithLMHeadModel"

    def head_options(self) -> LayerArguments:
        """Returns further arguments of `LMHead`; before version 1.1, whose output is not tied, the output is scaled."""
        scale = self.config.hidden_dim**-0.5 if self.config.scale_output else 1.0
        return {**super().head_options(), "scale": scale}


class T5TextClassification(task_models.Seq2SeqClassification, backbone=T5):
    """T5 for text classification, from the decoder's state of the end token."""

    prefix = "transformer."


class T5TokenClassification(task_models.EncoderTokenClassification, backbone=T5):
    """Encoder of T5, for token classification, such as named entity recognition."""

    prefix = "transformer."


MODELS = task_models.heads(
    T5,
    T5Seq2SeqLM,
    task_models.EncoderFeatures,
    T5TextClassification,
    T5TokenClassification,
    task_models.Seq2SeqQuestionAnswering,
)
