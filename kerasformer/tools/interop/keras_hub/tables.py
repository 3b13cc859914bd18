"""Settings and weights of the supported architectures in KerasHub: one `HubArchitecture` for each.

Rows map one of our variables to one of KerasHub, named by its attributes:
`backbone.transformer_layers.0._self_attention_layer._query_dense.kernel`. Both are Keras variables, so that kernels
differ only in whether heads and head size are one axis or two.

Reference: keras_hub 0.32, `keras_hub.models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import Tensor
from kerasformer.models import Row, nested, repeat


@dataclass(frozen=True)
class HubTask:
    """A task class of KerasHub.

    Attributes:
        task: Hugging Face task name.
        name: Name of the class in `keras_hub.models`.
        rows: Weight table of the head; our paths are relative to `head/`.
        parts: Arguments of our model's constructor for values that KerasHub fixes and the configuration lacks.
        dropout: Field of our configuration for the dropout before the output of the head; `None` without labels.
    """

    task: str
    name: str
    rows: Sequence[Row] = ()
    parts: Mapping[str, object] = field(default_factory=dict)
    dropout: str | None = None


@dataclass(frozen=True)
class HubArchitecture:
    """An architecture in KerasHub.

    Attributes:
        backbone: Name of the class in `keras_hub.models`.
        settings: Arguments of the backbone by the names of our configuration fields. If several fields have the same
            argument, the first one determines its value.
        fixed: Configuration fields that have a fixed value in KerasHub.
        rows: Function that returns the weight table of the backbone for a configuration; our paths are relative to
            `backbone/`.
        tasks: Task classes of KerasHub.
        tokens: Attributes of KerasHub's tokenizer by the names of our fields for token ids.
        default_task: Task of a backbone without a head.
    """

    backbone: str
    settings: Mapping[str, str]
    fixed: Mapping[str, object]
    rows: Callable[[Any], list[Row]]
    tasks: tuple[HubTask, ...]
    tokens: Mapping[str, str] = field(default_factory=lambda: _same("pad_token_id"))
    default_task: str = "feature-extraction"

    def config_values(self, backbone: keras.Model) -> Arguments:
        """Returns the values of our configuration for a backbone of KerasHub."""
        return {ours: getattr(backbone, theirs) for ours, theirs in self.settings.items()} | dict(self.fixed)

    def arguments(self, config: Any) -> Arguments:
        """Returns the arguments of KerasHub's backbone for a configuration."""
        return {theirs: getattr(config, ours) for ours, theirs in reversed(list(self.settings.items()))}

    def differences(self, config: Any) -> list[str]:
        """Returns descriptions of the configuration values that KerasHub does not support."""
        return [
            f"{name}: only {expected!r}, received {getattr(config, name)!r}"
            for name, expected in self.fixed.items()
            if getattr(config, name) != expected
        ]

    def find(self, task: str) -> HubTask | None:
        """Returns the class for a Hugging Face task name, or `None`."""
        return next((hub_task for hub_task in self.tasks if hub_task.task == task), None)

    def weight_table(self, model: keras.Model) -> list[Row]:
        """Returns the rows for the variables that a model has."""
        rows = nested(self.rows(model.config), "backbone/", "backbone.")
        hub_task = self.find(model.task)
        rows += nested(hub_task.rows if hub_task is not None else (), "head/")
        paths = {path for row in model.rows() for path in row.variables}
        return [row for row in rows if paths.issuperset(row.variables)]


def _same(*names: str) -> dict[str, str]:
    """Returns settings that have the same name in both packages."""
    return dict(zip(names, names, strict=True))


_SIZES = {"vocab_size": "vocabulary_size", **_same("hidden_dim", "num_layers", "num_heads")}
_ENCODER = {
    **_SIZES,
    **_same("intermediate_dim"),
    "max_length": "max_sequence_length",
    "hidden_dropout": "dropout",
    "attention_dropout": "dropout",
}


def _dense(path: str, attribute: str, *, bias: bool = True) -> list[Row]:
    """Returns the rows of a `Dense` layer or an attention projection."""
    names = ("kernel", "bias") if bias else ("kernel",)
    return [Row((f"{path}/{name}",), f"{attribute}.{name}") for name in names]


def _norm(path: str, attribute: str) -> list[Row]:
    return [Row((f"{path}/scale",), f"{attribute}.gamma"), Row((f"{path}/bias",), f"{attribute}.beta")]


def _embeddings(prefix: str = "", attribute: str = "") -> list[Row]:
    return [
        Row((f"{prefix}tokens/embeddings",), f"{attribute}token_embedding.embeddings"),
        Row((f"{prefix}positions/embeddings",), f"{attribute}position_embedding.position_embeddings"),
    ]


