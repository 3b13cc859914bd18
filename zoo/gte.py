"""GTE: Nomic BERT with biases, of which some models have no segments, for texts in many languages (mGTE).

The embedding models gte-multilingual-base and gte-en-v1.5, and snowflake-arctic-embed-m-v2.0 have this architecture.

Derived from: `nomic_bert`.
Paper: Zhang et al. 2024, "mGTE: Generalized Long-Context Text Representation and Reranking Models for Multilingual Text
Retrieval", arXiv:2407.19669. Reference: `transformers.models.gte`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer.layers import FeedForward
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Size, TokenId
from kerasformer.models.encoder import TOKENS
from kerasformer.models.weight_table import Names, Row, dense, norm, output_matrix
from kerasformer.zoo import nomic_bert


@dataclass(frozen=True, kw_only=True)
class GteConfig(nomic_bert.RotaryEncoderConfig):
    """Configuration of GTE; the defaults are those of `gte-multilingual-base`."""

    model_type = "gte"
    default_base = 160000.0
    # What the code of the authors can do beyond the reference.
    required = {
        "layer_norm_type": ("layer_norm",),
        "position_embedding_type": ("rope",),
        "logn_attention_scale": (False,),
        "logn_attention_clip1": (False,),
        "pack_qkv": (True,),
    }
    # Kernels with equal results.
    ignored = frozenset({"unpad_inputs", "use_memory_efficient_attention"})

    vocab_size: Size = hf("vocab_size", 250048)
    num_segments: Count = hf("type_vocab_size", 1)
    max_length: Size = hf("max_position_embeddings", 8192)
    pad_token_id: TokenId | None = hf("pad_token_id", 1)


class Gte(nomic_bert.NomicBert):
    """GTE without head."""

    config_type = GteConfig
    # Ignored: an unused pooler.
    names = Names(
        "gte.",
        (r"pooler\..*",),
        tokens=TOKENS,
        other_prefixes=("new.",),
        published={
            "encoder.layer.": ("layers.",),
            "attention.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attention.o_proj": ("self_attn.o_proj",),
            "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
            ".attn_ln.": (".post_attention_layernorm.",),
            ".mlp_ln.": (".post_mlp_layernorm.",),
            "lm_head.norm.": ("lm_head.layer_norm.",),
        },
    )
    biases = True

    def make_feed_forward(self, **options: Any) -> FeedForward:
        """Creates a gated feed-forward network with dropout after the activation."""
        return super().make_feed_forward(dropout=self.config.hidden_dropout, **options)


class GteFillMask(task_models.FillMask, backbone=Gte):
    """GTE for masked language modelling."""

    head_activation = "gelu"
    head_table = (
        *dense("dense", "lm_head.dense"),
        *norm("norm", "lm_head.layer_norm"),
        Row(("bias",), "lm_head.decoder.bias"),
        output_matrix("lm_head.decoder.weight", "projection/kernel"),
    )


MODELS = task_models.heads_like(nomic_bert.MODELS, Gte, GteFillMask)
