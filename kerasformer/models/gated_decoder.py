"""Base of decoders with the layers of LLaMA: RMS norms, rotary positions and gated feed-forward networks."""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import RotaryConfig, check_layer_types
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class GatedDecoderConfig(RotaryConfig):
    """Base of the configurations; the defaults are those of LLaMA with 7 billion parameters."""

    vocab_size: Size = hf("vocab_size", 32000)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 4096)
    intermediate_dim: Size = hf("intermediate_size", 11008)
    num_layers: Layers = hf("num_hidden_layers", 32)
    num_heads: Size = hf("num_attention_heads", 32)
    num_key_value_heads: Size | None = hf("num_key_value_heads", None)
    head_dim: Size | None = hf("head_dim", None)
    hidden_act: str = hf("hidden_act", "silu")
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    epsilon: Epsilon = hf("rms_norm_eps", 1e-6)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", False)

    @property
    def attention_bias(self) -> bool:
        """Whether the projections of queries, keys and values have a bias."""
        return False

    @property
    def output_bias(self) -> bool:
        """Whether the output projection of the attention has a bias."""
        return self.attention_bias

    @property
    def mlp_bias(self) -> bool:
        """Whether the feed-forward network has biases."""
        return False

    def window(self, index: int) -> int | None:
        """Returns the size of the sliding window of the layer of this index in tokens; `None` for full attention."""
        return None


@dataclass(frozen=True, kw_only=True)
class LayerWindowConfig(GatedDecoderConfig):
    """Base of the configurations of models in which some layers may have a sliding window.

    Attributes:
        uses_window: Whether the window applies.
        window_size: Size of the window in tokens; `None` if `uses_window` is false.
        layer_types: Type of each layer, full or sliding attention; `None` for those of `default_layer_types`.
    """

    uses_window: bool = hf("use_sliding_window", False)
    window_size: Size | None = hf("sliding_window", 4096)
    layer_types: list[str] | None = hf("layer_types", None)

    def __post_init__(self) -> None:
        """Sets the default types of layers and validates them."""
        super().__post_init__()
        if not self.uses_window:
            object.__setattr__(self, "window_size", None)
        if self.layer_types is None:
            types = [FULL] * self.num_layers if self.window_size is None else self.default_layer_types()
            object.__setattr__(self, "layer_types", types)
        check_layer_types(self.layer_types, self.num_layers, (FULL, SLIDING))
        if self.window_size is None and SLIDING in (self.layer_types or ()):
            raise UnsupportedConfigError(
                f"layer_types with {SLIDING} requires use_sliding_window and sliding_window. "
                f"Received: use_sliding_window={self.uses_window}, sliding_window={self.window_size}"
            )

    def default_layer_types(self) -> list[str]:
        """Returns the type of each layer of a file with a window and without `layer_types`."""
        raise NotImplementedError

    def window(self, index: int) -> int | None:
        """See `GatedDecoderConfig.window`."""
        return self.window_size if self.layer_types and self.layer_types[index] == SLIDING else None


class GatedDecoder(CausalDecoder):
    """Base of the backbones, whose configurations derive from `GatedDecoderConfig`.

    The feed-forward network multiplies the activation of one projection by another projection (SwiGLU). Several query
    heads may share a key and value head.
    """

    norm = "rms_norm"
    # Ignored: the rotary frequencies of older files. Classes for question answering have another prefix.
    names = Names(
        "model.",
        (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",),
        tokens="embed_tokens.weight",
        other_prefixes=("transformer.",),
    )

    def attention_options(self, index: int) -> LayerArguments:
        """See the function `attention_options`."""
        return attention_options(self.config, index)

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the options of a gated feed-forward network."""
        return {"gated": True, "use_bias": self.config.mlp_bias}

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer."""
        return layer_table(self.config)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(self.config.num_layers, nested(self.layer_rows(), "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "norm", bias=False),
        ]


def attention_options(config: GatedDecoderConfig, index: int) -> LayerArguments:
    """Returns the sizes, biases, positions and window of the attention of the layer of this index."""
    return {
        "head_dim": config.head_dim,
        "num_key_value_heads": config.num_key_value_heads,
        "use_bias": config.attention_bias,
        "output_bias": config.output_bias,
        "rotary": config.rotary,
        "window": config.window(index),
    }


def layer_table(config: GatedDecoderConfig) -> list[Row]:
    """Returns the rows of one layer."""
    rows = [
        *norm("attention_norm", "input_layernorm", bias=False),
        *norm("feed_forward_norm", "post_attention_layernorm", bias=False),
        *dense("attention/output", "self_attn.o_proj", bias=config.output_bias),
    ]
    for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
        rows += dense(f"attention/{path}", f"self_attn.{tensor}", bias=config.attention_bias)
    for path, tensor in {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}.items():
        rows += dense(f"feed_forward/{path}", f"mlp.{tensor}", bias=config.mlp_bias)
    return rows