_SEGMENTS = Row(("embeddings/segments/embeddings",), "segment_embedding.embeddings")

_LAYER = [
    *(
        row
        for name in ("query", "key", "value", "output")
        for row in _dense(f"attention/{name}", f"_self_attention_layer._{name}_dense")
    ),
    *_norm("attention_norm", "_self_attention_layer_norm"),
    *_dense("feed_forward/intermediate", "_feedforward_intermediate_dense"),
    *_dense("feed_forward/output", "_feedforward_output_dense"),
    *_norm("feed_forward_norm", "_feedforward_layer_norm"),
]
"""Rows of a `TransformerEncoder`, or of a `TransformerDecoder` without cross-attention."""


def _layers(stack: str, count: int) -> list[Row]:
    return repeat(count, nested(_LAYER, f"{stack}/layer_{{i}}/", "transformer_layers.{i}."))


def _classifier(name: str, dropout: str, rows: Sequence[Row] = ()) -> HubTask:
    return HubTask("text-classification", name, (*rows, *_dense("output", "output_dense")), dropout=dropout)


def _masked_lm(name: str, **parts: object) -> HubTask:
    rows = [
        *_dense("dense", "masked_lm_head._intermediate_dense"),
        *_norm("norm", "masked_lm_head._intermediate_layer_norm"),
        Row(("bias",), "masked_lm_head._bias"),
    ]
    return HubTask("fill-mask", name, rows, {**parts, "epsilon": 1e-5})


def _bert(config: Any) -> list[Row]:
    return [
        *_embeddings("embeddings/"),
        _SEGMENTS,
        *_norm("embeddings/norm", "embeddings_layer_norm"),
        *_layers("encoder", config.num_layers),
        *_dense("pooler", "pooled_dense"),
    ]


def _distilbert(config: Any) -> list[Row]:
    return [
        *_embeddings("embeddings/", "embeddings."),
        *_norm("embeddings/norm", "embeddings_layer_norm"),
        *_layers("encoder", config.num_layers),
    ]


def _albert(config: Any) -> list[Row]:
    rows = [
        *_embeddings("embeddings/"),
        _SEGMENTS,
        *_norm("embeddings/norm", "embeddings_layer_norm"),
        *_dense("embeddings/projection", "embeddings_projection"),
        *_dense("pooler", "pooled_dense"),
    ]
    for index in range(config.num_groups * config.group_size):
        group, inner = divmod(index, config.group_size)
        rows += nested(_LAYER, f"encoder/layer_{index}/", f"transformer_layers.{group}.{inner}.")
    return rows


def _gpt2(config: Any) -> list[Row]:
    return [*_embeddings(), *_layers("decoder", config.num_layers), *_norm("decoder/final_norm", "layer_norm")]


class _Gpt2(HubArchitecture):
    """GPT-2, whose `intermediate_dim` is optional in our configuration and required in KerasHub."""

    def arguments(self, config: Any) -> Arguments:
        return {**super().arguments(config), "intermediate_dim": config.intermediate_dim}


def _t5(config: Any) -> list[Row]:
    tokens = Row(("tokens/embeddings",), "token_embedding.embeddings")
    encoder = _t5_stack("encoder", ["attention"], config.num_layers, config.gated)
    return [tokens, *encoder, *_t5_stack("decoder", ["attention", "cross_attention"], config.num_layers, config.gated)]


_T5_OUTPUT = [Row(("kernel",), "backbone.token_embedding.reverse_embeddings")]


def _t5_stack(stack: str, attentions: Sequence[str], count: int, gated: bool) -> list[Row]:
    """Returns the weight table of one stack; the relative position biases are in its first layer."""
    widths = {"gate": "input_projector", "up": "gate_projector"} if gated else {"intermediate": "input_projector"}
    layer = [Row(("feed_forward_norm/scale",), "layer_norm.weight")]
    for path, name in {**widths, "output": "output_projector"}.items():
        layer += _dense(f"feed_forward/{path}", name, bias=False)
    for path in attentions:
        name = "self_attention" if path == "attention" else path
        layer.append(Row((f"{path}_norm/scale",), f"{name}_layer_norm.weight"))
        for part in ("query", "key", "value", "output"):
            layer += _dense(f"{path}/{part}", f"{name}.{part}_projector", bias=False)
    layers = f"{stack}_transformer_layers"
    return [
        Row((f"{stack}_bias/embeddings",), f"{layers}.0.self_attention.relative_attention_bias"),
        *repeat(count, nested(layer, f"{stack}/layer_{{i}}/", f"{layers}.{{i}}.")),
        Row((f"{stack}/final_norm/scale",), f"{stack}_layer_norm.weight"),
    ]


