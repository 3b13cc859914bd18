"""Phi: a decoder-only language model with partial rotary positions, and one norm in each parallel layer.

Phi 1, 1.5 and 2 have this architecture; later models have others.

Derived from: `gptj`.
Paper: Gunasekar et al. 2023, "Textbooks Are All You Need", arXiv:2306.11644; Li et al. 2023, "Textbooks Are All You
Need II: phi-1.5 technical report", arXiv:2309.05463. Reference: `transformers.models.phi`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import RotaryConfig
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat
from kerasformer.zoo import gptj


@dataclass(frozen=True, kw_only=True)
class PhiConfig(RotaryConfig):
    """Configuration of Phi; the defaults are those of `phi-1`.

    Attributes:
        query_key_norm: Whether queries and keys of each head are normalized.
    """

    model_type = "phi"
    rotated_share = 0.5
    same_as = {"num_key_value_heads": "num_heads"}

    vocab_size: Size = hf("vocab_size", 51200)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 2048)
    intermediate_dim: Size = hf("intermediate_size", 8192)
    num_layers: Layers = hf("num_hidden_layers", 24)
    num_heads: Size = hf("num_attention_heads", 32)
    num_key_value_heads: Size | None = hf("num_key_value_heads", None)
    hidden_act: str = hf("hidden_act", "gelu_new")
    query_key_norm: bool = hf("qk_layernorm", False)
    residual_dropout: Rate = hf("resid_pdrop", 0.0)
    embedding_dropout: Rate = hf("embd_pdrop", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", False)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)


class Phi(CausalDecoder):
    """Phi without head."""

    config_type = PhiConfig
    order = "shared_parallel"
    # Ignored: the rotary frequencies of older files.
    names = Names("model.", (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",), tokens="embed_tokens.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the rotary positions of a part of each head, and its optional norms."""
        config = self.config
        norms = {"query_key_norm": config.epsilon, "query_key_norm_kind": "layer_norm"} if config.query_key_norm else {}
        return {"num_key_value_heads": config.num_key_value_heads, "rotary": config.rotary, **norms}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = norm("attention_norm", "input_layernorm")
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "dense"}.items():
            layer += dense(f"attention/{path}", f"self_attn.{tensor}")
        if self.config.query_key_norm:
            layer += norm("attention/query_norm", "self_attn.q_layernorm")
            layer += norm("attention/key_norm", "self_attn.k_layernorm")
        layer += [*dense("feed_forward/intermediate", "mlp.fc1"), *dense("feed_forward/output", "mlp.fc2")]
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "final_layernorm"),
        ]


class PhiCausalTokenClassification(task_models.CausalTokenClassification, backbone=Phi):
    """Phi for token classification, from each token and those before it."""

    head_table = dense("output", "score")


MODELS = task_models.heads(
    Phi, gptj.GPTJCausalLM, task_models.CausalFeatures, task_models.CausalClassification, PhiCausalTokenClassification
)
