"""Gemma 3: a decoder-only language model with local and global layers in turn, each with rotary positions of its own.

Derived from: `llama`.
Paper: Gemma Team 2025, "Gemma 3 Technical Report", arXiv:2503.19786. Reference: `transformers.models.gemma3`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Positive, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.rotary_config import LayerRotaryConfig
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat

_LOCAL = "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Gemma3TextConfig(LayerRotaryConfig):
    """Configuration of Gemma 3; the defaults are those of the reference class.

    Attributes:
        score_scale: Number whose inverse square root is the factor of the attention scores.
        window: Number of tokens that a token of a layer of the type `sliding_attention` sees, itself included.
        global_every: Distance between layers of the type `full_attention`, for files without `layer_types`.
        softcap: Limits the logits to this range by `softcap * tanh(logits / softcap)`; optional.
    """

    model_type = "gemma3_text"
    counterparts = {"score_scale": "head_dim"}
    # The reference ignores the soft limit of attention scores; embedding models attend to later tokens, too.
    required = {"attn_logit_softcapping": (None,), "use_bidirectional_attention": (False, None)}
    bases = {"full_attention": ("rope_theta", 1e6), _LOCAL: ("rope_local_base_freq", 1e4)}
    scaled = ("full_attention",)

    vocab_size: Size = hf("vocab_size", 262208)
    max_length: Size = hf("max_position_embeddings", 131072)
    hidden_dim: Size = hf("hidden_size", 2304)
    intermediate_dim: Size = hf("intermediate_size", 9216)
    num_layers: Layers = hf("num_hidden_layers", 26)
    num_heads: Size = hf("num_attention_heads", 8)
    num_key_value_heads: Size = hf("num_key_value_heads", 4)
    head_dim: Size = hf("head_dim", 256)
    hidden_act: str = hf("hidden_activation", "gelu_pytorch_tanh")
    attention_bias: bool = hf("attention_bias", False)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    score_scale: Size = hf("query_pre_attn_scalar", 256)
    softcap: Positive | None = hf("final_logit_softcapping", None)
    window: Size | None = hf("sliding_window", 4096)
    global_every: Size = hf("sliding_window_pattern", 6, "_sliding_window_pattern")
    epsilon: Epsilon = hf("rms_norm_eps", 1e-6)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 2)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)

    def __post_init__(self) -> None:
        """Validates that local layers have a window."""
        super().__post_init__()
        if self.window is None and _LOCAL in (self.layer_types or ()):
            raise UnsupportedConfigError(
                f"sliding_window must be a number of tokens, since layer_types has {_LOCAL}. Received: None"
            )

    def default_layer_types(self) -> list[str]:
        """Returns the types of layers at equal distances, the global ones last."""
        return [_LOCAL if (index + 1) % self.global_every else "full_attention" for index in range(self.num_layers)]


class Gemma3Text(CausalDecoder):
    """Gemma 3 without head."""

    config_type = Gemma3TextConfig
    norm = "rms_norm"
    has_output_norms = True
    names = Names("model.", tokens="embed_tokens.weight")

    @property
    def embedding_scale(self) -> float:
        """Square root of the hidden size; rounded to the data type of the embeddings, as in the reference."""
        return math.sqrt(self.config.hidden_dim)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of grouped, normalized heads, with the window and the positions of the layer's type."""
        config, layer_type = self.config, self.config.layer_types[index]
        return {
            "head_dim": config.head_dim,
            "num_key_value_heads": config.num_key_value_heads,
            "use_bias": config.attention_bias,
            "scale": config.score_scale**-0.5,
            "query_key_norm": config.epsilon,
            "rotary": config.rotary(layer_type),
            "window": config.window if layer_type == _LOCAL else None,
        }

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the options of a gated feed-forward network."""
        return {"gated": True, "use_bias": False}

    def rows(self) -> list[Row]:
        """Returns the weight table; all norms multiply by `1 + w`, where `w` is the tensor."""
        config = self.config
        norms = {
            "attention_norm": "input_layernorm",
            "attention_output_norm": "post_attention_layernorm",
            "feed_forward_norm": "pre_feedforward_layernorm",
            "feed_forward_output_norm": "post_feedforward_layernorm",
            "attention/query_norm": "self_attn.q_norm",
            "attention/key_norm": "self_attn.k_norm",
        }
        layer = [row for path, name in norms.items() for row in norm(path, name, bias=False, offset=1.0)]
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}.items():
            layer += dense(f"attention/{path}", f"self_attn.{tensor}", bias=config.attention_bias)
        for path, tensor in {"gate": "gate_proj", "up": "up_proj", "output": "down_proj"}.items():
            layer += dense(f"feed_forward/{path}", f"mlp.{tensor}", bias=False)
        return [
            *embedding("tokens", "embed_tokens"),
            *repeat(config.num_layers, nested(layer, "decoder/layer_{i}/", "layers.{i}.")),
            *norm("decoder/final_norm", "norm", bias=False, offset=1.0),
        ]


class Gemma3TextCausalLM(CausalLM, backbone=Gemma3Text):
    """Gemma 3 for text generation."""

    architecture = "Gemma3ForCausalLM"

    def head_options(self) -> LayerArguments:
        """Adds the soft limit of the logits."""
        return {**super().head_options(), "softcap": self.config.softcap}


MODELS = heads(Gemma3Text, Gemma3TextCausalLM, CausalFeatures, CausalClassification)
