"""BLOOM: a decoder-only language model with linear position biases (ALiBi).

Derived from: `gpt2`.
Paper: BigScience Workshop 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", arXiv:2211.05100;
positions: Press et al. 2022, arXiv:2108.12409. Reference: `transformers.models.bloom`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers import Visibility, alibi_bias
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import (
    CausalClassification,
    CausalFeatures,
    CausalQuestionAnswering,
    CausalTokenClassification,
    heads,
)
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class BloomConfig(Config):
    """Configuration of BLOOM; the defaults are those of the reference, a tiny model."""

    model_type = "bloom"
    hidden_act: ClassVar[str] = "gelu_new"
    required = {"apply_residual_connection_post_layernorm": (False,), "n_inner": (None,)}
    # Settings of distributed training, and of kernels with equal results.
    ignored = frozenset(
        """attention_softmax_in_fp32 masked_softmax_fusion offset_alibi pretraining_tp seq_length skip_bias_add
        skip_bias_add_qkv slow_but_exact unk_token_id""".split()
    )

    vocab_size: Size = hf("vocab_size", 250880)
    hidden_dim: Size = hf("hidden_size", 64, "n_embed")
    num_layers: Layers = hf("n_layer", 2, "num_hidden_layers")
    num_heads: Size = hf("n_head", 8, "num_attention_heads")
    hidden_dropout: Rate = hf("hidden_dropout", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    @property
    def intermediate_dim(self) -> int:
        """Size of the intermediate layer of the feed-forward network."""
        return 4 * self.hidden_dim


class Bloom(CausalDecoder):
    """BLOOM without head."""

    config_type = BloomConfig
    input_arrays = (INPUT_IDS, ATTENTION_MASK)
    has_embedding_norm = True
    heads_differ = True
    names = Names("transformer.", tokens="word_embeddings.weight")

    def position_bias(self, visibility: Visibility) -> Tensor:
        """Returns the linear position biases; padding does not change the distances between slots."""
        return alibi_bias(self.config.num_heads, visibility.query_slots, visibility.key_slots)

    def rows(self) -> list[Row]:
        """Returns the weight table; queries, keys and values are interleaved by heads."""
        projections = ["attention/query", "attention/key", "attention/value"]
        layer = [
            *norm("attention_norm", "input_layernorm"),
            *fused(projections, "self_attention.query_key_value", groups=self.config.num_heads),
            *dense("attention/output", "self_attention.dense"),
            *norm("feed_forward_norm", "post_attention_layernorm"),
            *dense("feed_forward/intermediate", "mlp.dense_h_to_4h"),
            *dense("feed_forward/output", "mlp.dense_4h_to_h"),
        ]
        return [
            *embedding("tokens", "word_embeddings"),
            *norm("embedding_norm", "word_embeddings_layernorm"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


MODELS = heads(
    Bloom, CausalLM, CausalFeatures, CausalClassification, CausalTokenClassification, CausalQuestionAnswering
)
