"""mT5: T5 1.1 for 101 languages, with a larger vocabulary.

Derived from: `t5`.
Paper: Xue et al. 2021, "mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer", arXiv:2010.11934.
Reference: `transformers.models.mt5`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kerasformer.models.config import hf
from kerasformer.models.config_types import FeedForwardKind, Layers, Size, TokenId
from kerasformer.models.task_models import heads_like
from kerasformer.zoo import t5


@dataclass(frozen=True, kw_only=True)
class MT5Config(t5.T5Config):
    """Configuration of mT5; the defaults are those of `google/mt5-small`.

    Attributes:
        scale_output: Whether the output is scaled; as in the reference, it is not, even if it is tied.
    """

    model_type = "mt5"
    same_as = {"num_decoder_layers": "num_layers"}
    scale_output: ClassVar[bool] = False  # type: ignore[misc]

    vocab_size: Size = hf("vocab_size", 250112)
    intermediate_dim: Size = hf("d_ff", 1024)
    num_layers: Layers = hf("num_layers", 8)
    num_heads: Size = hf("num_heads", 6, "num_attention_heads")
    feed_forward: FeedForwardKind = hf("feed_forward_proj", "gated-gelu")
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 0)


class MT5(t5.T5):
    """mT5 without head."""

    config_type = MT5Config


MODELS = heads_like(t5.MODELS, MT5)
