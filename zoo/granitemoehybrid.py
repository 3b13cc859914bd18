"""Granite 4: Granite with Mamba-2 in place of the attention of most layers, or with attention alone.

Rotary positions are optional. Models with experts have this `model_type`, too; they are refused. Instead of keys and
values, Mamba-2 keeps a matrix of fixed size for each head.

Derived from: `granite`.
Paper: Dao and Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality", arXiv:2405.21060.
Reference: `transformers.models.granitemoehybrid`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import keras

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Size
from kerasformer.models.gated_decoder import FULL
from kerasformer.models.hybrid_decoder import LINEAR, HybridDecoder, HybridDecoderConfig
from kerasformer.models.mamba2_decoder import Mamba2DecoderConfig, mamba2, mamba2_rows
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Row, dense, fused, nested
from kerasformer.zoo.granite import Granite, GraniteCausalLM, GraniteConfig


@dataclass(frozen=True, kw_only=True)
class GraniteMoeHybridConfig(GraniteConfig, HybridDecoderConfig, Mamba2DecoderConfig):
    """Configuration of Granite 4; the defaults are those of the reference class, except that there are no experts.

    Attributes:
        num_experts: Number of experts, which must be 0.
        positions: `rope` for rotary positions; none by default.
    """

    model_type = "granitemoehybrid"
    required = {**Mamba2DecoderConfig.required, "normalization_function": ("rmsnorm",)}
    ignored = frozenset(
        """intermediate_size mamba_chunk_size num_experts_per_tok output_router_logits pretraining_tp
        router_aux_loss_coef""".split()
    )
    older_types = {"mamba": LINEAR, "attention": FULL}

    mlp_bias: ClassVar[bool] = False  # type: ignore[misc]

    intermediate_dim: Size = hf("shared_intermediate_size", 1024)
    num_experts: Count = hf("num_local_experts", 0)
    positions: Literal["rope", "nope"] | None = hf("position_embedding_type", None)

    def __post_init__(self) -> None:
        """Refuses experts."""
        super().__post_init__()
        if self.num_experts:
            raise UnsupportedConfigError(
                f"Granite 4 is supported without experts, num_local_experts=0. Received: {self.num_experts}"
            )


class GraniteMoeHybrid(HybridDecoder, Granite):
    """Granite 4 without head."""

    config_type = GraniteMoeHybridConfig

    def make_mixer(self) -> keras.layers.Layer:
        """Creates Mamba-2."""
        return mamba2(self.config, self.initializer)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of Granite's attention, with rotary positions only if they are asked for."""
        options = super().attention_options(index)
        return options if self.config.positions == "rope" else {**options, "rotary": None}

    def mixer_rows(self) -> list[Row]:
        """Returns the weight table of Mamba-2."""
        return mamba2_rows(self.config)

    def feed_forward_rows(self) -> list[Row]:
        """Returns the weight table of the feed-forward network."""
        rows = fused(["gate", "up"], "input_linear", bias=False) + dense("output", "output_linear", bias=False)
        return nested(rows, "feed_forward/", "shared_mlp.")


class GraniteMoeHybridCausalLM(GraniteCausalLM, backbone=GraniteMoeHybrid):
    """Granite 4 for text generation."""


MODELS = heads(GraniteMoeHybrid, GraniteMoeHybridCausalLM, CausalFeatures)
