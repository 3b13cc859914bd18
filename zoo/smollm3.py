"""SmolLM3: LLaMA without rotary positions in every fourth layer.

Derived from: `llama`.
Paper: Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner"; layers without positions: Yang et al.
2025, "Rope to Nope and Back Again: A New Hybrid Attention Strategy", arXiv:2501.18795.
Reference: `transformers.models.smollm3`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Layers, Size, TokenId
from kerasformer.models.gated_decoder import FULL, SLIDING, GatedDecoder, LayerWindowConfig
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class SmolLM3Config(LayerWindowConfig):
    """Configuration of SmolLM3; the defaults are those of the model of 3 billion parameters.

    Attributes:
        rotary_layers: 1 for each layer with rotary positions and 0 for each one without; by default one of
            `rotary_interval` layers has none. Further numbers are ignored.
        rotary_interval: Distance of the layers without rotary positions.
    """

    model_type = "smollm3"
    default_base = 2000000.0
    # Settings of Qwen2's windows and of tensor parallelism, which the reference does not use.
    ignored = frozenset({"max_window_layers", "pretraining_tp"})

    vocab_size: Size = hf("vocab_size", 128256)
    max_length: Size = hf("max_position_embeddings", 32768)
    hidden_dim: Size = hf("hidden_size", 2048)
    num_layers: Layers = hf("num_hidden_layers", 36)
    num_heads: Size = hf("num_attention_heads", 16)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 4)
    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    tied: bool = hf("tie_word_embeddings", True)
    window_size: Size | None = hf("sliding_window", None)
    rotary_layers: list[int] | None = hf("no_rope_layers", None)
    rotary_interval: Size = hf("no_rope_layer_interval", 4)
    pad_token_id: TokenId | None = hf("pad_token_id", 128004)
    bos_token_id: TokenId | None = hf("bos_token_id", 128000)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 128001)

    def __post_init__(self) -> None:
        """Sets the default layers with rotary positions and validates them."""
        if self.rotary_layers is None:
            layers = [int((index + 1) % self.rotary_interval != 0) for index in range(self.num_layers)]
            object.__setattr__(self, "rotary_layers", layers)
        super().__post_init__()
        if len(self.rotary_layers or ()) < self.num_layers:
            raise UnsupportedConfigError(
                f"no_rope_layers must have a number for each of the {self.num_layers} layers. "
                f"Received: {self.rotary_layers}"
            )

    def default_layer_types(self) -> list[str]:
        """Returns a sliding window for the layers without rotary positions."""
        return [FULL if has_positions else SLIDING for has_positions in (self.rotary_layers or ())[: self.num_layers]]


class SmolLM3(GatedDecoder):
    """SmolLM3 without head."""

    config_type = SmolLM3Config

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention, without rotary positions in some layers."""
        options = super().attention_options(index)
        return options if self.config.rotary_layers[index] else {**options, "rotary": None}


MODELS = task_models.heads_like(llama.MODELS, SmolLM3)
