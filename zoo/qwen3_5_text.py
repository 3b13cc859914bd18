"""Qwen3.5: Qwen3 with Gated DeltaNet in place of the attention of most layers, and with gates in the others.

Images are not read. Instead of keys and values, a Gated DeltaNet keeps a matrix of fixed size for each head.

Derived from: `qwen3`.
Paper: Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv:2412.06464.
Reference: `transformers.models.qwen3_5`.
"""

from __future__ import annotations

from dataclasses import dataclass

import keras

from kerasformer.layers import GatedAttention, GatedDeltaNet
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import FULL
from kerasformer.models.hybrid_decoder import HybridDecoder, HybridDecoderConfig
from kerasformer.models.layouts import Convolution
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, fused, nested, norm


@dataclass(frozen=True, kw_only=True)
class Qwen35TextConfig(HybridDecoderConfig):
    """Configuration of Qwen3.5; the defaults are those of the reference class.

    Attributes:
        kernel_size: Number of tokens in the kernel of the convolution of a Gated DeltaNet.
        key_dim: Size of its queries and keys.
        value_dim: Size of its values.
        num_key_heads: Number of its query and key heads.
        num_value_heads: Number of its value heads, a multiple of `num_key_heads`.
        full_every: Distance between layers of the type `full_attention`, for files without `layer_types`.
    """

    model_type = "qwen3_5_text"
    text_part_of = "qwen3_5"
    rotated_share = 0.25
    required = {"attn_output_gate": (True,), "mamba_ssm_dtype": ("float32",), "mlp_only_layers": ([],)}
    # Layers that predict several tokens at once, which are not read.
    ignored = frozenset({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"})

    vocab_size: Size = hf("vocab_size", 248320)
    max_length: Size = hf("max_position_embeddings", 32768)
    intermediate_dim: Size = hf("intermediate_size", 12288)
    num_heads: Size = hf("num_attention_heads", 16)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 4)
    head_dim: Size | None = hf("head_dim", 256)
    attention_bias: bool = hf("attention_bias", False)
    kernel_size: Size = hf("linear_conv_kernel_dim", 4)
    key_dim: Size = hf("linear_key_head_dim", 128)
    value_dim: Size = hf("linear_value_head_dim", 128)
    num_key_heads: Size = hf("linear_num_key_heads", 16)
    num_value_heads: Size = hf("linear_num_value_heads", 32)
    full_every: Size = hf("full_attention_interval", 4)

    def default_layer_types(self) -> list[str]:
        """See `HybridDecoderConfig.default_layer_types`."""
        return [self.mixer_type if (index + 1) % self.full_every else FULL for index in range(self.num_layers)]


class Qwen35Text(HybridDecoder):
    """Qwen3.5 without head."""

    config_type = Qwen35TextConfig
    architecture_prefix = "Qwen3_5Text"
    norm_offset = 1.0
    # Ignored: the layers that predict several tokens at once, and the part that reads images.
    names = Names(
        "model.",
        (r"mtp\..*", r"(model\.)?visual\..*"),
        tokens="embed_tokens.weight",
        other_prefixes=("model.language_model.", "language_model."),
    )

    def make_attention(self, index: int) -> keras.layers.Layer:
        """Creates the attention of a layer, which has a gate, or the Gated DeltaNet in its place."""
        config = self.config
        if config.layer_types[index] != FULL:
            return self.make_mixer()
        options = {"dropout": config.attention_dropout, "kernel_initializer": self.initializer}
        options |= self.attention_options(index)
        return GatedAttention(config.num_heads, config.hidden_dim, name="attention", **options)

    def make_mixer(self) -> keras.layers.Layer:
        """Creates a Gated DeltaNet."""
        config = self.config
        return GatedDeltaNet(
            config.hidden_dim,
            config.num_value_heads,
            config.num_key_heads,
            config.value_dim,
            config.key_dim,
            kernel_size=config.kernel_size,
            activation=config.hidden_act,
            epsilon=config.epsilon,
            kernel_initializer=self.initializer,
            name="delta_net",
        )

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention, and the norm of queries and keys."""
        return {**super().attention_options(index), "query_key_norm": self.config.epsilon}

    def attention_rows(self) -> list[Row]:
        """Returns the weight table of attention."""
        bias = self.config.attention_bias
        rows = fused(["query", "gate"], "q_proj", bias=bias, groups=self.config.num_heads)
        for path, tensor in {"key": "k_proj", "value": "v_proj", "output": "o_proj"}.items():
            rows += dense(path, tensor, bias=bias)
        rows += self.norm_rows({"query_norm": "q_norm", "key_norm": "k_norm"})
        return nested(rows, "attention/", "self_attn.")

    def mixer_rows(self) -> list[Row]:
        """Returns the weight table of a Gated DeltaNet."""
        names = {"input": "in_proj_qkv", "gate": "in_proj_z", "rate": "in_proj_b", "decay": "in_proj_a"}
        rows = [row for pair in names.items() for row in dense(*pair, bias=False)]
        rows += [*dense("output", "out_proj", bias=False), *norm("norm", "norm", bias=False)]
        rows += [Row(("decay_log",), "A_log"), Row(("decay_bias",), "dt_bias")]
        rows.append(Row(("kernel",), "conv1d.weight", layout=Convolution(self.config.kernel_size)))
        return nested(rows, "delta_net/", "linear_attn.")


class Qwen35TextCausalLM(CausalLM, backbone=Qwen35Text):
    """Qwen3.5 for text generation."""

    architecture = "Qwen3_5ForCausalLM"
    former_architecture = "Qwen3_5ForConditionalGeneration"


MODELS = heads(Qwen35Text, Qwen35TextCausalLM, CausalFeatures, CausalClassification)
