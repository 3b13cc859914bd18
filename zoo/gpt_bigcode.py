"""GPT-BigCode: GPT-2 with one head of keys and values for all heads (SantaCoder, StarCoder).

Derived from: `gpt2`.
Paper: Ben Allal et al. 2023, "SantaCoder: don't reach for the stars!", arXiv:2301.03988; one head of keys and values:
Shazeer 2019, arXiv:1911.02150. Reference: `transformers.models.gpt_bigcode`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import (
    CausalClassification,
    CausalFeatures,
    CausalTokenClassification,
    heads,
)
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat
from kerasformer.zoo.gpt2 import Gpt2BaseConfig


@dataclass(frozen=True, kw_only=True)
class GptBigcodeConfig(Gpt2BaseConfig):
    """Configuration of GPT-BigCode; the defaults are those of `transformers`."""

    model_type = "gpt_bigcode"
    # Settings of kernels with equal results, and a number that `multi_query` determines.
    ignored = Gpt2BaseConfig.ignored | frozenset(
        """inference_runner max_batch_size max_sequence_length pad_key_length pre_allocate_kv_cache
        validate_runner_input num_key_value_heads""".split()
    )

    hidden_act: str = hf("activation_function", "gelu_pytorch_tanh")
    multi_query: bool = hf("multi_query", True)
    # Kept without effect: the softmax is always computed in float32.
    float32_softmax: bool = hf("attention_softmax_in_fp32", True)
    float32_scale: bool = hf("scale_attention_softmax_in_fp32", True)


class GptBigcode(CausalDecoder):
    """GPT-BigCode without head."""

    config_type = GptBigcodeConfig
    architecture_prefix = "GPTBigCode"
    has_positions = True
    embedding_dropout = property(lambda self: self.config.embedding_dropout)
    hidden_dropout = property(lambda self: self.config.residual_dropout)
    # Ignored: the causal mask of older files. GPT-2 has the same names of tensors.
    names = Names("transformer.", ("bias",), tokens="wte.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the number of heads of keys and values, and the scale of the scores."""
        config = self.config
        scale = None if config.scale_attention else 1.0
        return {"num_key_value_heads": 1 if config.multi_query else config.num_heads, "scale": scale}

    def rows(self) -> list[Row]:
        """Returns the weight table; with `multi_query=False`, queries, keys and values are interleaved by heads."""
        config = self.config
        projections = ["attention/query", "attention/key", "attention/value"]
        layer = [
            *norm("attention_norm", "ln_1"),
            *fused(projections, "attn.c_attn", groups=None if config.multi_query else config.num_heads),
            *dense("attention/output", "attn.c_proj"),
            *norm("feed_forward_norm", "ln_2"),
            *dense("feed_forward/intermediate", "mlp.c_fc"),
            *dense("feed_forward/output", "mlp.c_proj"),
        ]
        return [
            *embedding("tokens", "wte"),
            *embedding("positions", "wpe"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


MODELS = heads(GptBigcode, CausalLM, CausalFeatures, CausalClassification, CausalTokenClassification)
