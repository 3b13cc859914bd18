"""KerasHub's models: how it spells an architecture, and its weights as a file of tensors.

A file of `tables` declares a `KerasHub` table for each architecture. The rows pair one variable of ours with one
of KerasHub's, named by its attributes: `backbone.transformer_layers.0._self_attention_layer._query_dense.kernel`.
Both are Keras, so that a kernel differs at most in whether heads and head size are one axis.

Importing this file does not import KerasHub. Reference: keras_hub 0.32, `keras_hub.models`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import keras
import numpy as np

from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.tensor_files import TensorFile
from kerasformer.models.weight_table import Names, Row, nested

PACKAGES = ("keras_hub", "keras_nlp")

SIZES = {
    "vocab_size": "vocabulary_size",
    "hidden_dim": "hidden_dim",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
}
"""Arguments of KerasHub's backbones, by our names of them."""

ENCODER = {
    **SIZES,
    "intermediate_dim": "intermediate_dim",
    "max_length": "max_sequence_length",
    "hidden_dropout": "dropout",
    "attention_dropout": "dropout",
}
"""Those of its encoders."""


@dataclass(frozen=True)
class HubTask:
    """A task of KerasHub.

    Attributes:
        task: Our name of it.
        name: Class in `keras_hub.models`.
        rows: Weight table of the head, our paths below `head/`.
        parts: Arguments of our model's constructor, for what KerasHub fixes otherwise than the configuration says.
        dropout: Field of our configuration that holds the dropout before the head's output, where it has labels.
    """

    task: str
    name: str
    rows: Sequence[Row] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    dropout: str | None = None


@dataclass(frozen=True)
class KerasHub:
    """How KerasHub spells an architecture.

    Attributes:
        backbone: Class in `keras_hub.models`.
        default_task: What a backbone alone is taken for.
        settings: Arguments of the backbone by our field; the first of several fields with one argument is written.
        fixed: Values of our fields that KerasHub knows no other of.
        tokens: Attributes of KerasHub's tokenizer by the field that holds the id of a token.
        rows: Weight table of the backbone, from our configuration; our paths below `backbone/`.
        tasks: Of which KerasHub has a class.
    """

    backbone: str
    default_task: str
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    tokens: Mapping[str, str]
    rows: Callable[[Any], list[Row]]
    tasks: tuple[HubTask, ...]

    def config_values(self, backbone: Any) -> dict[str, Any]:
        """Values of our configuration, from a backbone of KerasHub."""
        values = {ours: getattr(backbone, theirs) for ours, theirs in self.settings.items()}
        return {**values, **self.fixed}

    def arguments(self, config: Any) -> dict[str, Any]:
        """Arguments of KerasHub's backbone, from our configuration."""
        fields = reversed(list(self.settings.items()))
        return {theirs: getattr(config, ours) for ours, theirs in fields}

    def differences(self, config: Any) -> list[str]:
        """What our configuration says and KerasHub has no setting for."""
        return [
            f"{name}: {expected!r} alone, received {getattr(config, name)!r}"
            for name, expected in self.fixed.items()
            if getattr(config, name) != expected
        ]

    def find(self, task: str) -> HubTask | None:
        """KerasHub's class for a task of ours."""
        return next((each for each in self.tasks if each.task == task), None)

    def named(self, class_name: str) -> HubTask | None:
        """The task of that class."""
        return next((each for each in self.tasks if each.name == class_name), None)

    def weight_table(self, model: Any) -> list[Row]:
        """The rows of a model of ours; those of parts that it does not have are left out."""
        rows = nested(self.rows(model.config), "backbone/", "backbone.")
        hub_task = self.find(model.task)
        rows += nested(hub_task.rows if hub_task is not None else (), "head/")
        own = {path for row in model.rows() for path in row.variables}
        return [row for row in rows if own.issuperset(row.variables)]


def is_keras_hub(value: Any) -> bool:
    """Whether a value is of a class of KerasHub, or of one derived from it; imports nothing."""
    return any(kind.__module__.split(".")[0] in PACKAGES for kind in type(value).__mro__)


