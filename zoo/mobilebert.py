"""MobileBERT: a thin and deep BERT whose layers have bottlenecks and several feed-forward networks.

Derived from: `bert`.
Paper: Sun et al. 2020, "MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices", arXiv:2004.02984.
Reference: `transformers.models.mobilebert`, except that padding is always 0 in the trigrams of the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import keras

from kerasformer.layers import BottleneckEncoderLayer, EncoderLayer, TransformerEmbeddings
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Layers, Rate, Size
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, bert_layer_table
from kerasformer.models.weight_table import Names, Row, dense, nested, norm
from kerasformer.zoo import bert


@dataclass(frozen=True, kw_only=True)
class MobileBertConfig(bert.BertConfig):
    """Configuration of MobileBERT; the defaults are those of `transformers`."""

    model_type = "mobilebert"
    ignored = frozenset({"true_hidden_size"})  # follows from other keys

    embedding_dim: Size = hf("embedding_size", 128)
    hidden_dim: Size = hf("hidden_size", 512)
    num_layers: Layers = hf("num_hidden_layers", 24)
    num_heads: Size = hf("num_attention_heads", 4)
    intermediate_dim: Size = hf("intermediate_size", 512)
    num_feed_forwards: Layers = hf("num_feedforward_networks", 4)
    hidden_act: str = hf("hidden_act", "relu")
    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.0)
    trigrams: bool = hf("trigram_input", True)
    bottleneck: bool = hf("use_bottleneck", True)
    bottleneck_dim: Size = hf("intra_bottleneck_size", 128)
    attention_in_bottleneck: bool = hf("use_bottleneck_attention", False)
    shared_queries_and_keys: bool = hf("key_query_shared_bottleneck", True)
    norm: Literal["no_norm", "layer_norm"] = hf("normalization_type", "no_norm")
    pooler_dense: bool = hf("classifier_activation", True)


class MobileBert(BidirectionalEncoder):
    """MobileBERT without head."""

    config_type = MobileBertConfig
    # Ignored: a buffer, an unused pooler, and layers that the reference creates without using them.
    names = Names(
        "mobilebert.",
        (
            r"(pooler|.*\.bottleneck\.attention)\..*",
            r"embeddings\.(position_ids|embedding_transformation\..*)",
        ),
        tokens=TOKENS,
    )

    @property
    def layer_dim(self) -> int:
        """Size of the states in a layer."""
        return self.config.bottleneck_dim if self.config.bottleneck else self.config.hidden_dim

    def make_embeddings(self, **options: Any) -> TransformerEmbeddings:
        """Creates embeddings in which those of tokens are smaller, and joined with those of their neighbors."""
        config = self.config
        options |= {"embedding_dim": None, "token_dim": self.projected_dim, "neighbors": int(config.trigrams)}
        return super().make_embeddings(norm=config.norm, epsilon=1e-5, **options)  # not a setting

    def make_layer(
        self, index: int, kind: type[EncoderLayer] | None = BottleneckEncoderLayer, **options: Any
    ) -> BottleneckEncoderLayer:
        """Creates a layer with several feed-forward networks, and a bottleneck unless the configuration has none."""
        config = self.config
        inner = [self.make_feed_forward(name=f"inner_{i}") for i in range(config.num_feed_forwards - 1)]
        options |= {"norm": config.norm, "feed_forward_epsilon": 1e-5, "inner": inner}
        if config.bottleneck:
            source = "shared" if config.shared_queries_and_keys else "hidden"
            options["attention_input"] = "bottleneck" if config.attention_in_bottleneck else source
            options |= {"hidden_dim": config.hidden_dim, "output_dropout": config.hidden_dropout, "dropout": 0.0}
        return super().make_layer(index, kind, **options)

    def make_pooler(self) -> keras.layers.Layer:
        """Creates the pooler, which may return the first token unchanged."""
        return super().make_pooler() if self.config.pooler_dense else keras.layers.Identity(name="pooler")

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = bert_layer_table()
        for index in range(self.config.num_feed_forwards - 1):
            layer += dense(f"inner_{index}/intermediate", f"ffn.{index}.intermediate.dense")
            layer += dense(f"inner_{index}/output", f"ffn.{index}.output.dense")
            layer += norm(f"inner_norm_{index}", f"ffn.{index}.output.LayerNorm")
        names = {"reduction": "bottleneck.input", "shared_reduction": "bottleneck.attention"}
        for path, name in {**names, "restoration": "output.bottleneck"}.items():
            if getattr(self.encoder.layers[0], path) is not None:
                layer += [*dense(f"{path}/dense", f"{name}.dense"), *norm(f"{path}/norm", f"{name}.LayerNorm")]
        layers = self.layer_rows(layer, "encoder.layer.{}.".format)
        return [*self.embedding_rows("embeddings.embedding_transformation"), *layers, *self.pooler_rows("pooler.dense")]


PREDICTIONS = (*task_models.BERT_PREDICTIONS, *dense("extension", "cls.predictions.dense", bias=False, transpose=False))


class MobileBertPretraining(task_models.Pretraining, backbone=MobileBert):
    """MobileBERT with both heads of its pretraining: masked language modelling and next sentence prediction."""

    relation = "seq_relationship_logits"
    head_table = (*nested(PREDICTIONS, "predictions/"), *dense("relation/output", "cls.seq_relationship"))


class MobileBertNextSentencePrediction(task_models.NextSentencePrediction, backbone=MobileBert):
    """MobileBERT for next sentence prediction."""

    head_table = dense("output", "cls.seq_relationship")


class MobileBertFillMask(task_models.FillMask, backbone=MobileBert):
    """MobileBERT for masked language modelling."""

    head_table = PREDICTIONS


MODELS = task_models.heads(
    MobileBert,
    bert.BertPooledFeatures,
    MobileBertFillMask,
    MobileBertPretraining,
    MobileBertNextSentencePrediction,
    task_models.PooledTextClassification,
    task_models.TokenClassification,
    task_models.QuestionAnswering,
)
