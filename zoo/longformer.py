"""Longformer: an encoder for long texts, with a sliding attention window and global tokens.

Paper: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
Reference: `transformers.models.longformer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras

from kerasformer.layers import GlobalMultiHeadAttention
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder, EncoderConfig, bert_layer_table
from kerasformer.models.global_tokens import FirstTokenGlobal, GlobalTokenModel, QuestionGlobal, layer_windows
from kerasformer.models.text_inputs import GLOBAL_ATTENTION_MASK, OFFSET_POSITION_IDS, TEXT
from kerasformer.models.weight_table import Names, Row, dense


@dataclass(frozen=True, kw_only=True)
class LongformerConfig(EncoderConfig):
    """Configuration of Longformer; the defaults are those of the reference class.

    Attributes:
        attention_window: Number of tokens in the window, half of them on each side; a list for one number per layer.
        num_positions: Number of rows of the position table, including those reserved for padding.
        max_global_tokens: Maximum number of global tokens in a text; 64 by default.
    """

    model_type = "longformer"
    ignored = frozenset({"attention_mode", "onnx_export"})
    required = {"ignore_attention_mask": (False,), "tie_word_embeddings": (True,)}

    attention_window: Size | list[Size] = hf("attention_window", 512)
    num_positions: Size = hf("max_position_embeddings", 512)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    pad_token_id: TokenId = hf("pad_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)
    sep_token_id: TokenId | None = hf("sep_token_id", 2)
    max_global_tokens: Size | None = hf("max_global_tokens", None)

    def __post_init__(self) -> None:
        """Validates the windows."""
        super().__post_init__()
        layer_windows(self.attention_window, self.num_layers)

    @property
    def max_length(self) -> int:
        """Maximum length of a text in tokens."""
        return self.num_positions - self.pad_token_id - 1


class Longformer(BidirectionalEncoder):
    """Longformer without head."""

    config_type = LongformerConfig
    attention_type = GlobalMultiHeadAttention
    inputs = (*TEXT, OFFSET_POSITION_IDS, GLOBAL_ATTENTION_MASK)
    # Ignored: tied copies of the token table and of the output bias, a buffer, an unused pooler.
    names = Names(
        "longformer.",
        (r"lm_head\.decoder\..*", r"embeddings\.position_ids", r"pooler\..*"),
        mark="encoder.layer.0.attention.self.query_global.weight",
    )

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates embeddings whose positions start after the id of the padding token, as in RoBERTa."""
        config = self.config
        return super().make_embeddings(max_length=config.num_positions, padding_id=config.pad_token_id, **options)

    def attention_options(self, index: int) -> dict[str, Any]:
        """Returns the size of the layer's window on each side of a token."""
        return {"window": layer_windows(self.config.attention_window, self.config.num_layers)[index] // 2}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = bert_layer_table()
        for name in ("query_global", "key_global", "value_global"):
            layer += dense(f"attention/{name}", f"attention.self.{name}")
        layer = self.layer_rows(layer, "encoder.layer.{}.".format)
        return [*self.embedding_rows(), *layer, *self.pooler_rows("pooler.dense")]


class LongformerFeatures(GlobalTokenModel, task_models.PooledFeatures, backbone=Longformer):
    """Longformer for feature extraction: hidden states of each token."""


class LongformerFillMask(GlobalTokenModel, task_models.FillMask, backbone=Longformer):
    """Longformer for masked language modelling."""

    head_activation = "gelu"
    head_table = task_models.prediction_rows("lm_head", norm_name="layer_norm")


class LongformerTextClassification(FirstTokenGlobal, task_models.DenseTextClassification, backbone=Longformer):
    """Longformer for text classification; the first token is global."""


class LongformerTokenClassification(GlobalTokenModel, task_models.TokenClassification, backbone=Longformer):
    """Longformer for token classification, such as named entity recognition."""


class LongformerQuestionAnswering(QuestionGlobal, task_models.QuestionAnswering, backbone=Longformer):
    """Longformer for extractive question answering; the tokens of the question are global."""


MODELS = task_models.by_task(
    LongformerFeatures,
    LongformerFillMask,
    LongformerTextClassification,
    LongformerTokenClassification,
    LongformerQuestionAnswering,
)
