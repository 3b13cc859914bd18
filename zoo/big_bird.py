"""BigBird: an encoder for long texts, whose tokens attend to blocks: the first, the last, its own and two neighbors.

Derived from: `bert`.
Paper: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062.
Reference: `transformers.models.big_bird`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from kerasformer.layers import BlockSparseAttention, FeedForwardHead, SparseBlocks, TransformerEmbeddings
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.question_tokens import AnswerInContext
from kerasformer.models.weight_table import Row, dense, norm
from kerasformer.zoo import bert


@dataclass(frozen=True, kw_only=True)
class BigBirdConfig(bert.BertConfig):
    """Configuration of BigBird; the defaults are those of `google/bigbird-roberta-base`.

    Attributes:
        attention_type: `"block_sparse"`, or `"original_full"` for full attention at any length.
        block_size: Number of tokens in a block.
        num_random_blocks: Number of random blocks that each block attends to.
        projection_bias: Whether queries, keys and values have a bias.
        rescale_embeddings: Whether token embeddings are multiplied by the square root of their size.
        sep_token_id: Id of the token after a question.
    """

    model_type = "big_bird"

    vocab_size: Size = hf("vocab_size", 50358)
    hidden_act: str = hf("hidden_act", "gelu_new")
    max_length: Size = hf("max_position_embeddings", 4096)
    bos_token_id: TokenId | None = hf("bos_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)
    sep_token_id: TokenId | None = hf("sep_token_id", 66)
    attention_type: Literal["block_sparse", "original_full"] = hf("attention_type", "block_sparse")
    block_size: Size = hf("block_size", 64)
    num_random_blocks: Size = hf("num_random_blocks", 3)
    projection_bias: bool = hf("use_bias", True)
    rescale_embeddings: bool = hf("rescale_embeddings", False)

    @property
    def pooler_act(self) -> str:
        """Activation in a text classifier."""
        return self.hidden_act


class BigBird(BidirectionalEncoder):
    """BigBird without head."""

    config_type = BigBirdConfig
    attention_type = BlockSparseAttention
    # Ignored: a buffer, an unused pooler.
    names = bert.Bert.names

    def make_embeddings(self, **options: Any) -> TransformerEmbeddings:
        """Creates the embeddings."""
        scale = math.sqrt(self.config.hidden_dim) if self.config.rescale_embeddings else 1.0
        return super().make_embeddings(token_scale=scale, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns further arguments of the attention, whose index is the seed of its random blocks in training."""
        config = self.config
        options = {"use_bias": config.projection_bias, "output_bias": True}
        if config.attention_type == "original_full":
            return options
        blocks = SparseBlocks(config.block_size, config.num_random_blocks, config.max_length, seed=index)
        return {**options, "blocks": blocks}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        projections = [f"attention/{name}" for name in ("query", "key", "value")]
        biases = {f"{path}/bias" for path in projections if not self.config.projection_bias}
        table = [row for row in self.layer_table() if not biases & set(row.variables)]
        layers = self.layer_rows(table, "encoder.layer.{}.".format)
        return [*self.embedding_rows(), *layers, *self.pooler_rows("pooler")]


class BigBirdQuestionAnswering(AnswerInContext, backbone=BigBird):
    """BigBird for extractive question answering."""

    head_table = (
        *dense("feed_forward/intermediate", "qa_classifier.intermediate.dense"),
        *dense("feed_forward/output", "qa_classifier.output.dense"),
        *norm("norm", "qa_classifier.output.LayerNorm"),
        *dense("output", "qa_classifier.qa_outputs"),
    )

    def make_head(self) -> FeedForwardHead:
        """Creates a head of a feed-forward network and a dense layer with two outputs."""
        config = self.config
        sizes = config.hidden_dim, config.intermediate_dim
        return FeedForwardHead(2, *sizes, config.hidden_act, config.epsilon, config.hidden_dropout, name="head")


MODELS = task_models.heads_like(bert.SHARED, BigBird, task_models.DenseTextClassification, BigBirdQuestionAnswering)
