"""Longformer: an encoder for long texts, with a sliding attention window and global tokens.

Derived from: `roberta`.
Paper: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
Reference: `transformers.models.longformer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from keras import ops

from kerasformer.layers import GlobalMultiHeadAttention, Visibility
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder import TOKENS
from kerasformer.models.global_tokens import FirstTokenGlobal, GlobalTokenModel, QuestionGlobal, layer_windows
from kerasformer.models.named_arrays import Inputs
from kerasformer.models.offset_positions import OffsetConfig, OffsetEncoder
from kerasformer.models.text_inputs import GLOBAL_ATTENTION_MASK
from kerasformer.models.weight_table import Names, Row, dense


@dataclass(frozen=True, kw_only=True)
class LongformerConfig(OffsetConfig):
    """Configuration of Longformer; the defaults are those of the reference class.

    Attributes:
        attention_window: Number of tokens in the window, half of them on each side; a list for one number per layer.
        max_global_tokens: Maximum number of global tokens in a text; 64 by default.
    """

    model_type = "longformer"
    ignored = frozenset({"attention_mode", "onnx_export"})
    required = {"ignore_attention_mask": (False,)}

    attention_window: Size | list[Size] = hf("attention_window", 512)
    sep_token_id: TokenId | None = hf("sep_token_id", 2)
    max_global_tokens: Size | None = hf("max_global_tokens", None)

    def __post_init__(self) -> None:
        """Validates the windows."""
        super().__post_init__()
        layer_windows(self.attention_window, self.num_layers)


class Longformer(OffsetEncoder):
    """Longformer without head."""

    config_type = LongformerConfig
    attention_type = GlobalMultiHeadAttention
    input_arrays = (*OffsetEncoder.input_arrays, GLOBAL_ATTENTION_MASK)
    # Ignored: a buffer, an unused pooler.
    names = Names("longformer.", (r"embeddings\.position_ids", r"pooler\..*"), tokens=TOKENS)

    def arguments(self, arrays: Inputs) -> LayerArguments:
        """Returns the arguments of the call; global tokens are part of the visibility."""
        arguments = super().arguments(arrays)
        mask, real = arguments.pop(GLOBAL_ATTENTION_MASK.argument, None), arrays.get("attention_mask")
        if mask is not None:
            mask = mask if real is None else ops.cast(mask, "int32") * ops.cast(real, "int32")
            arguments["visibility"] = Visibility(key_mask=real, global_mask=mask)
        return arguments

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the size of the layer's window on each side of a token."""
        return {"window": layer_windows(self.config.attention_window, self.config.num_layers)[index] // 2}

    def layer_table(self) -> list[Row]:
        """Returns the rows of one layer, with the projections of global tokens."""
        rows = super().layer_table()
        for name in ("query_global", "key_global", "value_global"):
            rows += dense(f"attention/{name}", f"attention.self.{name}")
        return rows


MODELS = task_models.heads(
    Longformer,
    (GlobalTokenModel, task_models.PooledFeatures),
    (GlobalTokenModel, task_models.GeluFillMask),
    (FirstTokenGlobal, task_models.DenseTextClassification),
    (GlobalTokenModel, task_models.TokenClassification),
    (QuestionGlobal, task_models.QuestionAnswering),
)
