"""DistilBERT in KerasHub."""

from __future__ import annotations

from kerasformer.interop.keras_hub import names as keras_hub
from kerasformer.models.weight_table import Row, nested, repeat
from kerasformer.zoo.distilbert import DistilBertConfig


def _rows(config: DistilBertConfig) -> list[Row]:
    """Returns the weight table of the backbone."""
    layer = nested(keras_hub.transformer_layer(), "encoder/layer_{i}/", "transformer_layers.{i}.")
    return [
        keras_hub.table("embeddings/tokens", "embeddings.token_embedding.embeddings"),
        keras_hub.table("embeddings/positions", "embeddings.position_embedding.position_embeddings"),
        *keras_hub.norm("embeddings/norm", "embeddings_layer_norm"),
        *repeat(config.num_layers, layer),
    ]


TABLE = keras_hub.KerasHub(
    backbone="DistilBertBackbone",
    default_task="feature-extraction",
    settings=keras_hub.ENCODER,
    fixed={"hidden_act": "gelu"},
    tokens={"pad_token_id": "pad_token_id"},
    rows=_rows,
    tasks=(
        keras_hub.HubTask(
            "text-classification",
            "DistilBertTextClassifier",
            (*keras_hub.dense("dense", "pooled_dense"), *keras_hub.dense("output", "output_dense")),
            dropout="classifier_dropout",
        ),
        keras_hub.HubTask("fill-mask", "DistilBertMaskedLM", keras_hub.masked_lm_head(), {"epsilon": 1e-5}),
    ),
)
