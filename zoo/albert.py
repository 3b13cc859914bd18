"""ALBERT: BERT with factorized embeddings and shared layers.

Derived from: `bert`.
Paper: Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
arXiv:1909.11942. Reference: `transformers.models.albert`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import ClassificationHead
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Layers, Rate, Repeats, Size, TokenId
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, EncoderConfig, layer_table
from kerasformer.models.weight_table import Names, Row, dense, nested
from kerasformer.zoo import bert


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """Configuration of ALBERT; the defaults are those of `albert-xxlarge-v2`."""

    model_type = "albert"
    required = {"position_embedding_type": ("absolute",)}
    # Keys of the authors' code.
    ignored = frozenset("down_scale_factor gap_size net_structure_type num_memory_blocks".split())

    vocab_size: Size = hf("vocab_size", 30000)
    embedding_dim: Size = hf("embedding_size", 128)
    hidden_dim: Size = hf("hidden_size", 4096)
    num_layers: Repeats = hf("num_hidden_layers", 12)
    num_groups: Layers = hf("num_hidden_groups", 1)
    group_size: Layers = hf("inner_group_num", 1)
    num_heads: Size = hf("num_attention_heads", 64)
    intermediate_dim: Size = hf("intermediate_size", 16384)
    hidden_act: str = hf("hidden_act", "gelu_new")
    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.0)
    attention_dropout: Rate = hf("attention_probs_dropout_prob", 0.0)
    head_dropout: Rate = hf("classifier_dropout_prob", 0.1)
    max_length: Size = hf("max_position_embeddings", 512)
    bos_token_id: TokenId | None = hf("bos_token_id", 2)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 3)

    def __post_init__(self) -> None:
        """Validates the number of groups."""
        super().__post_init__()
        if self.num_groups > self.num_layers:
            received = f"num_hidden_groups={self.num_groups}, num_hidden_layers={self.num_layers}"
            raise UnsupportedConfigError(f"num_hidden_groups must be at most num_hidden_layers. Received: {received}")


class Albert(BidirectionalEncoder):
    """ALBERT without head."""

    config_type = AlbertConfig
    # Ignored: a buffer, an unused pooler.
    names = Names("albert.", (r"embeddings\.position_ids", r"pooler\..*"), tokens=TOKENS)

    @property
    def schedule(self) -> list[int]:
        """Indices of the layers of each group, repeated: 0 1 0 1 2 3 2 3 for two groups of two layers."""
        config = self.config
        # In the order of operations of the reference, whose division rounds.
        groups = [int(step / (config.num_layers / config.num_groups)) for step in range(config.num_layers)]
        return [group * config.group_size + inner for group in groups for inner in range(config.group_size)]

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = layer_table(
            ("attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm"),
            ("ffn", "ffn_output", "full_layer_layer_norm"),
        )
        names = "encoder.albert_layer_groups.{}.albert_layers.{}."
        layers = self.layer_rows(layer, lambda index: names.format(*divmod(index, self.config.group_size)))
        embeddings = self.embedding_rows(projection="encoder.embedding_hidden_mapping_in")
        return [*embeddings, *layers, *self.pooler_rows("pooler")]


PREDICTIONS = task_models.prediction_rows("predictions")


class AlbertPretraining(task_models.Pretraining, backbone=Albert):
    """ALBERT with both heads of its pretraining: masked language modelling and sentence order prediction."""

    relation = "sop_logits"
    head_table = (*nested(PREDICTIONS, "predictions/"), *dense("relation/output", "sop_classifier.classifier"))

    def make_relation(self) -> ClassificationHead:
        """Creates the head for pairs of texts, which has `num_labels` outputs in the reference."""
        return ClassificationHead(self.config.num_labels, dropout=self.config.head_dropout, name="relation")


class AlbertFillMask(task_models.FillMask, backbone=Albert):
    """ALBERT for masked language modelling."""

    head_table = PREDICTIONS


MODELS = task_models.heads_like(bert.SHARED, Albert, AlbertFillMask, AlbertPretraining)
