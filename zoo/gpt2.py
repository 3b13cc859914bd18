"""GPT-2: a decoder-only language model.

Derived from: the Transformer.
Paper: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
Reference: `transformers.models.gpt2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerasformer.layers.layer_types import LayerArguments
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
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class Gpt2BaseConfig(Config):
    """Settings that the configurations of GPT-2 and of architectures derived from it have in common."""

    required = {"add_cross_attention": (False,)}
    # Settings of a model with two heads, which is unsupported.
    ignored = frozenset(
        "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split()
    )

    vocab_size: Size = hf("vocab_size", 50257)
    max_length: Size = hf("n_positions", 1024, "max_position_embeddings")
    hidden_dim: Size = hf("n_embd", 768, "hidden_size")
    num_layers: Layers = hf("n_layer", 12, "num_hidden_layers")
    num_heads: Size = hf("n_head", 12, "num_attention_heads")
    inner_dim: Size | None = hf("n_inner", None)
    hidden_act: str = hf("activation_function", "gelu_new")
    residual_dropout: Rate = hf("resid_pdrop", 0.1)
    embedding_dropout: Rate = hf("embd_pdrop", 0.1)
    attention_dropout: Rate = hf("attn_pdrop", 0.1)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    scale_attention: bool = hf("scale_attn_weights", True)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", 50256)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 50256)

    @property
    def intermediate_dim(self) -> int:
        """Size of the intermediate layer of the feed-forward network."""
        return 4 * self.hidden_dim if self.inner_dim is None else self.inner_dim


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(Gpt2BaseConfig):
    """Configuration of GPT-2; the defaults are those of the 124 M parameter model."""

    model_type = "gpt2"
    # Number of special tokens of the first GPT, in the files of DialoGPT.
    ignored = Gpt2BaseConfig.ignored | {"n_special"}

    scale_by_layer: bool = hf("scale_attn_by_inverse_layer_idx", False)
    # Kept without effect: the softmax is always computed in float32.
    upcast_attention: bool = hf("reorder_and_upcast_attn", False)


class Gpt2(CausalDecoder):
    """GPT-2 without head."""

    config_type = Gpt2Config
    architecture_prefix = "GPT2"
    has_positions = True
    # Ignored: the causal masks of older files.
    names = Names("transformer.", (r"h\.\d+\.attn\.(bias|masked_bias)",), tokens="wte.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the scale of the scores, which may depend on the layer."""
        config = self.config
        scale = 1.0 / math.sqrt(config.hidden_dim // config.num_heads) if config.scale_attention else 1.0
        return {"scale": scale / (index + 1) if config.scale_by_layer else scale}

    def rows(self) -> list[Row]:
        """Returns the weight table; weights of `Conv1D` are `(in, out)`, as in Keras."""
        layer = [
            *norm("attention_norm", "ln_1"),
            *fused(["attention/query", "attention/key", "attention/value"], "attn.c_attn", transpose=False),
            *dense("attention/output", "attn.c_proj", transpose=False),
            *norm("feed_forward_norm", "ln_2"),
            *dense("feed_forward/intermediate", "mlp.c_fc", transpose=False),
            *dense("feed_forward/output", "mlp.c_proj", transpose=False),
        ]
        return [
            *embedding("tokens", "wte"),
            *embedding("positions", "wpe"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


class Gpt2CausalLM(CausalLM, backbone=Gpt2):
    """GPT-2 for text generation."""

    architecture = "GPT2LMHeadModel"


MODELS = heads(
    Gpt2, Gpt2CausalLM, CausalFeatures, CausalClassification, CausalTokenClassification, CausalQuestionAnswering
)
