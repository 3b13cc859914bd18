"""MPNet: a BERT with relative position biases, pretrained on masked and permuted texts.

Derived from: `bert`.
Paper: Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding", arXiv:2004.09297.
Reference: `transformers.models.mpnet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import keras

from kerasformer.basics.arguments import integer
from kerasformer.layers import RelativePositionBias
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, EncoderConfig, layer_table
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, OFFSET_POSITION_IDS
from kerasformer.models.weight_table import Names, Row, embedding

# Constants of the reference implementation, which its configuration does not change.
NUM_BUCKETS, MAX_DISTANCE, PADDING_ID = 32, 128, 1


@dataclass(frozen=True, kw_only=True)
class MPNetConfig(EncoderConfig):
    """Configuration of MPNet; the defaults are those of `mpnet-base`, except the number of positions.

    Attributes:
        num_positions: Number of rows of the position table; positions of texts start at 2.
        num_rows: Number of rows of the table of relative position biases, of which the first 32 are used.
    """

    model_type = "mpnet"
    positions_follow_padding = True
    num_segments: ClassVar[int] = 0  # type: ignore[misc]

    vocab_size: Size = hf("vocab_size", 30527)
    num_positions: Annotated[int, integer(PADDING_ID + 2, 2**31 - 1)] = hf("max_position_embeddings", 512)
    num_rows: Annotated[int, integer(NUM_BUCKETS, 2**20)] = hf("relative_attention_num_buckets", NUM_BUCKETS)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    pad_token_id: TokenId | None = hf("pad_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    @property
    def max_length(self) -> int:
        """Maximum length of a text in tokens."""
        return self.num_positions - PADDING_ID - 1


class MPNet(BidirectionalEncoder):
    """MPNet without head."""

    config_type = MPNetConfig
    input_arrays = (INPUT_IDS, ATTENTION_MASK, OFFSET_POSITION_IDS)
    # Ignored: a buffer, an unused pooler.
    names = Names("mpnet.", (r"embeddings\.position_ids", r"pooler\..*"), tokens=TOKENS)

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates embeddings whose positions start after the id of the padding token, as in RoBERTa."""
        return super().make_embeddings(max_length=self.config.num_positions, padding_id=PADDING_ID, **options)

    def make_position_bias(self) -> RelativePositionBias:
        """Creates the relative position bias, which all layers share."""
        sizes = NUM_BUCKETS, MAX_DISTANCE, self.config.num_heads
        return RelativePositionBias(*sizes, bidirectional=True, num_rows=self.config.num_rows, name="position_bias")

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        projections = (f"attention.attn.{name}" for name in "qkvo")
        layer = layer_table(
            (*projections, "attention.LayerNorm"), ("intermediate.dense", "output.dense", "output.LayerNorm")
        )
        layers = self.layer_rows(layer, "encoder.layer.{}.".format)
        bias = embedding("position_bias", "encoder.relative_attention_bias")
        return [*self.embedding_rows(), *bias, *layers, *self.pooler_rows("pooler.dense")]


MODELS = task_models.heads(
    MPNet,
    task_models.PooledFeatures,
    task_models.GeluFillMask,
    task_models.DenseTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
)
