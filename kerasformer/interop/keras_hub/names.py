"""Names of KerasHub: its classes, arguments and weights for each architecture.

Each module of `tables` defines a `KerasHub` table for an architecture. Its rows map one of our variables to one of
KerasHub, named by its attributes: `backbone.transformer_layers.0._self_attention_layer._query_dense.kernel`.
Both are Keras variables, so that kernels differ only in whether heads and head size are one axis or two.

Importing this module does not import KerasHub. Reference: keras_hub 0.32, `keras_hub.models`.
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
from kerasformer.models.weight_table import Names, Row, nested
from kerasformer.tensor_files import TensorFile

PACKAGES = ("keras_hub", "keras_nlp")

SIZES = {
    "vocab_size": "vocabulary_size",
    "hidden_dim": "hidden_dim",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
}
"""Arguments of KerasHub's backbones, by the names of our configuration fields."""

ENCODER = {
    **SIZES,
    "intermediate_dim": "intermediate_dim",
    "max_length": "max_sequence_length",
    "hidden_dropout": "dropout",
    "attention_dropout": "dropout",
}
"""Arguments of KerasHub's encoders, by the names of our configuration fields."""


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
    parts: Mapping[str, Any] = field(default_factory=dict)
    dropout: str | None = None


@dataclass(frozen=True)
class KerasHub:
    """Names of an architecture in KerasHub.

    Attributes:
        backbone: Name of the class in `keras_hub.models`.
        default_task: Task of a backbone without a head.
        settings: Arguments of the backbone by the names of our configuration fields. If several fields have the same
            argument, the first one determines its value.
        fixed: Configuration fields that have a fixed value in KerasHub.
        tokens: Attributes of KerasHub's tokenizer by the names of our fields for token ids.
        rows: Function that returns the weight table of the backbone for a configuration; our paths are relative to
            `backbone/`.
        tasks: Task classes of KerasHub.
    """

    backbone: str
    default_task: str
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    tokens: Mapping[str, str]
    rows: Callable[[Any], list[Row]]
    tasks: tuple[HubTask, ...]

    def config_values(self, backbone: Any) -> dict[str, Any]:
        """Returns the values of our configuration for a backbone of KerasHub."""
        values = {ours: getattr(backbone, theirs) for ours, theirs in self.settings.items()}
        return {**values, **self.fixed}

    def arguments(self, config: Any) -> dict[str, Any]:
        """Returns the arguments of KerasHub's backbone for a configuration."""
        fields = reversed(list(self.settings.items()))
        return {theirs: getattr(config, ours) for ours, theirs in fields}

    def differences(self, config: Any) -> list[str]:
        """Returns descriptions of the configuration values that KerasHub does not support."""
        return [
            f"{name}: only {expected!r}, received {getattr(config, name)!r}"
            for name, expected in self.fixed.items()
            if getattr(config, name) != expected
        ]

    def find(self, task: str) -> HubTask | None:
        """Returns the class for a Hugging Face task name, or `None`."""
        return next((each for each in self.tasks if each.task == task), None)

    def named(self, class_name: str) -> HubTask | None:
        """Returns the task with this class name, or `None`."""
        return next((each for each in self.tasks if each.name == class_name), None)

    def weight_table(self, model: Any) -> list[Row]:
        """Returns the rows for the variables that a model has."""
        rows = nested(self.rows(model.config), "backbone/", "backbone.")
        hub_task = self.find(model.task)
        rows += nested(hub_task.rows if hub_task is not None else (), "head/")
        paths = {path for row in model.rows() for path in row.variables}
        return [row for row in rows if paths.issuperset(row.variables)]


def is_keras_hub(value: Any) -> bool:
    """Returns whether a value is an instance of a class of KerasHub, without importing it."""
    return any(kind.__module__.split(".")[0] in PACKAGES for kind in type(value).__mro__)


def is_preset(content: Mapping[str, Any]) -> bool:
    """Returns whether the content of a `config.json` is that of a KerasHub preset."""
    return "class_name" in content and str(content.get("registered_name", "")).split(">")[0] in PACKAGES


def pair(path: str, attributes: str, names: Mapping[str, str]) -> list[Row]:
    """Returns the rows of a layer, from our names of its variables to those of KerasHub."""
    return [Row((f"{path}/{ours}",), f"{attributes}.{theirs}") for ours, theirs in names.items()]


def dense(path: str, attributes: str, *, bias: bool = True) -> list[Row]:
    """Returns the rows of a `Dense` layer or an attention projection."""
    return pair(path, attributes, {"kernel": "kernel", "bias": "bias"} if bias else {"kernel": "kernel"})


