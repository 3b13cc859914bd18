"""Base of decoders in which another layer takes the place of attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import keras

from kerasformer.models.config import hf
from kerasformer.models.gated_decoder import FULL, GatedDecoder, GatedDecoderConfig
from kerasformer.models.rotary_config import check_layer_types
from kerasformer.models.weight_table import Row, dense, embedding, nested, norm

LINEAR = "linear_attention"


@dataclass(frozen=True, kw_only=True)
class HybridDecoderConfig(GatedDecoderConfig):
    """Base of the configurations.

    Attributes:
        mixer_type: Type of the layers without attention.
        older_types: Types of layers by their names in older files.
        layer_types: Type of each layer, `full_attention` or `mixer_type`; by default as of `default_layer_types`.
    """

    mixer_type: ClassVar[str] = LINEAR
    older_types: ClassVar[Mapping[str, str]] = {}

    layer_types: list[str] | None = hf("layer_types", None)

    def __post_init__(self) -> None:
        """Sets the default types of layers and validates them."""
        super().__post_init__()
        types = self.default_layer_types() if self.layer_types is None else self.layer_types
        object.__setattr__(self, "layer_types", [self.older_types.get(each, each) for each in types])
        check_layer_types(self.layer_types, self.num_layers, (FULL, self.mixer_type))

    def default_layer_types(self) -> list[str]:
        """Returns the type of each layer of a file without `layer_types`."""
        return [self.mixer_type] * self.num_layers


class HybridDecoder(GatedDecoder):
    """Base of the backbones, whose configurations derive from `HybridDecoderConfig`.

    Attributes:
        attention_tensors: Names of the projections of attention in a file, by their names in Keras.
        layer_norms: Names of the norms of a layer in a file, likewise.
        final_norm: Name of the norm after all layers.
        norm_offset: Number that is added to the weights of norms.
    """

    attention_tensors: ClassVar[Mapping[str, str]] = {
        "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    }  # fmt: skip
    layer_norms: ClassVar[Mapping[str, str]] = {
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
    }
    final_norm: ClassVar[str] = "norm"
    norm_offset: ClassVar[float] = 0.0

    def make_mixer(self) -> keras.layers.Layer:
        """Creates the layer in place of attention."""
        raise NotImplementedError

    def make_attention(self, index: int) -> keras.layers.Layer:
        """Creates the attention of a layer, or the layer in its place."""
        return super().make_attention(index) if self.config.layer_types[index] == FULL else self.make_mixer()

    def attention_rows(self) -> list[Row]:
        """Returns the weight table of attention, below the name of its layer."""
        names, bias = self.attention_tensors.items(), self.config.attention_bias
        return nested([row for pair in names for row in dense(*pair, bias=bias)], "attention/", "self_attn.")

    def mixer_rows(self) -> list[Row]:
        """Returns the weight table of the layer in place of attention, below the name of its layer."""
        raise NotImplementedError

    def feed_forward_rows(self) -> list[Row]:
        """Returns the weight table of the feed-forward network, below the name of its layer."""
        names = {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}
        return [row for path, name in names.items() for row in dense(f"feed_forward/{path}", f"mlp.{name}", bias=False)]

    def norm_rows(self, names: Mapping[str, str]) -> list[Row]:
        """Returns the weight table of norms."""
        return [row for pair in names.items() for row in norm(*pair, bias=False, offset=self.norm_offset)]

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        rows = [*embedding("tokens", "embed_tokens"), *self.norm_rows({"decoder/final_norm": self.final_norm})]
        others = [*self.norm_rows(self.layer_norms), *self.feed_forward_rows()]
        for index, kind in enumerate(self.config.layer_types):
            mixer = self.attention_rows() if kind == FULL else self.mixer_rows()
            rows += nested([*mixer, *others], f"decoder/layer_{index}/", f"layers.{index}.")
        return rows