class _T5(HubArchitecture):
    """T5, with the activation, which KerasHub represents as a function and a separate setting for the gate."""

    def config_values(self, backbone: keras.Model) -> Arguments:
        name = getattr(backbone.activation, "__name__", str(backbone.activation))
        if name not in _ACTIVATIONS:
            raise UnsupportedConfigError(
                f"This activation is not supported. Expected one of {', '.join(_ACTIVATIONS)}. Received: {name}"
            )
        values, name = super().config_values(backbone), _ACTIVATIONS[name]
        values["head_dim"] = backbone.key_value_dim or backbone.hidden_dim // backbone.num_heads
        values["feed_forward"] = name
        if backbone.use_gated_activation:
            # In the naming of Hugging Face, `gated-gelu` is the tanh approximation.
            values["feed_forward"] = "gated-gelu" if name == "gelu_new" else f"gated-{name}"
            values |= {"activation": "gelu"} if name == "gelu" else {}
        return values

    def arguments(self, config: Any) -> Arguments:
        gate = {"activation": activation_function(config.hidden_act), "use_gated_activation": config.gated}
        return {**super().arguments(config), "key_value_dim": config.head_dim, **gate}

    def differences(self, config: Any) -> list[str]:
        differences = super().differences(config)
        if config.num_decoder_layers != config.num_layers:
            differences.append(f"num_decoder_layers: equal to num_layers, received {config.num_decoder_layers}")
        if config.scale_output != config.tied:
            differences.append(f"scale_output: equal to tied, {config.tied}, received {config.scale_output}")
        return differences


_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_approximate": "gelu_new", "silu": "silu", "tanh": "tanh"}
"""Our names of activations by the names of the functions of Keras and KerasHub."""


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """Returns the function for our name of an activation.

    Raises:
        UnsupportedConfigError: KerasHub has no such function.
    """
    if name in ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"):
        from keras_hub.src.utils.keras_utils import gelu_approximate

        return gelu_approximate  # registered with Keras, so that it is saved by name
    if name not in _ACTIVATIONS.values() and name != "swish":
        raise UnsupportedConfigError(f"KerasHub has no such activation. Received: {name!r}")
    return keras.activations.get(name)


TABLES: Mapping[str, HubArchitecture] = {
    "albert": HubArchitecture(
        "AlbertBackbone",
        {**_ENCODER, **_same("embedding_dim", "num_groups", "num_segments"), "group_size": "num_inner_repetitions"},
        {"hidden_act": "gelu_new", "epsilon": 1e-12},
        _albert,
        (_classifier("AlbertTextClassifier", "head_dropout"), _masked_lm("AlbertMaskedLM")),
        {**_same("pad_token_id"), "bos_token_id": "cls_token_id", "eos_token_id": "sep_token_id"},
    ),
    "bert": HubArchitecture(
        "BertBackbone",
        {**_ENCODER, **_same("num_segments")},
        {"hidden_act": "gelu_new", "epsilon": 1e-12},
        _bert,
        (_classifier("BertTextClassifier", "classifier_dropout"), _masked_lm("BertMaskedLM", activation="gelu")),
    ),
    "distilbert": HubArchitecture(
        "DistilBertBackbone",
        _ENCODER,
        {"hidden_act": "gelu"},
        _distilbert,
        (
            _classifier("DistilBertTextClassifier", "classifier_dropout", _dense("dense", "pooled_dense")),
            _masked_lm("DistilBertMaskedLM"),
        ),
    ),
    "gpt2": _Gpt2(
        "GPT2Backbone",
        {
            **_SIZES,
            "inner_dim": "intermediate_dim",
            "max_length": "max_sequence_length",
            "residual_dropout": "dropout",
            "attention_dropout": "dropout",
            "embedding_dropout": "dropout",
        },
        {"hidden_act": "gelu_new", "epsilon": 1e-5, "scale_attention": True, "scale_by_layer": False, "tied": True},
        _gpt2,
        (HubTask("text-generation", "GPT2CausalLM"),),
        {"bos_token_id": "start_token_id", "eos_token_id": "end_token_id"},
    ),
    "t5": _T5(
        "T5Backbone",
        {
            **_SIZES,
            **_same("intermediate_dim", "dropout"),
            "epsilon": "layer_norm_epsilon",
            "tied": "tie_embedding_weights",
        },
        {"num_buckets": 32, "max_distance": 128, "separate_tables": None},
        _t5,
        (HubTask("text2text-generation", "T5Seq2SeqLM", _T5_OUTPUT),),
        {**_same("pad_token_id"), "eos_token_id": "end_token_id", "decoder_start_token_id": "pad_token_id"},
        default_task="text2text-generation",
    ),
}
"""The architectures by `model_type`."""
