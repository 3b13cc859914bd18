"""LLaMA: a decoder-only language model with rotary positions and grouped-query attention.

Llama 2, 3 and 3.2, TinyLlama, SmolLM and SmolLM2 have the same architecture.

Derived from: the Transformer.
Paper: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", arXiv:2302.13971; grouped heads and
longer texts: Llama Team 2024, "The Llama 3 Herd of Models", arXiv:2407.21783. Reference: `transformers.models.llama`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import GatedDecoder, GatedDecoderConfig
from kerasformer.models.weight_table import dense


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(GatedDecoderConfig):
    """Configuration of LLaMA; the defaults are those of the model of 7 billion parameters."""

    model_type = "llama"
    required = {"rope_interleaved": (False, None)}
    # A setting of tensor parallelism, which affects only the order of summation; a mark of the training program.
    ignored = frozenset({"pretraining_tp", "is_llama_config"})

    attention_bias: bool = hf("attention_bias", False)
    mlp_bias: bool = hf("mlp_bias", False)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class Llama(GatedDecoder):
    """LLaMA without head."""

    config_type = LlamaConfig


class LlamaCausalTokenClassification(task_models.CausalTokenClassification, backbone=Llama):
    """LLaMA for token classification, such as named entity recognition."""

    head_table = dense("output", "score")


class LlamaCausalQuestionAnswering(task_models.CausalQuestionAnswering, backbone=Llama):
    """LLaMA for extractive question answering."""

    prefix = "transformer."


MODELS = task_models.heads(
    Llama,
    CausalLM,
    task_models.CausalFeatures,
    task_models.CausalClassification,
    LlamaCausalTokenClassification,
    LlamaCausalQuestionAnswering,
)
