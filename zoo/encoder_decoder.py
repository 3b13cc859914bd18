"""Warm-started encoder-decoder: two BERTs, whose decoder attends to the encoder.

Derived from: the Transformer.
Paper: Rothe et al. 2020, "Leveraging Pre-trained Checkpoints for Sequence Generation Tasks", arXiv:1907.12461.
Reference: `transformers.models.encoder_decoder`, with BERT as encoder and decoder; `zoo.warm_start` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import keras
from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import MaskedLMHead
from kerasformer.layers.core import Embedding
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.encoder import bert_layer_table
from kerasformer.models.encoder_decoder import EncoderDecoder, Stack
from kerasformer.models.task_models import heads, prediction_rows
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat
from kerasformer.zoo.bert import BertConfig

if TYPE_CHECKING:
    from kerasformer.tokenization import Tokenizer

_OF_BOTH = ("hidden_dim", "hidden_act", "hidden_dropout", "attention_dropout", "epsilon", "initializer_range")
"""Settings that must be equal in both stacks, by their names in `BertConfig`."""
PART = "bert"
"""Architecture of both stacks."""
_PLACES = {
    "{}/": "backbone/encoder/",
    "{}_positions/segments/": "backbone/embeddings/segments/",
    "{}_positions/": "backbone/embeddings/positions/",
    "{}_embeddings_norm/": "backbone/embeddings/norm/",
}
"""Paths of the variables of one stack, with `{}` for its name, and those of a BERT."""
_TOKENS = {"encoder": "tokens/", "decoder": "decoder_tokens/"}
_DECODER = {"is_decoder": True, "add_cross_attention": True}
"""Entries that make a BERT a decoder which attends to an encoder."""
_UNUSED = frozenset({"tie_encoder_decoder", "tf_legacy_loss"})
"""Entries of the parts in older files that neither part uses."""


@dataclass(frozen=True, kw_only=True)
class Bert2BertConfig(Config):
    """Configuration of two BERTs; the defaults are those of `bert-base-uncased` for both."""

    model_type = "encoder-decoder"
    ignored = frozenset({"tf_legacy_loss"})
    required = {"tie_encoder_decoder": (False,), "tie_word_embeddings": (True,)}
    counterparts = {**Config.counterparts, "decoder_num_segments": "num_segments"}

    vocab_size: Size = hf("encoder.vocab_size", 30522)
    decoder_vocab_size: Size = hf("decoder.vocab_size", 30522)
    max_length: Size = hf("encoder.max_position_embeddings", 512)
    decoder_max_length: Size = hf("decoder.max_position_embeddings", 512)
    num_segments: Size = hf("encoder.type_vocab_size", 2)
    decoder_num_segments: Size = hf("decoder.type_vocab_size", 2)
    num_layers: Layers = hf("encoder.num_hidden_layers", 12)
    num_decoder_layers: Layers = hf("decoder.num_hidden_layers", 12)
    num_heads: Size = hf("encoder.num_attention_heads", 12)
    decoder_num_heads: Size = hf("decoder.num_attention_heads", 12)
    intermediate_dim: Size = hf("encoder.intermediate_size", 3072)
    decoder_intermediate_dim: Size = hf("decoder.intermediate_size", 3072)
    hidden_dim: Size = hf("encoder.hidden_size", 768)
    hidden_act: str = hf("encoder.hidden_act", "gelu")
    dropout: Rate = hf("encoder.hidden_dropout_prob", 0.1)
    attention_dropout: Rate = hf("encoder.attention_probs_dropout_prob", 0.1)
    epsilon: Epsilon = hf("encoder.layer_norm_eps", 1e-12)
    initializer_range: Deviation = hf("encoder.initializer_range", 0.02)
    tied: bool = hf("decoder.tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", None)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", None)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", None)

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """Creates a configuration from the content of a `config.json`.

        Raises:
            UnsupportedConfigError: a part is no BERT, has an unsupported value, or differs from the other part in a
                setting that must be equal.
        """
        config = super().from_hf(content)
        parts = {name: content.get(name, {}) for name in ("encoder", "decoder")}
        for name, part in parts.items():
            if not isinstance(part, Mapping):
                raise UnsupportedConfigError(f"{name} must be the configuration of a BERT. Received: {part!r:.200}")
            expected = {"model_type": PART, **(_DECODER if name == "decoder" else {})}
            for key, value in expected.items():
                if part.get(key, value) != value:
                    raise UnsupportedConfigError(
                        f"encoder-decoder supports only {key}={value!r} in its {name}. Received: {part[key]!r}"
                    )
        encoder, decoder = (
            BertConfig.from_hf({key: value for key, value in part.items() if key not in {*_DECODER, *_UNUSED}})
            for part in parts.values()
        )
        check_pair(encoder, decoder)
        return config

    def with_vocabulary(self, size: int, new_ids: Mapping[int, int]) -> Self:
        """Returns the configuration of a model whose tokens have other ids, in both stacks.

        Raises:
            UnsupportedConfigError: the stacks have vocabularies of their own.
        """
        if self.decoder_vocab_size != self.vocab_size:
            raise UnsupportedConfigError(
                "One vocabulary of encoder and decoder was expected. "
                f"Received: {self.vocab_size} and {self.decoder_vocab_size} tokens"
            )
        return replace(super().with_vocabulary(size, new_ids), decoder_vocab_size=size)

    def to_hf(self) -> JsonObject:
        """Returns the content of a `config.json`, with both BERTs as `transformers` reads them."""
        content = super().to_hf()
        shared = ("hidden_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")
        copied = {key: content["encoder"][key] for key in (*shared, "layer_norm_eps", "initializer_range")}
        content["encoder"]["model_type"] = PART
        content["decoder"] |= {**copied, **_DECODER, "model_type": PART}
        return content

    @property
    def longest_answer(self) -> int:
        """Maximum length in tokens of the text that the decoder generates."""
        return self.decoder_max_length


def check_pair(encoder: BertConfig, decoder: BertConfig) -> None:
    """Checks that two BERTs agree where the stacks of an encoder-decoder must.

    Raises:
        UnsupportedConfigError: they do not.
    """
    for name in _OF_BOTH:
        values = getattr(encoder, name), getattr(decoder, name)
        if values[0] != values[1]:
            raise UnsupportedConfigError(
                f"Encoder and decoder must have the same {name}. Received: {values[0]} and {values[1]}"
            )


def origin(path: str) -> tuple[str, str] | None:
    """Returns the stack that a variable belongs to, and the path of the same variable in a BERT.

    Returns:
        `None` for a variable of cross attention, which a BERT lacks.
    """
    if "/cross_attention" in path:
        return None
    inner = path.removeprefix("backbone/")
    for stack, tokens in _TOKENS.items():
        for mine, theirs in {tokens: "backbone/embeddings/tokens/", **_PLACES}.items():
            if inner.startswith(prefix := mine.format(stack)):
                return stack, theirs + inner.removeprefix(prefix)
    return "decoder", path  # the head


class Bert2Bert(EncoderDecoder):
    """Two BERTs without head: the second is causal and attends to the output of the first after its self attention."""

    config_type = Bert2BertConfig
    learned_positions = True
    embedding_norm = True
    # Ignored: a pooler that nothing reads, and buffers.
    names = Names(
        "",
        ignored=(r"encoder\.pooler\..*", r".*embeddings\.position_ids"),
        tokens="decoder.bert.embeddings.word_embeddings.weight",
    )

    @property
    def decoder_vocab_size(self) -> int:
        """Size of the decoder's token embeddings, which are those of its own checkpoint."""
        size: int = self.config.decoder_vocab_size
        return size

    @property
    def epsilon(self) -> float:
        """Epsilon of all norms."""
        return float(self.config.epsilon)

    def make_positions(self, stack: Stack) -> keras.layers.Layer:
        """Creates the position embeddings of a stack, to which the segment of a single text is added."""
        return PositionsOfOneText(
            self._value("max_length", stack),
            self.config.hidden_dim,
            self._value("num_segments", stack),
            self.initializer,
            name=f"{stack}_positions",
        )

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        rows = []
        for stack, count in self.layer_counts.items():
            prefix, tokens = ("encoder.", "tokens") if stack == "encoder" else ("decoder.bert.", "decoder_tokens")
            layer = bert_layer_table()
            if stack == "decoder":
                layer += _cross_attention_rows()
            rows += [
                *embedding(tokens, f"{prefix}embeddings.word_embeddings"),
                *embedding(f"{stack}_positions", f"{prefix}embeddings.position_embeddings"),
                *embedding(f"{stack}_positions/segments", f"{prefix}embeddings.token_type_embeddings"),
                *norm(f"{stack}_embeddings_norm", f"{prefix}embeddings.LayerNorm"),
                *repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{prefix}encoder.layer.{{i}}.")),
            ]
        return rows