def is_preset(content: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is of a preset of KerasHub."""
    return "class_name" in content and str(content.get("registered_name", "")).split(">")[0] in PACKAGES


def pair(path: str, attributes: str, names: Mapping[str, str]) -> list[Row]:
    """Rows of a layer: our variables' names to KerasHub's."""
    return [Row((f"{path}/{ours}",), f"{attributes}.{theirs}") for ours, theirs in names.items()]


def dense(path: str, attributes: str, *, bias: bool = True) -> list[Row]:
    """Rows of a `Dense` or of an attention's projection."""
    return pair(path, attributes, {"kernel": "kernel", "bias": "bias"} if bias else {"kernel": "kernel"})


def norm(path: str, attributes: str) -> list[Row]:
    """Rows of a `LayerNormalization`."""
    return pair(path, attributes, {"scale": "gamma", "bias": "beta"})


def table(path: str, attribute: str) -> Row:
    """The row of an `Embedding`."""
    return Row((f"{path}/embeddings",), attribute)


def transformer_layer() -> list[Row]:
    """A `TransformerEncoder`, or a `TransformerDecoder` without cross attention."""
    attention = [
        row
        for name in ("query", "key", "value", "output")
        for row in dense(f"attention/{name}", f"_self_attention_layer._{name}_dense")
    ]
    return [
        *attention,
        *norm("attention_norm", "_self_attention_layer_norm"),
        *dense("feed_forward/intermediate", "_feedforward_intermediate_dense"),
        *dense("feed_forward/output", "_feedforward_output_dense"),
        *norm("feed_forward_norm", "_feedforward_layer_norm"),
    ]


def masked_lm_head() -> list[Row]:
    """The head of a task that fills masks."""
    return [
        *dense("dense", "masked_lm_head._intermediate_dense"),
        *norm("norm", "masked_lm_head._intermediate_layer_norm"),
        Row(("bias",), "masked_lm_head._bias"),
    ]


@dataclass(frozen=True)
class HubNames(Names):
    """Names that are attributes, and spelled one way."""

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """The name itself."""
        return name


class HubWeights(TensorFile):
    """A model of KerasHub as a file of tensors; what is read is a copy, one tensor at a time.

    Args:
        model: A task or a backbone.
        rows: The weight table, which says where the tensors are.
    """

    def __init__(self, model: Any, rows: Sequence[Row]) -> None:
        self.paths = []
        self._model = model
        self._rows = rows

    def __str__(self) -> str:
        return type(self._model).__name__

    def variable(self, name: str) -> Any:
        """The variable under that name; of a layer with adapters, its merged value."""
        root, _, rest = name.partition(".")
        start = getattr(self._model, "backbone", self._model) if root == "backbone" else getattr(self._model, root)
        return reduce(lambda at, part: at[int(part)] if part.isdigit() else getattr(at, part), rest.split("."), start)

    def names(self) -> list[str]:
        """The tensors of the table that the model has."""
        return [row.tensor for row in self._rows if self._has(row.tensor)]

    def _has(self, name: str) -> bool:
        try:
            return self.variable(name) is not None
        except (AttributeError, IndexError):
            return False

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape, heads and head size as one axis."""
        return matrix_shape(name, self.variable(name).shape)

    def check_float(self) -> None:
        """Refuses a quantized model.

        Raises:
            UnsupportedConfigError: it is one.
        """
        for name in self.names():
            problem = self.problem(name)
            if problem is not None:
                raise UnsupportedConfigError(
                    f"Weights of a float type were expected. Received: {name} of {self}, {problem}. "
                    "Load the model before it is quantized, and quantize the export"
                )

    def problem(self, name: str) -> str | None:
        """A data type that is none of floating-point numbers."""
        dtype = keras.backend.standardize_dtype(self.variable(name).dtype)
        return None if dtype in ("float16", "bfloat16", "float32", "float64") else f"of type {dtype}"

    def _read(self, name: str) -> np.ndarray:
        variable = self.variable(name)
        dtype = keras.backend.standardize_dtype(variable.dtype)
        value = keras.ops.cast(variable, "float32") if dtype == "bfloat16" else variable
        return np.asarray(keras.ops.convert_to_numpy(value)).reshape(self.shape(name))

    @contextmanager
    def progress(self) -> Iterator[Callable[[int], None]]:
        """Shows nothing: no file is read."""
        yield lambda count: None


def matrix_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a variable of KerasHub once heads and head size are one axis."""
    if name.endswith(".bias"):
        return (math.prod(shape),)
    if len(shape) == 3:
        return (shape[0] * shape[1], shape[2]) if "_output_dense." in name else (shape[0], shape[1] * shape[2])
    return tuple(shape)


_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_approximate": "gelu_new", "silu": "silu", "tanh": "tanh"}


def activation_name(function: Any) -> str:
    """Our name of an activation function of Keras or KerasHub.

    Raises:
        UnsupportedConfigError: another function.
    """
    name = getattr(function, "__name__", str(function))
    if name not in _ACTIVATIONS:
        raise UnsupportedConfigError(
            f"This activation is not known here. Expected one of {', '.join(_ACTIVATIONS)}. Received: {name}"
        )
    return _ACTIVATIONS[name]


def activation_function(name: str) -> Any:
    """The function for an activation of ours.

    Raises:
        UnsupportedConfigError: KerasHub has no such function.
    """
    if name in ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"):
        from keras_hub.src.utils.keras_utils import gelu_approximate

        return gelu_approximate  # registered with Keras, so that it is saved by name
    if name not in _ACTIVATIONS.values() and name != "swish":
        raise UnsupportedConfigError(f"KerasHub has no such activation. Received: {name!r}")
    return keras.activations.get(name)
