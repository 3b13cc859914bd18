"""Falcon: a decoder-only language model with rotary positions, and heads that share keys and values.

The models of 7, 11, 40 and 180 billion parameters have this architecture; Falcon 3 is a LLaMA.

Derived from: `gpt_neox`.
Paper: Almazrouei et al. 2023, "The Falcon Series of Open Language Models", arXiv:2311.16867.
Reference: `transformers.models.falcon`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import RotaryConfig
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class FalconConfig(RotaryConfig):
    """Configuration of Falcon; the defaults are those of the model of 7 billion parameters.

    Attributes:
        num_key_value_heads: Number of key and value heads of the new architecture, `num_heads` by default.
        new: Whether the architecture is that of the model of 40 billion parameters, with grouped heads.
        multi_query: Whether all heads of an old architecture have the same keys and values.
        parallel: Whether attention and feed-forward of a layer both take its input; otherwise one follows the other.
        num_norms: Number of norms in a parallel layer; by default 2 in the new architecture, and 1 in the old one.
        use_bias: Whether the layers have biases.
    """

    model_type = "falcon"
    same_as = {"num_key_value_heads": "num_heads"}
    # The reference rounds these biases to bfloat16 at each position, which no other runtime does.
    required = {"alibi": (False, None)}

    vocab_size: Size = hf("vocab_size", 65024)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 4544, "n_embed")
    num_layers: Layers = hf("num_hidden_layers", 32, "n_layer")
    num_heads: Size = hf("num_attention_heads", 71, "n_head")
    num_key_value_heads: Size | None = hf("num_kv_heads", None, "n_head_kv")
    intermediate_dim: Size | None = hf("ffn_hidden_size", None)
    hidden_act: str = hf("activation", "gelu")
    new: bool = hf("new_decoder_architecture", False)
    multi_query: bool = hf("multi_query", True)
    parallel: bool = hf("parallel_attn", True)
    num_norms: Size | None = hf("num_ln_in_parallel_attn", None)
    use_bias: bool = hf("bias", False)
    hidden_dropout: Rate = hf("hidden_dropout", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", 11)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 11)

    def __post_init__(self) -> None:
        """Sets the default size of the feed-forward network, and refuses norms that the reference does not have."""
        if self.intermediate_dim is None:
            object.__setattr__(self, "intermediate_dim", 4 * self.hidden_dim)
        super().__post_init__()
        received = f"new_decoder_architecture={self.new}, parallel_attn={self.parallel}"
        if self.new and not self.parallel:
            raise UnsupportedConfigError(
                f"parallel_attn must be true in a new decoder architecture. Received: {received}"
            )
        allowed = (None, 1, 2) if self.new else (None, 1)
        if self.num_norms not in allowed:
            expected = " or ".join(map(str, allowed[1:]))
            raise UnsupportedConfigError(
                f"num_ln_in_parallel_attn must be {expected} with {received}. Received: {self.num_norms}"
            )

    @property
    def two_norms(self) -> bool:
        """Whether attention and feed-forward of a parallel layer have separate norms."""
        return self.new and self.num_norms != 1

    @property
    def groups(self) -> int:
        """Number of key and value heads."""
        if self.new:
            return int(self.num_key_value_heads or 0)
        return 1 if self.multi_query else self.num_heads


class Falcon(CausalDecoder):
    """Falcon without head."""

    config_type = FalconConfig
    names = Names("transformer.", (r"h\.\d+\.self_attention\.rotary_emb\.inv_freq",), tokens="word_embeddings.weight")

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns what the layers normalize."""
        config = self.config
        return {"order": ("parallel" if config.two_norms else "shared_parallel") if config.parallel else "pre_norm"}

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the rotary positions, the number of key and value heads, and whether there are biases."""
        config = self.config
        return {"num_key_value_heads": config.groups, "rotary": config.rotary, "use_bias": config.use_bias}

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns whether there are biases."""
        return {"use_bias": self.config.use_bias}

    def rows(self) -> list[Row]:
        """Returns the weight table; queries, keys and values are interleaved by groups of heads."""
        config, biases = self.config, {"bias": self.config.use_bias}
        names = ("ln_attn", "ln_mlp") if config.two_norms else ("input_layernorm", "post_attention_layernorm")
        projections = [f"attention/{name}" for name in ("query", "key", "value")]
        layer = [
            *norm("attention_norm", names[0]),
            *([] if config.parallel and not config.two_norms else norm("feed_forward_norm", names[1])),
            *fused(projections, "self_attention.query_key_value", groups=config.groups, **biases),
            *dense("attention/output", "self_attention.dense", **biases),
            *dense("feed_forward/intermediate", "mlp.dense_h_to_4h", **biases),
            *dense("feed_forward/output", "mlp.dense_4h_to_h", **biases),
        ]
        return [
            *embedding("tokens", "word_embeddings"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


MODELS = task_models.heads(
    Falcon,
    CausalLM,
    task_models.CausalFeatures,
    task_models.CausalClassification,
    task_models.CausalTokenClassification,
    task_models.CausalQuestionAnswering,
)
