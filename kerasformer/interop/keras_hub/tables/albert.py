"""ALBERT in KerasHub."""

from __future__ import annotations

from kerasformer.interop.keras_hub import names as keras_hub
from kerasformer.models.weight_table import Row, nested
from kerasformer.zoo.albert import AlbertConfig


def _rows(config: AlbertConfig) -> list[Row]:
    """Returns the weight table of the backbone."""
    rows = [
        keras_hub.table("embeddings/tokens", "token_embedding.embeddings"),
        keras_hub.table("embeddings/positions", "position_embedding.position_embeddings"),
        keras_hub.table("embeddings/segments", "segment_embedding.embeddings"),
        *keras_hub.norm("embeddings/norm", "embeddings_layer_norm"),
        *keras_hub.dense("embeddings/projection", "embeddings_projection"),
        *keras_hub.dense("pooler", "pooled_dense"),
    ]
    for index in range(config.num_groups * config.group_size):
        group, inner = divmod(index, config.group_size)
        layer = keras_hub.transformer_layer()
        rows += nested(layer, f"encoder/layer_{index}/", f"transformer_layers.{group}.{inner}.")
    return rows


TABLE = keras_hub.KerasHub(
    backbone="AlbertBackbone",
    default_task="feature-extraction",
    settings={
        **keras_hub.ENCODER,
        "embedding_dim": "embedding_dim",
        "num_groups": "num_groups",
        "group_size": "num_inner_repetitions",
        "num_segments": "num_segments",
    },
    fixed={"hidden_act": "gelu_new", "epsilon": 1e-12},
    tokens={"pad_token_id": "pad_token_id", "bos_token_id": "cls_token_id", "eos_token_id": "sep_token_id"},
    rows=_rows,
    tasks=(
        keras_hub.HubTask(
            "text-classification",
            "AlbertTextClassifier",
            keras_hub.dense("output", "output_dense"),
            dropout="head_dropout",
        ),
        keras_hub.HubTask("fill-mask", "AlbertMaskedLM", keras_hub.masked_lm_head(), {"epsilon": 1e-5}),
    ),
)
