"""XGLM: a multilingual decoder-only language model with sinusoidal positions.

Derived from: the Transformer.
Paper: Lin et al. 2021, "Few-shot Learning with Multilingual Language Models", arXiv:2112.10668.
Reference: `transformers.models.xglm`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers import SinusoidalPositions
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class XglmConfig(Config):
    """Configuration of XGLM; the defaults are those of the 564 M parameter model."""

    model_type = "xglm"
    positions_follow_padding = True
    epsilon: ClassVar[float] = 1e-5
    required = {"add_cross_attention": (False,)}
    # LayerDrop, which only training with `transformers` uses.
    ignored = frozenset(("layerdrop",))

    vocab_size: Size = hf("vocab_size", 256008)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("d_model", 1024, "hidden_size")
    intermediate_dim: Size = hf("ffn_dim", 4096)
    num_layers: Layers = hf("num_layers", 24, "num_hidden_layers")
    num_heads: Size = hf("attention_heads", 16, "num_attention_heads")
    hidden_act: str = hf("activation_function", "gelu")
    hidden_dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.1)
    activation_dropout: Rate = hf("activation_dropout", 0.0)
    initializer_range: Deviation = hf("init_std", 0.02)
    scale_embedding: bool = hf("scale_embedding", True)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 1)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 2)


class Xglm(CausalDecoder):
    """XGLM without head. The first two rows of the sinusoids belong to no token."""

    config_type = XglmConfig
    architecture_prefix = "XGLM"
    position_offset = 2
    embedding_dropout = hidden_dropout = property(lambda self: self.config.hidden_dropout)
    embedding_scale = property(lambda self: math.sqrt(self.config.hidden_dim) if self.config.scale_embedding else 1.0)
    # Ignored: the sinusoids of older files.
    names = Names("model.", (r"embed_positions\.weights",), tokens="embed_tokens.weight")

    def make_positions(self) -> SinusoidalPositions:
        """Creates the sinusoids; as in the reference, the row with the number of the padding token is 0."""
        config = self.config
        return SinusoidalPositions(
            config.max_length + self.position_offset,
            config.hidden_dim,
            interleaved=False,
            endpoint=True,
            zero_row=config.pad_token_id,
            name="positions",
        )

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the dropout rate after the activation."""
        return {"dropout": self.config.activation_dropout}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [
            *norm("attention_norm", "self_attn_layer_norm"),
            *dense("attention/query", "self_attn.q_proj"),
            *dense("attention/key", "self_attn.k_proj"),
            *dense("attention/value", "self_attn.v_proj"),
            *dense("attention/output", "self_attn.out_proj"),
            *norm("feed_forward_norm", "final_layer_norm"),
            *dense("feed_forward/intermediate", "fc1"),
            *dense("feed_forward/output", "fc2"),
        ]
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "layer_norm"),
        ]


MODELS = heads(Xglm, CausalLM, CausalFeatures)
