"""UMT5: mT5 for 107 languages, with a relative position bias for each layer.

Derived from: `mt5`.
Paper: Chung et al. 2023, "UniMax: Fairer and More Effective Language Sampling for Large-Scale Multilingual
Pretraining", arXiv:2304.09151. Reference: `transformers.models.umt5`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer.layers import MultiHeadAttention, RelativeAttention
from kerasformer.models.config import hf
from kerasformer.models.encoder_decoder import Stack
from kerasformer.models.task_models import heads_like
from kerasformer.models.weight_table import Row, embedding, repeat
from kerasformer.zoo import mt5, t5


@dataclass(frozen=True, kw_only=True)
class UMT5Config(mt5.MT5Config):
    """Configuration of UMT5; the defaults are those of the reference class.

    Attributes:
        scale_output: Whether the output is scaled; by default if `tie_word_embeddings` is true. The checkpoints of
            Google have false and were trained without the scale, which `transformers` applied from 5.0 to 5.23.
    """

    model_type = "umt5"
    same_as = t5.T5Config.same_as
    # Describes the training of the published checkpoints.
    ignored = t5.T5Config.ignored | {"scalable_attention"}

    scale_output: bool | None = hf("scale_decoder_outputs", None)  # type: ignore[misc]


class UMT5(t5.T5):
    """UMT5 without head."""

    config_type = UMT5Config

    def make_position_bias(self, stack: Stack) -> None:
        """Creates none that the layers of a stack share."""

    def make_attention(self, stack: Stack, name: str, **options: Any) -> MultiHeadAttention:
        """Creates attention, with a relative position bias of its own if it is self attention."""
        if name == "attention":
            options |= {"kind": RelativeAttention, "relative_bias": super().make_position_bias(stack)}
        return super().make_attention(stack, name, **options)

    def rows(self) -> list[Row]:
        """Returns the weight table, with a relative position bias for each layer."""
        rows = [row for row in super().rows() if "relative_attention_bias" not in row.tensor]
        for stack, count in self.layer_counts.items():
            path = f"{stack}/layer_{{i}}/attention/{stack}_bias"
            rows += repeat(count, embedding(path, f"{stack}.block.{{i}}.layer.0.SelfAttention.relative_attention_bias"))
        return rows


MODELS = heads_like(t5.MODELS, UMT5)
