"""Gemma 2: LLaMA with local and global layers in turn, four norms in each layer, and soft limits of scores and logits.

Derived from: `llama`.
Paper: Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", arXiv:2408.00118.
Reference: `transformers.models.gemma2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Layers, Positive, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.gated_decoder import FULL, SLIDING, GatedDecoder, GatedDecoderConfig
from kerasformer.models.rotary_config import check_layer_types
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Row, dense, embedding, nested, norm, repeat
from kerasformer.zoo import llama


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(Config):
    """Base of the configurations of Gemma 2 and 3: the fields that both have, with the same defaults.

    Attributes:
        score_scale: Number whose inverse square root is the factor of the attention scores.
        window_size: Number of tokens that a token of a layer of the type `sliding_attention` sees, itself included.
        layer_types: Type of each layer; `None` for those of `default_layer_types`.
    """

    counterparts = {"score_scale": "head_dim"}

    hidden_dim: Size = hf("hidden_size", 2304)
    intermediate_dim: Size = hf("intermediate_size", 9216)
    num_layers: Layers = hf("num_hidden_layers", 26)
    num_heads: Size = hf("num_attention_heads", 8)
    num_key_value_heads: Size = hf("num_key_value_heads", 4)
    head_dim: Size = hf("head_dim", 256)
    hidden_act: str = hf("hidden_activation", "gelu_pytorch_tanh")
    attention_bias: bool = hf("attention_bias", False)
    score_scale: Size = hf("query_pre_attn_scalar", 256)
    window_size: Size | None = hf("sliding_window", 4096)
    layer_types: list[str] | None = hf("layer_types", None)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 2)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)

    def __post_init__(self) -> None:
        """Sets the default types of layers and validates that local ones have a window."""
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", self.default_layer_types())
        super().__post_init__()
        check_layer_types(self.layer_types, self.num_layers, (FULL, SLIDING))
        if self.window_size is None and SLIDING in (self.layer_types or ()):
            raise UnsupportedConfigError(
                f"sliding_window must be a number of tokens, since layer_types has {SLIDING}. Received: None"
            )

    def default_layer_types(self) -> list[str]:
        """Returns the type of each layer of a file without `layer_types`."""
        raise NotImplementedError

    def window(self, index: int) -> int | None:
        """Returns the size of the window of a local layer."""
        return self.window_size if self.layer_types and self.layer_types[index] == SLIDING else None


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(GemmaConfig, GatedDecoderConfig):
    """Configuration of Gemma 2; the defaults are those of the reference class.

    Attributes:
        score_softcap: Limits the scores to this range by `softcap * tanh(scores / softcap)`; optional.
        softcap: Limits the logits likewise; optional.
    """

    model_type = "gemma2"
    required = {"use_bidirectional_attention": (False, None)}
    # A setting of training programs: the cache of the first implementation.
    ignored = frozenset({"cache_implementation", "hidden_act"})

    vocab_size: Size = hf("vocab_size", 256000)
    max_length: Size = hf("max_position_embeddings", 8192)
    score_softcap: Positive | None = hf("attn_logit_softcapping", 50.0)
    softcap: Positive | None = hf("final_logit_softcapping", 30.0)

    def default_layer_types(self) -> list[str]:
        """Returns local and global layers in turn."""
        return [FULL if index % 2 else SLIDING for index in range(self.num_layers)]


class Gemma2(GatedDecoder):
    """Gemma 2 without head."""

    config_type: ClassVar[type[GemmaConfig]] = Gemma2Config
    order = "sandwich_norm"

    @property
    def embedding_scale(self) -> float:
        """Square root of the hidden size; rounded to the data type of the embeddings, as in the reference."""
        return math.sqrt(self.config.hidden_dim)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of LLaMA's attention, with another scale and a soft limit of the scores."""
        config = self.config
        return {
            **super().attention_options(index),
            "scale": config.score_scale**-0.5,
            "softcap": config.score_softcap,
        }

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer; all norms multiply by `1 + w`, where `w` is the tensor."""
        norms = {
            "attention_norm": "input_layernorm",
            "attention_output_norm": "post_attention_layernorm",
            "feed_forward_norm": "pre_feedforward_layernorm",
            "feed_forward_output_norm": "post_feedforward_layernorm",
        }
        rows = [row for path, name in norms.items() for row in norm(path, name, bias=False, offset=1.0)]
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}.items():
            rows += dense(f"attention/{path}", f"self_attn.{tensor}", bias=self.config.attention_bias)
        for path, tensor in {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}.items():
            rows += dense(f"feed_forward/{path}", f"mlp.{tensor}", bias=False)
        return rows

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(self.config.num_layers, nested(self.layer_rows(), "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "norm", bias=False, offset=1.0),
        ]


class Gemma2CausalLM(CausalLM, backbone=Gemma2):
    """Gemma 2 for text generation."""

    def head_options(self) -> LayerArguments:
        """Adds the soft limit of the logits."""
        return {**super().head_options(), "softcap": self.config.softcap}


MODELS = heads(Gemma2, Gemma2CausalLM, CausalFeatures, CausalClassification, llama.LlamaCausalTokenClassification)
