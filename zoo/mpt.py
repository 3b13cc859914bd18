"""MPT: a decoder-only language model with linear position biases (ALiBi), without biases of layers and norms.

Derived from: `bloom`.
Paper: MosaicML 2023, "Introducing MPT-7B: A New Standard for Open-Source, Commercially Usable LLMs"; positions: Press
et al. 2022, arXiv:2108.12409. Reference: `transformers.models.mpt`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import keras
import numpy as np

from kerasformer.basics.arguments import integer
from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import Visibility, alibi_bias, normalization
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Positive, Rate, Size
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.task_models import heads_like
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, nested, norm, repeat
from kerasformer.zoo import bloom


@dataclass(frozen=True, kw_only=True)
class MptConfig(Config):
    """Configuration of MPT; the defaults are those of the reference class.

    Attributes:
        attention_type: `"multihead_attention"`, the only one that is supported.
        clip: Limit of queries, keys and values; unsupported.
        query_key_norm: Whether queries and keys are normalized; unsupported.
        alibi: Whether scores have linear position biases, as they must.
        alibi_max: Exponent of the smallest slope, 8 in the reference.
        score_scale: Factor of the attention scores; that of the size of a head by default.
    """

    model_type = "mpt"
    hidden_act: ClassVar[str] = "gelu"
    required = {
        "no_bias": (True,),
        "expansion_ratio": (4,),
        "logit_scale": (None,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
    }
    # Positions that ALiBi replaces, gradients, and where the authors' code creates the model.
    ignored = frozenset({"learned_pos_emb", "embedding_fraction", "init_device", "init_config", "verbose"})

    vocab_size: Size = hf("vocab_size", 50368)
    max_length: Size = hf("max_seq_len", 2048)
    hidden_dim: Size = hf("d_model", 2048, "hidden_size")
    num_layers: Layers = hf("n_layers", 24, "num_hidden_layers")
    num_heads: Size = hf("n_heads", 16, "num_attention_heads")
    attention_type: str = hf("attn_config.attn_type", "multihead_attention")
    attention_dropout: Annotated[int, integer(0, 1)] = hf("attn_config.attn_pdrop", 0)
    clip: float | None = hf("attn_config.clip_qkv", None)
    query_key_norm: bool = hf("attn_config.qk_ln", False)
    alibi: bool = hf("attn_config.alibi", True)
    alibi_max: Size = hf("attn_config.alibi_bias_max", 8)
    score_scale: Positive | None = hf("attn_config.softmax_scale", None)
    embedding_dropout: Rate = hf("emb_pdrop", 0.0)
    residual_dropout: Rate = hf("resid_pdrop", 0.0)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)

    def __post_init__(self) -> None:
        """Refuses what the reference does not compute."""
        super().__post_init__()
        supported = {
            "attn_type": (self.attention_type, "multihead_attention"),
            "clip_qkv": (self.clip, None),
            "qk_ln": (self.query_key_norm, False),
            "alibi": (self.alibi, True),
            "alibi_bias_max": (self.alibi_max, 8),
        }
        for key, (received, expected) in supported.items():
            if received != expected:
                raise UnsupportedConfigError(
                    f"mpt supports only {key}={expected!r} in attn_config. Received: {key}={received!r}"
                )

    @property
    def intermediate_dim(self) -> int:
        """Size of the intermediate layer of the feed-forward network."""
        return 4 * self.hidden_dim


class Mpt(CausalDecoder):
    """MPT without head."""

    config_type = MptConfig
    input_arrays = (INPUT_IDS, ATTENTION_MASK)
    heads_differ = True
    names = Names("transformer.", tokens="wte.weight")

    @property
    def hidden_dropout(self) -> float:
        """Dropout rate of the outputs of attention and feed-forward network, which is that of the attention."""
        return self.config.attention_dropout

    def make_norm(self, name: str) -> keras.layers.Layer:
        """Creates a layer norm without bias."""
        return normalization(self.norm, self.config.epsilon, use_bias=False, name=name)

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns that layer norms have no bias."""
        return {"norm_bias": False}

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the factor of the scores, and that there are no biases."""
        return {"use_bias": False, "scale": self.config.score_scale}

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns that there are no biases."""
        return {"use_bias": False}

    def position_bias(self, visibility: Visibility) -> Tensor:
        """Returns the linear position biases, whose slopes have another order than those of BLOOM."""
        count = self.config.num_heads
        power = 2 ** math.ceil(math.log2(count))
        slopes = 2.0 ** (-self.config.alibi_max / power * np.arange(1, power + 1))
        if power > count:
            slopes = np.concatenate([slopes[1::2], slopes[::2]])[:count]
        return alibi_bias(count, visibility.query_slots, visibility.key_slots, slopes.astype("float32"))

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [
            *norm("attention_norm", "norm_1", bias=False),
            *fused([f"attention/{name}" for name in ("query", "key", "value")], "attn.Wqkv", bias=False),
            *dense("attention/output", "attn.out_proj", bias=False),
            *norm("feed_forward_norm", "norm_2", bias=False),
            *dense("feed_forward/intermediate", "ffn.up_proj", bias=False),
            *dense("feed_forward/output", "ffn.down_proj", bias=False),
        ]
        return [
            *embedding("tokens", "wte"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "blocks.{i}.")),
            *norm("decoder/final_norm", "norm_f", bias=False),
        ]


MODELS = heads_like(bloom.MODELS, Mpt)
