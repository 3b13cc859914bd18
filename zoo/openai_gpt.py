"""GPT: the first decoder-only language model of OpenAI, which normalizes the residual sums.

Derived from: the Transformer.
Paper: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".
Reference: `transformers.models.openai`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class OpenaiGptConfig(Config):
    """Configuration of GPT; the defaults are those of the published model.

    Attributes:
        activation: Name of the activation, where `"gelu"` is the approximation with tanh.
    """

    model_type = "openai-gpt"
    # Settings of a model with two heads, which is unsupported, and a number of tokens that `vocab_size` includes.
    ignored = frozenset(
        """summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
        n_special""".split()
    )

    vocab_size: Size = hf("vocab_size", 40478)
    max_length: Size = hf("n_positions", 512, "max_position_embeddings")
    hidden_dim: Size = hf("n_embd", 768, "hidden_size")
    num_layers: Layers = hf("n_layer", 12, "num_hidden_layers")
    num_heads: Size = hf("n_head", 12, "num_attention_heads")
    activation: Literal["gelu", "relu", "silu", "swish"] = hf("afn", "gelu")
    residual_dropout: Rate = hf("resid_pdrop", 0.1)
    embedding_dropout: Rate = hf("embd_pdrop", 0.1)
    attention_dropout: Rate = hf("attn_pdrop", 0.1)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", None)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", None)

    intermediate_dim = property(lambda self: 4 * self.hidden_dim)

    @property
    def hidden_act(self) -> str:
        """Name of the activation in this package."""
        return {"gelu": "gelu_new", "swish": "silu"}.get(self.activation, self.activation)


class OpenaiGpt(CausalDecoder):
    """GPT without head."""

    config_type = OpenaiGptConfig
    architecture_prefix = "OpenAIGPT"
    has_positions = True
    order = "post_norm"
    has_final_norm = False
    embedding_dropout = property(lambda self: self.config.embedding_dropout)
    hidden_dropout = property(lambda self: self.config.residual_dropout)
    # Ignored: the causal masks and the positions of older files.
    names = Names("transformer.", (r"h\.\d+\.attn\.bias", "position_ids"), tokens="tokens_embed.weight")

    def rows(self) -> list[Row]:
        """Returns the weight table; weights of `Conv1D` are `(in, out)`, as in Keras."""
        layer = [
            *fused(["attention/query", "attention/key", "attention/value"], "attn.c_attn", transpose=False),
            *dense("attention/output", "attn.c_proj", transpose=False),
            *norm("attention_norm", "ln_1"),
            *dense("feed_forward/intermediate", "mlp.c_fc", transpose=False),
            *dense("feed_forward/output", "mlp.c_proj", transpose=False),
            *norm("feed_forward_norm", "ln_2"),
        ]
        return [
            *embedding("tokens", "tokens_embed"),
            *embedding("positions", "positions_embed"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
        ]


class OpenaiGptCausalLM(CausalLM, backbone=OpenaiGpt):
    """GPT for text generation."""

    architecture = "OpenAIGPTLMHeadModel"


MODELS = heads(OpenaiGpt, OpenaiGptCausalLM, CausalFeatures, CausalClassification)
