"""OPT: a decoder-only language model whose token embeddings may be smaller than its layers.

Derived from: `gpt2`.
Paper: Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models", arXiv:2205.01068.
Reference: `transformers.models.opt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import CausalClassification, CausalFeatures, CausalQuestionAnswering, heads
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class OptConfig(Config):
    """Configuration of OPT; the defaults are those of the 125 M parameter model."""

    model_type = "opt"
    epsilon: ClassVar[float] = 1e-5
    # LayerDrop, which only training with `transformers` uses, and a dropout rate of older files that no version uses.
    ignored = frozenset(("layerdrop", "activation_dropout"))
    same_as = {"token_dim": "hidden_dim"}

    vocab_size: Size = hf("vocab_size", 50272)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 768)
    token_dim: Size | None = hf("word_embed_proj_dim", None)
    num_layers: Layers = hf("num_hidden_layers", 12)
    num_heads: Size = hf("num_attention_heads", 12)
    intermediate_dim: Size = hf("ffn_dim", 3072)
    hidden_act: str = hf("activation_function", "relu")
    hidden_dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    initializer_range: Deviation = hf("init_std", 0.02)
    use_bias: bool = hf("enable_bias", True)
    norm_affine: bool = hf("layer_norm_elementwise_affine", True)
    norm_first: bool = hf("do_layer_norm_before", True)
    remove_final_norm: bool = hf("_remove_final_layer_norm", False)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 1)
    bos_token_id: TokenId | None = hf("bos_token_id", 2)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    output_dim = property(lambda self: self.token_dim)


class Opt(CausalDecoder):
    """OPT without head. The first two rows of the position table belong to no token."""

    config_type = OptConfig
    architecture_prefix = "OPT"
    has_positions = True
    position_offset = 2
    positions_from_mask = True
    norm = property(lambda self: "layer_norm" if self.config.norm_affine else "plain_layer_norm")
    order = property(lambda self: "pre_norm" if self.config.norm_first else "post_norm")
    has_final_norm = property(lambda self: self.config.norm_first and not self.config.remove_final_norm)
    hidden_dropout = property(lambda self: self.config.hidden_dropout)
    names = Names("model.", tokens="decoder.embed_tokens.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns whether the projections have biases."""
        return {"use_bias": self.config.use_bias}

    feed_forward_options = attention_options

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        config, bias = self.config, {"bias": self.config.use_bias}
        layer = [
            *self._norm("attention_norm", "self_attn_layer_norm"),
            *(row for name in "qkv" for row in dense(f"attention/{_NAMES[name]}", f"self_attn.{name}_proj", **bias)),
            *dense("attention/output", "self_attn.out_proj", **bias),
            *self._norm("feed_forward_norm", "final_layer_norm"),
            *dense("feed_forward/intermediate", "fc1", **bias),
            *dense("feed_forward/output", "fc2", **bias),
        ]
        rows = [*embedding("tokens", "embed_tokens"), *embedding("positions", "embed_positions")]
        if config.token_dim != config.hidden_dim:
            rows += dense("input_projection", "project_in", bias=False)
            rows += dense("output_projection", "project_out", bias=False)
        rows += repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}."))
        rows += self._norm("decoder/final_norm", "final_layer_norm") if self.has_final_norm else []
        return nested(rows, prefix="decoder.")

    def _norm(self, path: str, tensor: str) -> list[Row]:
        """Returns the rows of a norm; none if norms have neither scale nor bias."""
        return norm(path, tensor) if self.config.norm_affine else []


_NAMES = {"q": "query", "k": "key", "v": "value"}


MODELS = heads(Opt, CausalLM, CausalFeatures, CausalClassification, CausalQuestionAnswering)