def norm(path: str, attributes: str) -> list[Row]:
    """Returns the rows of a `LayerNormalization`."""
    return pair(path, attributes, {"scale": "gamma", "bias": "beta"})


def table(path: str, attribute: str) -> Row:
    """Returns the row of an `Embedding`."""
    return Row((f"{path}/embeddings",), attribute)


def transformer_layer() -> list[Row]:
    """Returns the rows of a `TransformerEncoder`, or of a `TransformerDecoder` without cross-attention."""
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
    """Returns the rows of a masked language modeling head."""
    return [
        *dense("dense", "masked_lm_head._intermediate_dense"),
        *norm("norm", "masked_lm_head._intermediate_layer_norm"),
        Row(("bias",), "masked_lm_head._bias"),
    ]


@dataclass(frozen=True)
class HubNames(Names):
    """Names of tensors that are attribute paths, without variants."""

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """Returns the name unchanged."""
        return name


class HubWeights(TensorFile):
    """The weights of a KerasHub model, with the interface of a tensor file; each tensor is copied when it is read.

    Args:
        model: Task or backbone.
        rows: Weight table with the names of the tensors.
    """

    def __init__(self, model: Any, rows: Sequence[Row]) -> None:
        self.paths = []
        self._model = model
        self._rows = rows

    def __str__(self) -> str:
        return type(self._model).__name__

    def variable(self, name: str) -> Any:
        """Returns the variable with this name; the merged value for a layer with adapters."""
        root, _, rest = name.partition(".")
        start = getattr(self._model, "backbone", self._model) if root == "backbone" else getattr(self._model, root)
        return reduce(lambda at, part: at[int(part)] if part.isdigit() else getattr(at, part), rest.split("."), start)

    def names(self) -> list[str]:
        """Returns the names of the tensors of the table that exist in the model."""
        return [row.tensor for row in self._rows if self._has(row.tensor)]

    def _has(self, name: str) -> bool:
        try:
            return self.variable(name) is not None
        except (AttributeError, IndexError):
            return False

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor, with heads and head size as one axis."""
        return matrix_shape(name, self.variable(name).shape)

    def check_float(self) -> None:
        """Checks that the model is not quantized.

        Raises:
            UnsupportedConfigError: a weight has a type other than a float type.
        """
        for name in self.names():
            problem = self.problem(name)
            if problem is not None:
                raise UnsupportedConfigError(
                    f"Weights of a float type were expected. Received: {name} of {self}, {problem}. "
                    "Load the model before it is quantized, and quantize the export"
                )

    def problem(self, name: str) -> str | None:
        """Returns a description of the data type if it is not a float type, or `None`."""
        dtype = keras.backend.standardize_dtype(self.variable(name).dtype)
        return None if dtype in ("float16", "bfloat16", "float32", "float64") else f"of type {dtype}"

    def dtype(self, name: str) -> str:
        """Returns the data type that a tensor is read with: its own, or float32 for bfloat16."""
        dtype: str = keras.backend.standardize_dtype(self.variable(name).dtype)
        return "float32" if dtype == "bfloat16" else dtype

    def _read(self, name: str) -> np.ndarray:
        value = keras.ops.cast(self.variable(name), self.dtype(name))
        return np.asarray(keras.ops.convert_to_numpy(value)).reshape(self.shape(name))

    @contextmanager
    def progress(self) -> Iterator[Callable[[int], None]]:
        """Shows no progress bar, since no file is read."""
        yield lambda count: None


def matrix_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of a variable of KerasHub with heads and head size as one axis."""
    if name.endswith(".bias"):
        return (math.prod(shape),)
    if len(shape) == 3:
        return (shape[0] * shape[1], shape[2]) if "_output_dense." in name else (shape[0], shape[1] * shape[2])
    return tuple(shape)


_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_approximate": "gelu_new", "silu": "silu", "tanh": "tanh"}


def activation_name(function: Any) -> str:
    """Returns our name of an activation function of Keras or KerasHub.

    Raises:
        UnsupportedConfigError: the function is not supported.
    """
    name = getattr(function, "__name__", str(function))
    if name not in _ACTIVATIONS:
        raise UnsupportedConfigError(
            f"This activation is not supported. Expected one of {', '.join(_ACTIVATIONS)}. Received: {name}"
        )
    return _ACTIVATIONS[name]


def activation_function(name: str) -> Any:
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