def _cross_attention_rows() -> list[Row]:
    names = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output.dense"}
    rows = [row for path, name in names.items() for row in dense(f"cross_attention/{path}", f"crossattention.{name}")]
    return [*rows, *norm("cross_attention_norm", "crossattention.output.LayerNorm")]


@keras.saving.register_keras_serializable("kerasformer")
class PositionsOfOneText(Embedding):
    """Position embeddings of a text without second text: the vector of segment 0 is added to each of them.

    Args:
        input_dim: Number of positions.
        output_dim: Size `E` of a vector.
        num_segments: Number of segments in the checkpoint.
        embeddings_initializer: A Keras initializer.
        kwargs: Arguments of `Embedding`.

    Call arguments:
        ids: Positions `(B, T)` or `(1, T)`; the result is `(..., E)`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_segments: int,
        embeddings_initializer: object = "random_normal",
        **kwargs: object,
    ) -> None:
        super().__init__(input_dim, output_dim, embeddings_initializer, **kwargs)  # type: ignore[arg-type]
        self.num_segments = num_segments
        self.segments = Embedding(num_segments, output_dim, embeddings_initializer, name="segments")  # type: ignore

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates both tables."""
        super().build(input_shape)
        self.segments.build(input_shape)

    def call(self, ids: Tensor) -> Tensor:
        """Looks up the positions."""
        return super().call(ids) + self.segments(ops.zeros(ops.shape(ids), "int32"))


