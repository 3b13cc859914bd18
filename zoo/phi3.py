"""Phi-3: LLaMA with fused projections, and optional windows and rotary frequencies for long texts (LongRoPE).

Phi-3, Phi-3.5 and Phi-4-mini have this architecture.

Derived from: `llama`.
Paper: Abdin et al. 2024, "Phi-3 Technical Report: A Highly Capable Language Model Locally on Your Phone",
arXiv:2404.14219. Reference: `transformers.models.phi3`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Row, dense, fused, norm
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class Phi3Config(GatedDecoderConfig):
    """Configuration of Phi-3; the defaults are those of Phi-3-mini with texts of 4096 tokens.

    Attributes:
        original_length: Length of the texts of pretraining, up to which `longrope` uses its short factors.
        window_size: Number of tokens that a token sees, itself included; `None` for all.
    """

    model_type = "phi3"
    rotated_share = 1.0
    same_as = {"num_key_value_heads": "num_heads"}
    required = {name: (False,) for name in ("attention_bias", "mlp_bias", "lm_head_bias")}
    # Settings of the training program.
    ignored = frozenset({"interpolate_factor", "full_attn_mod"})

    vocab_size: Size = hf("vocab_size", 32064)
    max_length: Size = hf("max_position_embeddings", 4096)
    original_length: Size = hf("original_max_position_embeddings", 4096)
    hidden_dim: Size = hf("hidden_size", 3072)
    intermediate_dim: Size = hf("intermediate_size", 8192)
    window_size: Size | None = hf("sliding_window", None)
    residual_dropout: Rate = hf("resid_pdrop", 0.0)
    embedding_dropout: Rate = hf("embd_pdrop", 0.0)
    epsilon: Epsilon = hf("rms_norm_eps", 1e-5)
    pad_token_id: TokenId | None = hf("pad_token_id", 32000)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 32000)

    def __post_init__(self) -> None:
        """Completes the settings of `longrope`, the only scaling of the reference, and refuses others."""
        rope = dict(self.rope or {})
        if rope.get("rope_type") in ("su", "yarn"):  # names of early files
            rope["rope_type"] = "longrope"
        if rope.get("rope_type", "default") not in ("default", "longrope"):
            raise UnsupportedConfigError(
                f"rope_parameters of phi3 must have the rope_type 'default' or 'longrope'. Received: {rope}"
            )
        if rope.get("rope_type") == "longrope":
            rope["original_max_position_embeddings"] = self.original_length
        if rope:
            object.__setattr__(self, "rope", rope)
        super().__post_init__()

    def window(self, index: int) -> int | None:
        """Returns the size of the sliding window, which is the same in all layers."""
        return self.window_size


class Phi3(GatedDecoder):
    """Phi-3 without head."""

    config_type = Phi3Config

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer."""
        return [
            *norm("attention_norm", "input_layernorm", bias=False),
            *norm("feed_forward_norm", "post_attention_layernorm", bias=False),
            *fused([f"attention/{name}" for name in ("query", "key", "value")], "self_attn.qkv_proj", bias=False),
            *dense("attention/output", "self_attn.o_proj", bias=False),
            *fused([f"feed_forward/{name}" for name in ("gate", "up")], "mlp.gate_up_proj", bias=False),
            *dense("feed_forward/output", "mlp.down_proj", bias=False),
        ]


MODELS = heads(Phi3, CausalLM, CausalFeatures, CausalClassification, llama.LlamaCausalTokenClassification)
