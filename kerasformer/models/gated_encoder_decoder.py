"""Base of encoder-decoders whose stacks have the layers of a decoder such as Gemma, see `gated_decoder`.

Their `config.json` contains a configuration of that decoder for each stack.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import FeedForward, MultiHeadAttention
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder_decoder import EncoderDecoder, Stack

STACKS: tuple[Stack, Stack] = ("encoder", "decoder")
_OF_STACKS = """add_cross_attention attention_dropout classifier_dropout_rate dropout_rate is_decoder tf_legacy_loss
    tie_encoder_decoder tie_word_embeddings""".split()
"""Keys of a stack whose values follow from its place, or are those of the whole model."""
_OF_THE_WHOLE = ("id2label", "label2id", "tie_word_embeddings")
"""Keys that only the configuration of the whole model has."""


@dataclass(frozen=True, kw_only=True)
class PairedConfig(Config):
    """Base of the configurations; the defaults are those of T5Gemma.

    Fields have the names of those of the decoder-only architecture. Where the stacks may differ, a second field
    `decoder_…` has the value of the decoder (`num_decoder_layers` its number of layers); otherwise both must agree.

    Attributes:
        part_type: Configuration of the decoder-only architecture.
        part_model_types: `model_type` of each stack.
        part_keys: Key of the configuration of each stack.
    """

    part_type: ClassVar[type[Config]]
    part_model_types: ClassVar[Mapping[Stack, str]]
    part_keys: ClassVar[Mapping[Stack, str]] = {"encoder": "encoder", "decoder": "decoder"}
    required = {"is_decoder": (False,), "add_cross_attention": (False,), "tie_encoder_decoder": (False,)}
    # The size of the vocabulary and the deviation of initial weights are read from the stacks.
    ignored = frozenset({"initializer_range", "tf_legacy_loss", "vocab_size"})
    counterparts = {**Config.counterparts, "decoder_num_key_value_heads": "num_key_value_heads"}

    vocab_size: Size = hf("decoder.vocab_size", 256000)
    max_length: Size = hf("decoder.max_position_embeddings", 8192)
    hidden_dim: Size = hf("decoder.hidden_size", 2304)
    intermediate_dim: Size = hf("encoder.intermediate_size", 9216)
    decoder_intermediate_dim: Size = hf("decoder.intermediate_size", 9216)
    num_layers: Layers = hf("encoder.num_hidden_layers", 26)
    num_decoder_layers: Layers = hf("decoder.num_hidden_layers", 26)
    num_heads: Size = hf("encoder.num_attention_heads", 8)
    decoder_num_heads: Size = hf("decoder.num_attention_heads", 8)
    num_key_value_heads: Size = hf("encoder.num_key_value_heads", 4)
    decoder_num_key_value_heads: Size = hf("decoder.num_key_value_heads", 4)
    head_dim: Size = hf("decoder.head_dim", 256)
    hidden_act: str = hf("decoder.hidden_activation", "gelu_pytorch_tanh")
    attention_bias: bool = hf("decoder.attention_bias", False)
    epsilon: Epsilon = hf("decoder.rms_norm_eps", 1e-6)
    initializer_range: Deviation = hf("decoder.initializer_range", 0.02)
    dropout: Rate = hf("dropout_rate", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    head_dropout: Rate = hf("classifier_dropout_rate", 0.0)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 0, "decoder.pad_token_id")
    bos_token_id: TokenId | None = hf("bos_token_id", 2, "decoder.bos_token_id")
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1, "decoder.eos_token_id")
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", None)

    def __post_init__(self) -> None:
        """Validates the settings of each stack, which also have defaults that depend on others."""
        super().__post_init__()
        for stack in STACKS:
            part = self.part(stack)
            for name, own in self._fields_of(stack).items():
                if getattr(self, own) is None:
                    object.__setattr__(self, own, getattr(part, name))

    def part(self, stack: Stack) -> Any:
        """Returns the settings of a stack, as a configuration of the type `part_type`."""
        return self.part_type(**{name: getattr(self, own) for name, own in self._fields_of(stack).items()})

    @classmethod
    def _fields_of(cls, stack: Stack) -> dict[str, str]:
        """Returns the names of the fields with the settings of a stack, by their names in `part_type`."""
        mine = {field.name for field in dataclasses.fields(cls)}
        names = {field.name: field.name for field in dataclasses.fields(cls.part_type)}
        if stack == "decoder":
            separate = {name: f"decoder_{name}" for name in names} | {"num_layers": "num_decoder_layers"}
            names |= {name: other for name, other in separate.items() if other in mine}
        return {name: own for name, own in names.items() if own in mine}

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """Creates a configuration from the content of a `config.json`.

        Raises:
            UnsupportedConfigError: a stack is of another architecture, has an unsupported value, or differs from the
                other one in a setting that must be equal.
        """
        config = super().from_hf(content)
        parts = {stack: cls._read_part(content, stack) for stack in STACKS}
        keys = {field.name: field.metadata["hf"][0] for field in dataclasses.fields(cls)}
        own_of_encoder, own_of_decoder = (cls._fields_of(stack) for stack in STACKS)
        for name, own in own_of_decoder.items():
            values = [getattr(part, name) for part in parts.values()]
            if keys[own].startswith("decoder.") and own == own_of_encoder[name] and values[0] != values[1]:
                raise UnsupportedConfigError(
                    f"Encoder and decoder of {cls.model_type} must have the same {keys[own].removeprefix('decoder.')}. "
                    f"Received: {values[0]!r} and {values[1]!r}"
                )
        changes: Arguments = {}
        for stack, part in parts.items():
            names = cls._fields_of(stack).items()
            changes |= {own: getattr(part, name) for name, own in names if keys[own].startswith(f"{stack}.")}
        return dataclasses.replace(config, **changes)

    @classmethod
    def _read_part(cls, content: JsonMapping, stack: Stack) -> Config:
        key, expected = cls.part_keys[stack], cls.part_model_types[stack]
        part: Any = content
        for name in key.split("."):
            part = part.get(name) if isinstance(part, Mapping) else part
        part = {} if part is None else part
        if not isinstance(part, Mapping) or part.get("model_type", expected) != expected:
            raise UnsupportedConfigError(
                f"{key} of {cls.model_type} must be a configuration with model_type={expected!r}. "
                f"Received: {part!r:.200}"
            )
        try:
            return cls.part_type.from_hf({key: value for key, value in part.items() if key not in _OF_STACKS})
        except UnsupportedConfigError as error:
            raise UnsupportedConfigError(f"{key} of {cls.model_type} cannot be used. {error}") from error

    def to_hf(self) -> JsonObject:
        """Returns the content of a `config.json`, with all settings of both stacks."""
        content = super().to_hf()
        for stack, key in self.part_keys.items():
            fields, names = dataclasses.fields(self.part_type), self._fields_of(stack)
            omitted = {*_OF_THE_WHOLE, *(field.metadata["hf"][0] for field in fields if field.name not in names)}
            part = {name: value for name, value in self.part(stack).to_hf().items() if name not in omitted}
            *parents, last = key.split(".")
            target = functools.reduce(lambda inner, parent: inner[parent], parents, content)
            target[last] = {**part, "model_type": self.part_model_types[stack]}
        return {**content, "vocab_size": self.vocab_size}

    @property
    def longest_text(self) -> int | None:
        """Maximum length of a text in tokens, which both stacks have."""
        limit: int | None = self.part("encoder").longest_text
        return limit


class GatedEncoderDecoder(EncoderDecoder):
    """Base of the backbones, whose configurations derive from `PairedConfig`."""

    config_type: ClassVar[type[PairedConfig]]
    norm = "rms_norm"
    order = "sandwich_norm"
    final_norm = True
    output_dropout = True

    @property
    def embedding_scale(self) -> float:
        """Square root of the hidden size; rounded to the data type of the embeddings, as in the reference."""
        return math.sqrt(self.config.hidden_dim)

    def make_attention(self, stack: Stack, name: str, *, index: int, **options: Any) -> MultiHeadAttention:
        """Creates attention whose key and value heads may be shared by several query heads."""
        part = self.config.part(stack)
        sizes = {"head_dim": part.head_dim, "num_key_value_heads": part.num_key_value_heads}
        return super().make_attention(stack, name, index=index, **{"use_bias": part.attention_bias, **sizes, **options})

    def make_feed_forward(self, stack: Stack, **options: Any) -> FeedForward:
        """Creates a gated feed-forward network without biases."""
        return super().make_feed_forward(stack, gated=True, use_bias=False, **options)