class Bert2BertSeq2SeqLM(Seq2SeqLM, backbone=Bert2Bert):
    """Two BERTs for text-to-text generation; the head is that of BERT's masked words."""

    architecture = "EncoderDecoderModel"
    optional_head = False
    head_table = prediction_rows("decoder.cls.predictions", "transform.dense", "transform.LayerNorm")

    def make_head(self) -> keras.layers.Layer:  # type: ignore[override]  # a head with further layers
        """Creates the head of BERT for masked words."""
        config = self.config
        sizes = config.decoder_vocab_size, config.hidden_dim
        return MaskedLMHead(
            *sizes,
            config.hidden_act,
            config.epsilon,
            kernel_initializer=self.backbone.initializer,
            tied=config.tied,
            name="head",
        )

    def set_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Sets the tokenizer, which then returns no segments: the encoder reads one text."""
        if tokenizer is not None:
            tokenizer.keep_inputs(self.input_names)
        super().set_tokenizer(tokenizer)

    @property
    def shared_table(self) -> Embedding | None:
        """The table of the decoder's tokens, if it is also the matrix of the scores."""
        table: Embedding | None = self.backbone.decoder_tokens if self.config.tied else None
        return table


MODELS = heads(Bert2Bert, Bert2BertSeq2SeqLM)
