"""LED: a BART for long texts, whose encoder has the sliding attention window of Longformer.

Derived from: `bart`.
Paper: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
Reference: `transformers.models.led`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from keras import ops

from kerasformer.layers import Embedding, GlobalMultiHeadAttention, MultiHeadAttention, Visibility
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder_decoder import Stack, bart_rows
from kerasformer.models.global_tokens import layer_windows
from kerasformer.models.task_models import Seq2SeqFeatures, Seq2SeqQuestionAnswering, heads
from kerasformer.models.weight_table import Row
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class LEDConfig(bart.BartConfig):
    """Configuration of LED; the defaults are those of the reference class.

    Attributes:
        max_length: Maximum length of a text in tokens.
        decoder_max_length: Maximum length of the text that the decoder reads or generates.
        attention_window: Number of tokens in the window of the encoder, half of them on each side; a list for one
            number per layer.
    """

    model_type = "led"
    required = {**bart.BartConfig.required, "scale_embedding": (False,)}
    scale_embedding: ClassVar[bool] = False  # type: ignore[misc]

    max_length: Size = hf("max_encoder_position_embeddings", 16384)
    decoder_max_length: Size = hf("max_decoder_position_embeddings", 1024)
    attention_window: Size | list[Size] = hf("attention_window", 512)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", None)
    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})

    def __post_init__(self) -> None:
        """Validates the windows."""
        super().__post_init__()
        layer_windows(self.attention_window, self.num_layers)

    @property
    def longest_answer(self) -> int:
        """Maximum length of the text of the decoder in tokens."""
        return self.decoder_max_length


class LED(bart.Bart):
    """LED without head. The first token of a text is global, as the authors use it for summaries."""

    config_type = LEDConfig
    position_offset = 0
    names = replace(bart.Bart.names, prefix="led.")

    def make_positions(self, stack: Stack) -> Embedding:
        """Creates the learned positions of a stack."""
        count = self.config.max_length if stack == "encoder" else self.config.decoder_max_length
        return Embedding(count, self.config.hidden_dim, self.initializer, name=f"{stack}_positions")

    def make_attention(self, stack: Stack, name: str, *, index: int, **options: Any) -> MultiHeadAttention:
        """Creates attention, in the encoder with a sliding window and projections of global tokens."""
        if stack == "encoder":
            window = layer_windows(self.config.attention_window, self.config.num_layers)[index] // 2
            options |= {"kind": GlobalMultiHeadAttention, "window": window}
        return super().make_attention(stack, name, index=index, **options)

    def encoder_visibility(self, ids: Tensor, attention_mask: Tensor | None) -> Visibility:
        """Returns the visibility of the encoder, with the first token as a global one."""
        first = ops.cast(ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), 0), "int32")
        first = ops.zeros_like(ids) + first
        if attention_mask is not None:
            first = first * ops.cast(attention_mask, "int32")
        return replace(super().encoder_visibility(ids, attention_mask), global_mask=first, max_global_tokens=1)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        names = [f"{part}{kind}" for kind in ("", "_global") for part in ("query", "key", "value")]
        return bart_rows(self, {**{name: f"longformer_self_attn.{name}" for name in names}, "output": "output"})


MODELS = heads(LED, bart.BartSeq2SeqLM, Seq2SeqFeatures, Seq2SeqQuestionAnswering)
