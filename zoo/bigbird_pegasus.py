"""BigBird-Pegasus: a PEGASUS for long texts, whose encoder has the block-sparse attention of BigBird.

Derived from: `pegasus`.
Paper: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062.
Reference: `transformers.models.bigbird_pegasus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kerasformer.layers import BlockSparseAttention, FeedForward, MultiHeadAttention, SparseBlocks
from kerasformer.models.config import hf
from kerasformer.models.config_types import Layers, Size, TokenId
from kerasformer.models.encoder_decoder import Stack, bart_rows
from kerasformer.models.task_models import heads_like
from kerasformer.models.weight_table import Row
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class BigBirdPegasusConfig(bart.BartConfig):
    """Configuration of BigBird-Pegasus; the defaults are those of `google/bigbird-pegasus-large-arxiv`.

    Attributes:
        attention_type: `"block_sparse"`, or `"original_full"` for full attention of the encoder at any length.
        block_size: Number of tokens in a block.
        num_random_blocks: Number of random blocks that each block attends to.
        attention_bias: Whether the projections of all attention have a bias.
    """

    model_type = "bigbird_pegasus"
    required = {"is_decoder": (False,)}

    vocab_size: Size = hf("vocab_size", 96103)
    max_length: Size = hf("max_position_embeddings", 4096)
    num_layers: Layers = hf("encoder_layers", 16, "num_hidden_layers")
    num_decoder_layers: Layers = hf("decoder_layers", 16)
    hidden_act: str = hf("activation_function", "gelu_new")
    scale_embedding: bool = hf("scale_embedding", True)
    attention_type: Literal["block_sparse", "original_full"] = hf("attention_type", "block_sparse")
    block_size: Size = hf("block_size", 64)
    num_random_blocks: Size = hf("num_random_blocks", 3)
    attention_bias: bool = hf("use_bias", False)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    bos_token_id: TokenId | None = hf("bos_token_id", 2)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", None)
    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})


class BigBirdPegasus(bart.Bart):
    """BigBird-Pegasus without head."""

    config_type = BigBirdPegasusConfig
    position_offset = 0
    embedding_norm = False
    order = "pre_norm"
    final_norm = True
    batch_dependent = True  # the longest text decides where the last block is

    def make_attention(self, stack: Stack, name: str, *, index: int, **options: Any) -> MultiHeadAttention:
        """Creates attention, which is block-sparse in the encoder; the index is the seed of its random blocks."""
        config = self.config
        options |= {"use_bias": config.attention_bias}
        if stack == "encoder" and config.attention_type == "block_sparse":
            blocks = SparseBlocks(config.block_size, config.num_random_blocks, config.max_length, seed=index)
            options |= {"kind": BlockSparseAttention, "blocks": blocks}
        return super().make_attention(stack, name, index=index, **options)

    def make_feed_forward(self, stack: Stack, **options: Any) -> FeedForward:
        """Creates a feed-forward network, which has no dropout after its activation in the encoder."""
        return super().make_feed_forward(stack, **({"dropout": 0.0} if stack == "encoder" else {}), **options)

    def rows(self) -> list[Row]:
        """Returns the weight table; the final norms have the name of BART's norms of the embeddings."""
        encoder = {"query": "self.query", "key": "self.key", "value": "self.value", "output": "output"}
        return bart_rows(self, encoder, self.config.attention_bias, final_norm="layernorm_embedding")


MODELS = heads_like(bart.SHARED, BigBirdPegasus)
