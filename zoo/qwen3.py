"""Qwen3: Qwen2 with normalized queries and keys instead of biases, and heads of any size.

Derived from: `qwen2`.
Paper: Qwen Team 2025, "Qwen3 Technical Report", arXiv:2505.09388. Reference: `transformers.models.qwen3`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size
from kerasformer.models.gated_decoder import GatedDecoder
from kerasformer.models.weight_table import Row, norm
from kerasformer.zoo import llama, qwen2


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(qwen2.Qwen2Config):
    """Configuration of Qwen3; the defaults are those of the reference class."""

    model_type = "qwen3"

    head_dim: Size = hf("head_dim", 128)
    attention_bias: bool = hf("attention_bias", False)

    @property
    def output_bias(self) -> bool:
        """Whether the output projection of the attention has a bias."""
        return self.attention_bias


class Qwen3(GatedDecoder):
    """Qwen3 without head."""

    config_type = Qwen3Config

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention, and the norm of queries and keys."""
        return {**super().attention_options(index), "query_key_norm": self.config.epsilon}

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer."""
        norms = {"attention/query_norm": "self_attn.q_norm", "attention/key_norm": "self_attn.k_norm"}
        return super().layer_rows() + [row for names in norms.items() for row in norm(*names, bias=False)]


class Qwen3CausalClassification(task_models.CausalClassification, backbone=Qwen3):
    """Qwen3 for text classification; a Qwen3-Reranker has the score of a query and a document, before its sigmoid."""

    pair_template = (
        "{%- set ns = namespace(instruct='Given a web search query, retrieve relevant passages that answer the query')"
        " -%}{%- for message in messages if message.role == 'system' %}{% set ns.instruct = message.content %}{% endfor"
        " -%}{%- for message in messages if message.role == 'query' %}{% set ns.query = message.content %}{% endfor -%}"
        "{%- for message in messages if message.role == 'document' %}{% set ns.text = message.content %}{% endfor -%}"
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: {{ ns.instruct }}\n<Query>: {{ ns.query }}\n<Document>: {{ ns.text }}<|im_end|>\n"
        "{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}"
    )


MODELS = task_models.heads_like(llama.MODELS, Qwen3, Qwen3CausalClassification)
