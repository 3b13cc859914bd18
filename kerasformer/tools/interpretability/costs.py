"""What a model costs, from its configuration alone: parameters, multiply-adds and memory of the cache for each token.

Variables have shapes here but no values, so that a model of any size can be counted on any machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.files.reading import JsonObject
from kerasformer.layers import (
    Embedding,
    HeadAttentionCall,
    LayerArguments,
    Outputs,
    Primitives,
    Tensor,
    primitives,
)
from kerasformer.models import (
    PretrainedModel,
    abstract_variables,
    architecture,
    configured_task,
    create,
    model_class,
    model_type_of,
    read_config,
    variables_by_path,
)

_LENGTH = 61
"""Number of tokens of the counted text, or the maximum length of the model if that is less.

It is unusual as any other size, so that shapes show which of their sizes is the number of tokens.
"""
_FLOAT32 = 4


@dataclass(frozen=True)
class Costs:
    """What a model costs.

    Attributes:
        model_type: Architecture.
        task: Hugging Face task name of the head.
        parameters: Number of parameters; those that layers share count once.
        embedding_parameters: Those in tables of embeddings, of which a token uses a row.
        parameter_bytes: Bytes of all parameters in the type that the configuration names, or in float32.
        macs: Multiply-adds for each token in products with weights; of an encoder-decoder, for a token that is read and
            one that is written. A shared layer counts as often as it is applied.
        attention_macs: Further multiply-adds for each token and each token that it attends to, of all layers together.
        cache_bytes: Bytes of the cache for each token in float32; 0 for a model that does not generate. That of a layer
            with a sliding window does not grow beyond the window.
    """

    model_type: str
    task: str
    parameters: int
    embedding_parameters: int
    parameter_bytes: int
    macs: int
    attention_macs: int
    cache_bytes: int

    def training_flops(self, tokens: int) -> float:
        """Returns the floating-point operations of training on so many tokens, by the rule `6 * N * D`.

        `N` are the parameters without embeddings: a multiply-add has two operations, and the backward pass costs twice
        as much as the forward pass.

        Args:
            tokens: Number `D` of tokens.

        Reference: Kaplan et al. 2020, arXiv:2001.08361, section 2.1.
        """
        return 6.0 * (self.parameters - self.embedding_parameters) * tokens


def costs(source: str | Path | PretrainedModel, task: str | None = None) -> Costs:
    """Counts what a model costs, without its weights.

        costs("config.json").parameters
        costs("sentiment-bert").macs

    Products of attention with relative positions, as in DeBERTa, are not counted.

    Args:
        source: Model, checkpoint folder, GGUF file, preset or hub id; or a file `config.json`, or a folder that has it
            alone. Of a bundle, the numbers are those of the model that was exported.
        task: Task, for a head that `config.json` does not name.

    Raises:
        SourceError: the source does not exist.
        UnsupportedConfigError: the architecture or a value of its configuration is unsupported.
        InputError: the architecture does not support the task, or a model has another one.
    """
    if isinstance(source, PretrainedModel):
        _check_task(source, task)
        return count(source, Counting())
    with abstract_model(source, task) as (model, parameter_size):
        return count(model, Counting(), parameter_size)


@contextmanager
def abstract_model(
    source: str | Path | PretrainedModel, task: str | None = None
) -> Iterator[tuple[PretrainedModel, int]]:
    """Context with a model whose variables have shapes and no values, and with the bytes of a parameter in its files.

    Arguments and errors are those of `costs`. A model is created anew from its configuration.
    """
    if isinstance(source, PretrainedModel):
        _check_task(source, task)
        with abstract_variables():
            yield type(source).from_config({**source.get_config(), "dtype": "float32"}), _FLOAT32
        return
    content = read_config(source)
    model_type = model_type_of(content)
    classes_by_task = architecture(model_type).MODELS
    task = task or configured_task(classes_by_task, content)
    task_class = model_class(classes_by_task, model_type, task)
    config = task_class.backbone_type.config_type.from_hf(content)
    with abstract_variables():
        options = task_class.options(task, config, None, None)
        yield create(task_class, config, "float32", **options), _size_of(content)


def _check_task(model: PretrainedModel, task: str | None) -> None:
    if task not in (None, model.task):
        raise InputError(f"A model has one task: {model.task}. Received: task={task!r}")


def _size_of(content: JsonObject) -> int:
    """Returns the bytes of a parameter in the type that a configuration names."""
    bits = re.search(r"\d+", str(content.get("dtype") or content.get("torch_dtype") or "float32"))
    return int(bits[0]) // 8 if bits else _FLOAT32


def count(model: PretrainedModel, counting: Counting, parameter_size: int = _FLOAT32) -> Costs:
    """Counts what a model costs, while it is traced on a short text.

    Args:
        model: The model; its variables need no values.
        counting: What counts, for this text.
        parameter_size: Bytes of a parameter.
    """
    variables = variables_by_path(model)
    parameters = sum(math.prod(variable.shape) for variable in variables.values())
    tables = [layer for layer in model._flatten_layers() if isinstance(layer, Embedding)]
    embeddings = {id(variable): math.prod(variable.shape) for layer in tables for variable in layer.variables}
    length = counted_length(model)
    ids = {name: keras.KerasTensor((1, length), "int32") for name in _ids_of(model)}
    with primitives.lowering(counting):
        model(ids)
    cache = sum(len(spec.tensors) * spec.num_heads * spec.size for spec in _cache_specs(model)) * _FLOAT32
    return Costs(
        model.config.model_type,
        model.task,
        parameters,
        sum(embeddings.values()),
        parameters * parameter_size,
        round(counting.linear_macs / length),
        round(counting.attention_macs / length**2),
        cache,
    )


def counted_length(model: PretrainedModel) -> int:
    """Returns the number of tokens of the text that `count` traces a model on."""
    return min([_LENGTH, *(length for length in (model.max_length, model.max_answer_length) if length is not None)])


def _ids_of(model: PretrainedModel) -> tuple[str, ...]:
    return tuple(name for name in ("input_ids", "decoder_input_ids") if name in model.input_names)


def _cache_specs(model: PretrainedModel) -> list:
    return model.cache_specs() if model.generates else []


def kind_of(layer: keras.layers.Layer) -> str:
    """Returns a text that is the same for layers that compute the same with other weights."""
    config = {name: value for name, value in layer.get_config().items() if name != "name"}
    return f"{type(layer).__name__} {json.dumps(config, sort_keys=True, default=str)}"


class Counting(Primitives):
    """Counts multiply-adds while a model is traced; results have the right shapes and no meaning.

    Attributes:
        linear_macs: Multiply-adds of products with weights.
        attention_macs: Multiply-adds of queries with keys, and of weights with values.
    """

    def __init__(self) -> None:
        self.linear_macs = self.attention_macs = 0
        self._layers: dict[tuple[object, ...], tuple[int, int, Tensor | Outputs]] = {}

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """See `Primitives.layer`; of equal layers, one is traced."""
        shapes = tuple(tuple(variable.shape) for variable in layer.variables)
        equal = (kind_of(layer), shapes, tuple(x.shape), *sorted(arguments))
        if equal not in self._layers:
            linear, attention = self.linear_macs, self.attention_macs
            output = layer(x, **arguments)
            self._layers[equal] = self.linear_macs - linear, self.attention_macs - attention, output
            return output
        linear, attention, output = self._layers[equal]
        self.linear_macs += linear
        self.attention_macs += attention
        return output

    def linear(self, x: Tensor, kernel: Tensor, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
        """See `Primitives.linear`."""
        units, size = kernel.shape if transposed else kernel.shape[::-1]
        self.linear_macs += math.prod(x.shape[:-1]) * size * units
        return ops.zeros((*x.shape[:-1], units), x.dtype)

    def attention(self, call: HeadAttentionCall) -> tuple[Tensor, Tensor | None]:
        """See `Primitives.attention`."""
        query, key, value = call.query, call.key, call.value
        self.attention_macs += math.prod(query.shape) * key.shape[2] + math.prod(query.shape[:3]) * math.prod(
            value.shape[2:]
        )
        return ops.zeros((*query.shape[:3], value.shape[3]), value.dtype), None
