"""Cohere: LLaMA with attention and feed-forward in parallel, layer norms without bias, and scaled logits (Command R).

Command R and R+, and Aya 23 and Expanse have this architecture; Command R7B and later models have others.

Derived from: `llama`.
Paper: Aryabumi et al. 2024, "Aya 23: Open Weight Releases to Further Multilingual Progress", arXiv:2405.15032.
Reference: `transformers.models.cohere`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras

from kerasformer.layers import normalization
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Layers, Positive, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Row, norm


@dataclass(frozen=True, kw_only=True)
class CohereConfig(GatedDecoderConfig):
    """Configuration of Cohere; the defaults are those of Command R.

    Attributes:
        logit_scale: Factor of the logits.
        query_key_norm: Whether queries and keys of each head are normalized (Command R+).
    """

    model_type = "cohere"
    interleaved = True
    default_base = 500000.0
    same_as = {"num_key_value_heads": "num_heads"}
    # Settings of tensor parallelism and of the tokenizer.
    ignored = frozenset({"pretraining_tp", "model_max_length"})

    vocab_size: Size = hf("vocab_size", 256000)
    max_length: Size = hf("max_position_embeddings", 8192)
    hidden_dim: Size = hf("hidden_size", 8192)
    intermediate_dim: Size = hf("intermediate_size", 22528)
    num_layers: Layers = hf("num_hidden_layers", 40)
    num_heads: Size = hf("num_attention_heads", 64)
    attention_bias: bool = hf("attention_bias", False)
    logit_scale: Positive = hf("logit_scale", 0.0625)
    query_key_norm: bool = hf("use_qk_norm", False)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-5)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 5)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 255001)


class Cohere(GatedDecoder):
    """Cohere without head."""

    config_type = CohereConfig
    norm = "layer_norm"
    order = "shared_parallel"

    def make_norm(self, name: str) -> keras.layers.Layer:
        """Creates a layer norm without bias."""
        return normalization(self.norm, self.config.epsilon, use_bias=False, name=name)

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns that layer norms have no bias."""
        return {"norm_bias": False}

    def attention_options(self, index: int) -> dict[str, Any]:
        """Returns the options of LLaMA's attention, and the norms of queries and keys."""
        epsilon = self.config.epsilon if self.config.query_key_norm else None
        return {**super().attention_options(index), "query_key_norm": epsilon, "query_key_norm_kind": "head_norm"}

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer."""
        rows = [row for row in super().layer_rows() if row.variables != ("feed_forward_norm/scale",)]
        norms = {"attention/query_norm": "self_attn.q_norm", "attention/key_norm": "self_attn.k_norm"}
        if self.config.query_key_norm:
            rows += [row for path, name in norms.items() for row in norm(path, name, bias=False)]
        return rows


class CohereCausalLM(CausalLM, backbone=Cohere):
    """Cohere for text generation."""

    def head_options(self) -> dict[str, Any]:
        """Adds the factor of the logits."""
        return {**super().head_options(), "scale": self.config.logit_scale}


MODELS = heads(Cohere, CohereCausalLM, CausalFeatures)
