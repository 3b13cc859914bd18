"""LFM2: LLaMA with short convolutions in place of the attention of most layers, and normalized queries and keys.

LFM2 and LFM2.5 have this architecture; models with experts or images have others. A convolution keeps its inputs at
earlier tokens instead of keys and values.

Derived from: `llama`.
Paper: Liquid AI 2025, "LFM2 Technical Report", arXiv:2511.23404. Reference: `transformers.models.lfm2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import keras

from kerasformer.files.reading import JsonMapping
from kerasformer.layers import ShortConvolution
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Positive, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import FULL
from kerasformer.models.hybrid_decoder import HybridDecoder, HybridDecoderConfig
from kerasformer.models.layouts import Convolution
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, nested, norm


@dataclass(frozen=True, kw_only=True)
class Lfm2Config(HybridDecoderConfig):
    """Configuration of LFM2; the defaults are those of the reference class.

    Attributes:
        convolution_bias: Whether convolutions and their projections have a bias.
        convolution_size: Number of tokens in the kernel of a convolution.
        adjusts_intermediate: Whether the feed-forward size is two thirds of `intermediate_dim` times `multiplier`,
            rounded up to a multiple of `multiple_of`.
        attention_layers: Indices of the layers with attention in older files, all by default.
    """

    model_type = "lfm2"
    default_base = 1e6
    mixer_type = "conv"
    required = {"block_use_swiglu": (True,), "use_pos_enc": (True,)}
    older: ClassVar[Mapping[str, str]] = {"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings"}
    # Initial weights, and what other keys say.
    ignored = frozenset(
        """block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_xavier_init conv_dim
        conv_dim_out conv_use_xavier_init num_heads theta""".split()
    )

    attention_bias: ClassVar[bool] = False  # type: ignore[misc]
    hidden_act: ClassVar[str] = "silu"  # type: ignore[misc]
    attention_dropout: ClassVar[float] = 0.0  # type: ignore[misc]

    vocab_size: Size = hf("vocab_size", 65536)
    max_length: Size = hf("max_position_embeddings", 128000)
    hidden_dim: Size = hf("hidden_size", 2560)
    intermediate_dim: Size = hf("intermediate_size", 12288)
    num_key_value_heads: Size | None = hf("num_key_value_heads", 8)
    epsilon: Epsilon = hf("norm_eps", 1e-5)
    tied: bool = hf("tie_word_embeddings", True)
    convolution_bias: bool = hf("conv_bias", False)
    convolution_size: Size = hf("conv_L_cache", 3)
    adjusts_intermediate: bool = hf("block_auto_adjust_ff_dim", True)
    multiplier: Positive | None = hf("block_ffn_dim_multiplier", 1.0)
    multiple_of: Size = hf("block_multiple_of", 256)
    attention_layers: list[int] | None = hf("full_attn_idxs", None)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    def default_layer_types(self) -> list[str]:
        """See `HybridDecoderConfig.default_layer_types`."""
        indices = range(self.num_layers)
        attention = indices if self.attention_layers is None else self.attention_layers
        return [FULL if index in attention else self.mixer_type for index in indices]

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """See `Config.from_hf`; keys of older files take precedence, as in the reference."""
        values = {name: content[older] for older, name in cls.older.items() if older in content}
        return super().from_hf({**{key: content[key] for key in content if key not in cls.older}, **values})


class Lfm2(HybridDecoder):
    """LFM2 without head."""

    config_type = Lfm2Config
    names = Names("model.", tokens="embed_tokens.weight")
    attention_tensors = {**HybridDecoder.attention_tensors, "output": "out_proj"}
    layer_norms = {"attention_norm": "operator_norm", "feed_forward_norm": "ffn_norm"}
    final_norm = "embedding_norm"

    @property
    def feed_forward_dim(self) -> int:
        """Size `F` of the feed-forward networks."""
        config, size = self.config, self.config.intermediate_dim
        if not config.adjusts_intermediate:
            return size
        size = int(2 * size / 3)
        if config.multiplier is None:
            return size
        return -(-int(config.multiplier * size) // config.multiple_of) * config.multiple_of

    def make_mixer(self) -> keras.layers.Layer:
        """Creates a convolution."""
        config = self.config
        sizes = config.hidden_dim, config.convolution_size, config.convolution_bias
        return ShortConvolution(*sizes, kernel_initializer=self.initializer, name="convolution")

    def attention_options(self, index: int) -> dict[str, Any]:
        """Returns the options of LLaMA's attention, and the norm of queries and keys."""
        return {**super().attention_options(index), "query_key_norm": self.config.epsilon}

    def attention_rows(self) -> list[Row]:
        """Returns the weight table of attention, with the norm of queries and keys."""
        names = {"query_norm": "q_layernorm", "key_norm": "k_layernorm"}
        rows = [row for pair in names.items() for row in norm(*pair, bias=False)]
        return [*super().attention_rows(), *nested(rows, "attention/", "self_attn.")]

    def mixer_rows(self) -> list[Row]:
        """Returns the weight table of a convolution."""
        bias, layout = self.config.convolution_bias, Convolution(self.config.convolution_size)
        rows = [*dense("input", "in_proj", bias=bias), *dense("output", "out_proj", bias=bias)]
        rows += [Row(("kernel",), "conv.weight", layout=layout), *([Row(("bias",), "conv.bias")] if bias else [])]
        return nested(rows, "convolution/", "conv.")

    def feed_forward_rows(self) -> list[Row]:
        """Returns the weight table of the feed-forward network."""
        names = {"gate": "w1", "up": "w3", "output": "w2"}
        rows = [row for pair in names.items() for row in dense(*pair, bias=False)]
        return nested(rows, "feed_forward/", "feed_forward.")


MODELS = heads(Lfm2, CausalLM, CausalFeatures)
