"""GPT-NeoX: a GPT-2 with partial rotary positions, and attention and feed-forward in parallel.

The Pythia models have the same architecture.

Derived from: `gpt2`.
Paper: Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", arXiv:2204.06745; Pythia:
Biderman et al. 2023, arXiv:2304.01373. Reference: `transformers.models.gpt_neox`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import RotaryConfig
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, output_matrix, repeat


@dataclass(frozen=True, kw_only=True)
class GPTNeoXConfig(RotaryConfig):
    """Configuration of GPT-NeoX; the defaults are those of the model of 20 billion parameters.

    Attributes:
        parallel: Whether attention and feed-forward of a layer both take its input; otherwise one follows the other.
    """

    model_type = "gpt_neox"
    rotated_share = 0.25
    base_keys = ("rotary_emb_base", "rope_theta")
    share_keys = ("rotary_pct", "partial_rotary_factor")
    required = {"is_decoder": (False, True)}  # without effect

    vocab_size: Size = hf("vocab_size", 50432)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 6144)
    num_layers: Layers = hf("num_hidden_layers", 44)
    num_heads: Size = hf("num_attention_heads", 64)
    intermediate_dim: Size = hf("intermediate_size", 24576)
    hidden_act: str = hf("hidden_act", "gelu")
    parallel: bool = hf("use_parallel_residual", True)
    attention_bias: bool = hf("attention_bias", True)
    hidden_dropout: Rate = hf("hidden_dropout", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    classifier_dropout: Rate = hf("classifier_dropout", 0.1)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", False)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class GPTNeoX(CausalDecoder):
    """GPT-NeoX without head."""

    config_type = GPTNeoXConfig
    order = property(lambda self: "parallel" if self.config.parallel else "pre_norm")
    # Ignored: the causal masks and rotary frequencies of older files.
    names = Names(
        "gpt_neox.",
        (r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)", r"rotary_emb\.inv_freq"),
        tokens="embed_in.weight",
        renamed={"lm_head.weight": "embed_out.weight"},
    )

    @property
    def embedding_dropout(self) -> float:
        """Dropout rate of the embeddings."""
        return self.config.hidden_dropout

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the rotary positions of a part of each head."""
        return {"use_bias": self.config.attention_bias, "rotary": self.config.rotary}

    def rows(self) -> list[Row]:
        """Returns the weight table; queries, keys and values are interleaved by heads."""
        config = self.config
        projections = ["attention/query", "attention/key", "attention/value"]
        options = {"bias": config.attention_bias, "groups": config.num_heads}
        layer = [
            *norm("attention_norm", "input_layernorm"),
            *fused(projections, "attention.query_key_value", **options),
            *dense("attention/output", "attention.dense", bias=config.attention_bias),
            *norm("feed_forward_norm", "post_attention_layernorm"),
            *dense("feed_forward/intermediate", "mlp.dense_h_to_4h"),
            *dense("feed_forward/output", "mlp.dense_4h_to_h"),
        ]
        return [
            *embedding("tokens", "embed_in"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "final_layer_norm"),
        ]


class GPTNeoXCausalLM(CausalLM, backbone=GPTNeoX):
    """GPT-NeoX for text generation."""

    head_table = (output_matrix("embed_out.weight"),)


MODELS = task_models.heads(
    GPTNeoX,
    GPTNeoXCausalLM,
    task_models.CausalFeatures,
    task_models.CausalClassification,
    task_models.CausalTokenClassification,
    task_models.CausalQuestionAnswering,
)
