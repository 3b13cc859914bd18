"""What decoders with Mamba-2 have in common: its configuration, layer and weight table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import Mamba2
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.models.gated_decoder import GatedDecoderConfig
from kerasformer.models.layouts import Convolution
from kerasformer.models.weight_table import Row, dense, nested

_UNLIMITED = [0.0, float("inf")]


@dataclass(frozen=True, kw_only=True)
class Mamba2DecoderConfig(GatedDecoderConfig):
    """Base of the configurations.

    Attributes:
        state_dim: Size of the state of Mamba-2 for each value.
        num_state_heads: Number of its heads.
        state_head_dim: Size of its heads; `state_inner_dim` in all, which is the default.
        num_groups: Number of groups of heads with common inputs and outputs of the state.
        expansion: Size of all heads divided by the hidden size.
        kernel_size: Number of tokens in the kernel of its convolution.
        convolution_bias: Whether this convolution has a bias.
    """

    # A bias before the convolution would make the states of a text depend on the padding before it.
    required = {"mamba_proj_bias": (False,), "time_step_limit": (None, _UNLIMITED, [0.0, {"__float__": "Infinity"}])}

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
        inner, count = self.state_inner_dim, self.num_state_heads
        if self.state_head_dim == "auto":
            object.__setattr__(self, "state_head_dim", inner // count)
        if self.state_head_dim * count != inner:
            raise UnsupportedConfigError(
                "mamba_n_heads times mamba_d_head must be mamba_d_ssm, or mamba_expand times hidden_size without it, "
                f"{inner}. Received: {count} times {self.state_head_dim} for {inner}"
            )

    @property
    def state_inner_dim(self) -> int:
        """Size of all heads of Mamba-2."""
        return self.expansion * self.hidden_dim


def mamba2(config: Mamba2DecoderConfig, initializer: dict[str, Any], **options: Any) -> Mamba2:
    """Creates Mamba-2; `options` are further arguments of the layer."""
    return Mamba2(
        config.hidden_dim,
        config.num_state_heads,
        config.num_groups,
        int(config.state_head_dim),
        config.state_dim,
        kernel_size=config.kernel_size,
        convolution_bias=config.convolution_bias,
        activation=config.hidden_act,
        epsilon=config.epsilon,
        kernel_initializer=initializer,
        name="mamba",
        **options,
    )


def mamba2_rows(config: Mamba2DecoderConfig, has_norm: bool = True) -> list[Row]:
    """Returns the weight table of Mamba-2, below the name of the layer that contains it."""
    rows = [*dense("input", "in_proj", bias=False), *dense("output", "out_proj", bias=False)]
    names = {"decay_log": "A_log", "decay_bias": "dt_bias", "skip": "D"}
    names |= {"bias": "conv1d.bias"} if config.convolution_bias else {}
    names |= {"scale": "norm.weight"} if has_norm else {}
    rows += [Row((path,), tensor) for path, tensor in names.items()]
    rows.append(Row(("kernel",), "conv1d.weight", layout=Convolution(config.kernel_size)))
    return nested(rows, "mamba/", "mamba.")
