"""BERT in KerasHub."""

from __future__ import annotations

from kerasformer.interop.keras_hub import names as keras_hub
from kerasformer.models.weight_table import Row, nested, repeat
from kerasformer.zoo.bert import BertConfig


def _rows(config: BertConfig) -> list[Row]:
    """Returns the weight table of the backbone."""
    layer = nested(keras_hub.transformer_layer(), "encoder/layer_{i}/", "transformer_layers.{i}.")
    return [
        keras_hub.table("embeddings/tokens", "token_embedding.embeddings"),
        keras_hub.table("embeddings/positions", "position_embedding.position_embeddings"),
        keras_hub.table("embeddings/segments", "segment_embedding.embeddings"),
        *keras_hub.norm("embeddings/norm", "embeddings_layer_norm"),
        *repeat(config.num_layers, layer),
        *keras_hub.dense("pooler", "pooled_dense"),
    ]


TABLE = keras_hub.KerasHub(
    backbone="BertBackbone",
    default_task="feature-extraction",
    settings={**keras_hub.ENCODER, "num_segments": "num_segments"},
    fixed={"hidden_act": "gelu_new", "epsilon": 1e-12},
    tokens={"pad_token_id": "pad_token_id"},
    rows=_rows,
    tasks=(
        keras_hub.HubTask(
            "text-classification",
            "BertTextClassifier",
            keras_hub.dense("output", "output_dense"),
            dropout="classifier_dropout",
        ),
        keras_hub.HubTask(
            "fill-mask", "BertMaskedLM", keras_hub.masked_lm_head(), {"activation": "gelu", "epsilon": 1e-5}
        ),
    ),
)
