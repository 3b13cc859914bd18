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
from kerasformer.layers import Mamba2
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Size
from kerasformer.models.gated_decoder import FULL
from kerasformer.models.hybrid_decoder import LINEAR, HybridDecoder, HybridDecoderConfig
from kerasformer.models.layouts import Convolution
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Row, dense, fused, nested
from kerasformer.zoo.granite import Granite, GraniteCausalLM, GraniteConfig

UNLIMITED = [0.0, float("inf")]


@dataclass(frozen=True, kw_only=True)
class GraniteMoeHybridConfig(GraniteConfig, HybridDecoderConfig):
    """Configuration of Granite 4; the defaults are those of the reference class, except that there are no experts.

    Attributes:
        num_experts: Number of experts, which must be 0.
        positions: `rope` for rotary positions; none by default.
        state_dim: Size of the state of Mamba-2 for each value.
        num_state_heads: Number of its heads.
        state_head_dim: Size of its heads; `expansion` times the hidden size in all, which is the default.
        num_groups: Number of groups of heads with common inputs and outputs of the state.
        expansion: Size of all heads divided by the hidden size.
        kernel_size: Number of tokens in the kernel of its convolution.
        convolution_bias: Whether this convolution has a bias.
    """

    model_type = "granitemoehybrid"
    # A bias before the convolution would make the states of a text depend on the padding before it.
    required = {"mamba_proj_bias": (False,), "time_step_limit": (None, UNLIMITED, [0.0, {"__float__": "Infinity"}])}
    ignored = frozenset(
        """intermediate_size mamba_chunk_size num_experts_per_tok output_router_logits pretraining_tp
        router_aux_loss_coef""".split()
    )
    older_types = {"mamba": LINEAR, "attention": FULL}

    mlp_bias: ClassVar[bool] = False  # type: ignore[misc]

    intermediate_dim: Size = hf("shared_intermediate_size", 1024)
    num_experts: Count = hf("num_local_experts", 0)
    positions: Literal["rope", "nope"] | None = hf("position_embedding_type", None)
    state_dim: Size = hf("mamba_d_state", 256)
    num_state_heads: Size = hf("mamba_n_heads", 128)
    state_head_dim: Size | Literal["auto"] = hf("mamba_d_head", "auto")
    num_groups: Size = hf("mamba_n_groups", 1)
    expansion: Size = hf("mamba_expand", 2)
    kernel_size: Size = hf("mamba_d_conv", 4)
    convolution_bias: bool = hf("mamba_conv_bias", True)

    def __post_init__(self) -> None:
        """Sets the default size of heads, and validates it."""
        super().__post_init__()
        inner, count = self.expansion * self.hidden_dim, self.num_state_heads
        if self.state_head_dim == "auto":
            object.__setattr__(self, "state_head_dim", inner // count)
        if self.state_head_dim * count != inner:
            raise UnsupportedConfigError(
                f"mamba_n_heads times mamba_d_head must be mamba_expand times hidden_size, {inner}. "
                f"Received: {count} times {self.state_head_dim}"
            )
        if self.num_experts:
            raise UnsupportedConfigError(
                f"Granite 4 is supported without experts, num_local_experts=0. Received: {self.num_experts}"
            )


class GraniteMoeHybrid(HybridDecoder, Granite):
    """Granite 4 without head."""

    config_type = GraniteMoeHybridConfig

    def make_mixer(self) -> keras.layers.Layer:
        """Creates Mamba-2."""
        config = self.config
        return Mamba2(
            config.hidden_dim,
            config.num_state_heads,
            config.num_groups,
            config.state_head_dim,
            config.state_dim,
            config.kernel_size,
            config.convolution_bias,
            config.hidden_act,
            config.epsilon,
            self.initializer,
            name="mamba",
        )

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of Granite's attention, with rotary positions only if they are asked for."""
        options = super().attention_options(index)
        return options if self.config.positions == "rope" else {**options, "rotary": None}

    def mixer_rows(self) -> list[Row]:
        """Returns the weight table of Mamba-2."""
        config = self.config
        rows = [*dense("input", "in_proj", bias=False), *dense("output", "out_proj", bias=False)]
        names = {"decay_log": "A_log", "decay_bias": "dt_bias", "skip": "D", "scale": "norm.weight"}
        rows += [Row((path,), tensor) for path, tensor in names.items()]
        rows.append(Row(("kernel",), "conv1d.weight", layout=Convolution(config.kernel_size)))
        rows += [Row(("bias",), "conv1d.bias")] if config.convolution_bias else []
        return nested(rows, "mamba/", "mamba.")

    def feed_forward_rows(self) -> list[Row]:
        """Returns the weight table of the feed-forward network."""
        rows = fused(["gate", "up"], "input_linear", bias=False) + dense("output", "output_linear", bias=False)
        return nested(rows, "feed_forward/", "shared_mlp.")


class GraniteMoeHybridCausalLM(GraniteCausalLM, backbone=GraniteMoeHybrid):
    """Granite 4 for text generation."""


MODELS = heads(GraniteMoeHybrid, GraniteMoeHybridCausalLM, CausalFeatures)
