"""GPT-2 in KerasHub."""

from __future__ import annotations

from typing import Any

from kerasformer.interop.keras_hub import names as keras_hub
from kerasformer.models.weight_table import Row, nested, repeat
from kerasformer.zoo.gpt2 import Gpt2Config


def _rows(config: Gpt2Config) -> list[Row]:
    """Returns the weight table of the backbone."""
    layer = nested(keras_hub.transformer_layer(), "decoder/layer_{i}/", "transformer_layers.{i}.")
    return [
        keras_hub.table("tokens", "token_embedding.embeddings"),
        keras_hub.table("positions", "position_embedding.position_embeddings"),
        *repeat(config.num_layers, layer),
        *keras_hub.norm("decoder/final_norm", "layer_norm"),
    ]


class _Table(keras_hub.KerasHub):
    """Table with `intermediate_dim`, which is optional in our configuration and required in KerasHub."""

    def arguments(self, config: Gpt2Config) -> dict[str, Any]:
        """Returns the arguments of KerasHub's backbone."""
        return {**super().arguments(config), "intermediate_dim": config.intermediate_dim}


TABLE = _Table(
    backbone="GPT2Backbone",
    default_task="feature-extraction",
    settings={
        **keras_hub.SIZES,
        "inner_dim": "intermediate_dim",
        "max_length": "max_sequence_length",
        "residual_dropout": "dropout",
        "attention_dropout": "dropout",
        "embedding_dropout": "dropout",
    },
    fixed={"hidden_act": "gelu_new", "epsilon": 1e-5, "scale_attention": True, "scale_by_layer": False, "tied": True},
    tokens={"bos_token_id": "start_token_id", "eos_token_id": "end_token_id"},
    rows=_rows,
    tasks=(keras_hub.HubTask("text-generation", "GPT2CausalLM"),),
)
