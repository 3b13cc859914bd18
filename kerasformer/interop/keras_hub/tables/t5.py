"""T5 in KerasHub."""

from __future__ import annotations

from typing import Any

from kerasformer.interop.keras_hub import names as keras_hub
from kerasformer.models.weight_table import Row, nested, repeat
from kerasformer.zoo.t5 import T5Config


def _stack(stack: str, count: int | None, gated: bool) -> list[Row]:
    """Returns the weight table of one stack; the relative position biases are in its first layer."""
    attentions = {"attention": "self_attention", "cross_attention": "cross_attention"}
    if stack == "encoder":
        del attentions["cross_attention"]
    widths = {"gate": "input_projector", "up": "gate_projector"} if gated else {"intermediate": "input_projector"}
    widths["output"] = "output_projector"
    layer = [Row(("feed_forward_norm/scale",), "layer_norm.weight")]
    for path, name in widths.items():
        layer += keras_hub.dense(f"feed_forward/{path}", name, bias=False)
    for path, name in attentions.items():
        layer.append(Row((f"{path}_norm/scale",), f"{name}_layer_norm.weight"))
        for part in ("query", "key", "value", "output"):
            layer += keras_hub.dense(f"{path}/{part}", f"{name}.{part}_projector", bias=False)
    layers = f"{stack}_transformer_layers"
    return [
        keras_hub.table(f"{stack}_bias", f"{layers}.0.self_attention.relative_attention_bias"),
        *repeat(count or 0, nested(layer, f"{stack}/layer_{{i}}/", f"{layers}.{{i}}.")),
        Row((f"{stack}/final_norm/scale",), f"{stack}_layer_norm.weight"),
    ]


def _rows(config: T5Config) -> list[Row]:
    """Returns the weight table of the backbone."""
    return [
        keras_hub.table("tokens", "token_embedding.embeddings"),
        *_stack("encoder", config.num_layers, config.gated),
        *_stack("decoder", config.num_decoder_layers, config.gated),
    ]


class _Table(keras_hub.KerasHub):
    """Table with the activation, which KerasHub represents as a function and a separate setting for the gate."""

    def config_values(self, backbone: Any) -> dict[str, Any]:
        """Returns the values of our configuration."""
        name = keras_hub.activation_name(backbone.activation)
        gated = backbone.use_gated_activation
        # In the naming of Hugging Face, `gated-gelu` is the tanh approximation.
        feed_forward = "gated-gelu" if gated and name == "gelu_new" else f"{'gated-' if gated else ''}{name}"
        exact = {"activation": "gelu"} if gated and name == "gelu" else {}
        head_dim = backbone.key_value_dim or backbone.hidden_dim // backbone.num_heads
        return {**super().config_values(backbone), "feed_forward": feed_forward, "head_dim": head_dim, **exact}

    def arguments(self, config: T5Config) -> dict[str, Any]:
        """Returns the arguments of KerasHub's backbone."""
        activation = keras_hub.activation_function(config.hidden_act)
        gate = {"activation": activation, "use_gated_activation": config.gated}
        return {**super().arguments(config), "key_value_dim": config.head_dim, **gate}

    def differences(self, config: T5Config) -> list[str]:
        """Returns descriptions of the configuration values that KerasHub does not support."""
        differences = super().differences(config)
        if config.num_decoder_layers != config.num_layers:
            differences.append(f"num_decoder_layers: equal to num_layers, received {config.num_decoder_layers}")
        if config.scale_output != config.tied:
            differences.append(f"scale_output: equal to tied, {config.tied}, received {config.scale_output}")
        return differences


TABLE = _Table(
    backbone="T5Backbone",
    default_task="text2text-generation",
    settings={
        **keras_hub.SIZES,
        "intermediate_dim": "intermediate_dim",
        "dropout": "dropout",
        "epsilon": "layer_norm_epsilon",
        "tied": "tie_embedding_weights",
    },
    fixed={"num_buckets": 32, "max_distance": 128},
    tokens={"pad_token_id": "pad_token_id", "eos_token_id": "end_token_id", "decoder_start_token_id": "pad_token_id"},
    rows=_rows,
    tasks=(
        keras_hub.HubTask(
            "text2text-generation", "T5Seq2SeqLM", [Row(("kernel",), "backbone.token_embedding.reverse_embeddings")]
        ),
    ),
)
