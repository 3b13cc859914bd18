"""Smaller models that keep a part of the layers, attention heads, neurons or channels of a trained one.

The sizes of a model are those of its configuration, so that what remains is a model of the same class, which can be
trained, saved and exported as any other, and which `transformers` loads. Which entries of a variable belong to a head,
a neuron or a channel follows from the layers of the model; no architecture is named here.

    small = kf.training.prune(model, layers=6, neurons=1024)

Whatever was removed is best made up for by distillation, see `kerasformer.tools.training.distillation`. The vocabulary
is cut by `kerasformer.zoo.prune_vocabulary`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.command_options import CutOptions
from kerasformer.basics.options import checked, documented
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.layers import (
    Dense,
    Embedding,
    FeedForward,
    MultiHeadAttention,
    RelativePositionBias,
    Shape,
    Tensor,
    merged_lora,
)
from kerasformer.models import PretrainedModel, deferred_variables, initialize_with, variables_by_path

Importance = Mapping[str, np.ndarray]
"""Importance of each unit by the name of its group: `backbone/encoder/layer_0/attention`, `…/feed_forward`, `width`."""

WIDTH = "width"
"""Name of the group of the channels of the hidden states."""

_LAYER = re.compile(r"(\w+)/layer_(\d+)(?=/)")


@dataclass(frozen=True)
class _Part:
    """Entries of a variable that belong to the units of a group: an equal share of an axis for each unit.

    Attributes:
        path: Path of the variable below the model.
        axis: The axis.
        output: Whether the units are the inputs of this matrix, so that removing them removes its rows.
    """

    path: str
    axis: int
    output: bool = False


@dataclass(frozen=True)
class _Group:
    """Units of which some may be removed: heads of an attention, neurons of a feed-forward network, or channels.

    Attributes:
        name: Name in `Importance`.
        count: Number of units.
        parts: The entries of variables that belong to the units.
    """

    name: str
    count: int
    parts: tuple[_Part, ...]


@documented(CutOptions)
def prune(
    model: PretrainedModel, *, importance: Importance | None = None, **options: Unpack[CutOptions]
) -> PretrainedModel:
    """Creates a model with a part of the layers, attention heads, neurons or channels of a model.

    Each layer keeps its most important heads and neurons, in their order. Heads whose relative position biases are
    shared by the layers of a stack (T5) are chosen for the whole stack, and heads that share keys and values (Llama)
    remain or go together.

    Args:
        model: A model; it does not change.
        importance: Result of `unit_importance` for this model; that of the weights by default.
        options: See `CutOptions`.

    Returns:
        A new model of the same class, with the tokenizer and generation settings of the original.

    Raises:
        InputError: an option is out of range, or there are none.
        UnsupportedConfigError: the configuration of the architecture cannot express the model: it has no separate size
            of the heads (BERT, GPT-2), so that the width must be `heads` times that size; layers that differ by their
            index (windows, scales) would take the place of others; or the heads differ by their index (ALiBi).
    """
    options = checked(CutOptions, options, "pruning")
    if not any(value is not None for value in options.values()):
        raise InputError("Something to remove was expected. Received: none of layers, heads, neurons and width")
    kept = _kept_layers(model, options)
    config = replace(model.config, **_changes(model, options, kept))
    groups = list(_groups(model))
    chosen = _Choice(model, groups, kept, importance or unit_importance(model))
    with merged_lora(model), deferred_variables():
        small: PretrainedModel = type(model).from_config({**model.get_config(), "config": config.to_hf()})
        originals = variables_by_path(model)
        chosen.check_complete(originals, variables_by_path(small))
        for path, variable in variables_by_path(small).items():
            original = originals.get(chosen.original_path(path))
            if original is None:
                raise _differs(path, "a variable", "none in the layer that takes its place")
            indices = chosen.indices(path, original.shape, variable.shape)
            initialize_with(variable, partial(_part, original, indices), original.dtype)
    _check_attention(model, small, chosen)
    small.generation_config, small.new_variables = model.generation_config, model.new_variables
    small.set_tokenizer(model.tokenizer)
    return small


def chosen_layers(layers: int | str | Sequence[int], count: int) -> list[int]:
    """Returns indices of layers, ascending.

    Args:
        layers: Indices, also as text (`"0,2,4"`), or their number: they are then evenly spaced, with the first and the
            last one (for 6 of 12 layers 0, 2, 4, 7, 9 and 11, as in DistilBERT).
        count: Number of layers of the stack.

    Raises:
        InputError: an index or the number is out of range, or an index is repeated.
    """
    if isinstance(layers, str):
        try:
            numbers = [int(part) for part in layers.split(",")]
        except ValueError:
            raise InputError(f"layers must be a number or indices such as '0,2,4'. Received: {layers!r}") from None
        layers = numbers if "," in layers else numbers[0]
    if isinstance(layers, int):
        if not 1 <= layers <= count:
            raise InputError(f"The number of layers must be from 1 to {count}. Received: {layers}")
        return [int(round(index)) for index in np.linspace(0, count - 1, layers)] if layers > 1 else [0]
    indices = sorted(set(layers))
    if not indices or len(indices) < len(layers) or indices[0] < 0 or indices[-1] >= count:
        raise InputError(f"layers must be different indices from 0 to {count - 1}. Received: {list(layers)}")
    return indices


def unit_importance(
    model: PretrainedModel, data: Any = None, loss: Any = None, *, verbose: int | str = 0
) -> dict[str, np.ndarray]:
    """Returns the importance of the heads, neurons and channels of a model.

    Without data it is the magnitude of their weights: the product of the norms of the matrices of a head or neuron, and
    the norm of all weights of a channel. With data it is the first-order estimate of how the loss changes without the
    unit: the mean over the batches of `|sum(w * dL/dw)|` over the weights that read the unit, which is the gradient of
    a factor of the unit's output.

    Args:
        model: A model.
        data: What `fit` takes as `x`, which yields inputs and labels: a `PyDataset` or `tf.data.Dataset`; optional.
        loss: The loss of Keras for the data.
        verbose: As in `fit`.

    Returns:
        Arrays `(units,)`: heads (groups of heads that share keys and values), neurons or channels.

    Raises:
        InputError: data without loss.

    Reference: Michel et al. 2019, arXiv:1905.10650, section 4.1; Molchanov et al. 2019, arXiv:1906.10771.
    """
    groups = list(_groups(model))
    if data is None:
        return {group.name: _magnitude(group, variables_by_path(model)) for group in groups}
    if loss is None:
        raise InputError("Importance on data needs a loss. Expected: loss=…, as in compile. Received: None")
    optimizer = _Gradients(groups)
    evaluated = _Evaluated(model)
    evaluated.compile(optimizer, loss)
    evaluated.fit(data, epochs=1, shuffle=False, verbose=verbose)
    return optimizer.importance()


def _changes(model: PretrainedModel, options: CutOptions, kept: Mapping[str, list[int]]) -> Arguments:
    """Returns the fields of the configuration that differ."""
    config = model.config
    changes: Arguments = {}

    def change(name: str, value: int, *alternatives: str) -> None:
        found = next((each for each in (name, *alternatives) if each in vars(config)), None)
        if found is None:
            raise UnsupportedConfigError(
                f"The configuration of {config.model_type} has no field for this size. Expected: a field {name}. "
                f"Received: {name}={value}"
            )
        changes[found] = value
        if f"decoder_{found}" in vars(config):
            changes[f"decoder_{found}"] = value

    for name, indices in kept.items():
        changes[name] = len(indices)
    changes |= _listed(config, kept)
    heads, width, neurons = options.get("heads"), options.get("width"), options.get("neurons")
    spec = next(iter(model.attention_specs().values()))
    separate = "head_dim" in vars(config)
    if width is not None:
        if not separate and heads is None:
            heads = max(1, width // spec.head_dim)
        _check_size("width", width, config.hidden_dim)
        change("hidden_dim", width)
        if "inner_dim" in vars(config) and neurons is None:
            changes["inner_dim"] = config.inner_dim or config.intermediate_dim
    if heads is not None:
        group = spec.group_size
        _check_size("heads", heads, spec.num_heads)
        if heads % group:
            raise InputError(
                f"{group} heads share their keys and values. Expected: heads as a multiple of {group}. "
                f"Received: heads={heads}"
            )
        if not separate and (width or config.hidden_dim) != heads * spec.head_dim:
            raise UnsupportedConfigError(
                f"The configuration of {config.model_type} has no size of the heads, which is the width divided by "
                f"their number. Expected: width={heads * spec.head_dim} with heads={heads}, whose size is "
                f"{spec.head_dim}. Received: width={width or config.hidden_dim}"
            )
        if model.backbone.heads_differ and heads != spec.num_heads:
            raise UnsupportedConfigError(
                f"The heads of {config.model_type} have slopes that follow from their number (ALiBi), so that none can "
                f"be removed. Expected: heads={spec.num_heads}. Received: heads={heads}"
            )
        change("num_heads", heads)
        if getattr(config, "num_key_value_heads", None) is not None:
            changes["num_key_value_heads"] = heads // group
    if separate:
        changes["head_dim"] = spec.head_dim
    if neurons is not None:
        sizes = [layer.intermediate_dim for layer in model._flatten_layers() if isinstance(layer, FeedForward)]
        _check_size("neurons", neurons, min(sizes, default=0))
        change("intermediate_dim", neurons, "inner_dim")
    return changes


def _check_size(name: str, value: int, largest: int) -> None:
    if value > largest:
        raise InputError(f"{name} must be at most that of the model, {largest}. Received: {name}={value}")


def _kept_layers(model: PretrainedModel, options: CutOptions) -> dict[str, list[int]]:
    """Returns the indices of the remaining layers of each stack, by the field of their number."""
    config, kept = model.config, {}
    for name, field in {"layers": "num_layers", "decoder_layers": "num_decoder_layers"}.items():
        layers = options.get(name)
        if layers is None:
            continue
        if field not in vars(config):
            raise InputError(f"{config.model_type} has no {name}. Received: {name}={layers!r}")
        kept[field] = chosen_layers(layers, getattr(config, field))  # type: ignore[arg-type]
    return kept


def _listed(config: Any, kept: Mapping[str, list[int]]) -> Arguments:
    """Returns the fields that list a value for each layer, such as `layer_types`, for the remaining layers."""
    if "num_layers" not in kept:
        return {}
    lists = {name: value for name, value in vars(config).items() if isinstance(value, list)}
    return {
        name: [value[index] for index in kept["num_layers"]]
        for name, value in lists.items()
        if len(value) == config.num_layers and not name.endswith("_id")
    }


def _groups(model: PretrainedModel) -> Iterator[_Group]:
    """Yields the groups of units of a model."""
    layers = {layer.path.split("/", 1)[1]: layer for layer in model._flatten_layers() if "/" in (layer.path or "")}
    attentions = {path: layer for path, layer in layers.items() if isinstance(layer, MultiHeadAttention)}
    biases = {path: layer for path, layer in layers.items() if isinstance(layer, RelativePositionBias)}
    own = {path: attention for path in biases for attention in attentions if path.startswith(f"{attention}/")}
    parts = {path: _heads(path, layer) for path, layer in attentions.items()}
    for path, attention in own.items():
        parts[attention].append(_Part(f"{path}/embeddings", 1))
    for path in biases.keys() - own.keys():  # the layers of a stack share it, and so they keep the same heads
        stack = path.removesuffix("_bias") if path.removesuffix("_bias") in layers else _stack(attentions)
        members = [each for each in attentions if each.startswith(f"{stack}/") and not each.endswith("cross_attention")]
        joint = [_Part(f"{path}/embeddings", 1), *(part for each in members for part in parts.pop(each))]
        yield _Group(path, attentions[members[0]].spec.num_key_value_heads, tuple(joint))
    for path, heads in parts.items():
        yield _Group(path, attentions[path].spec.num_key_value_heads, tuple(heads))
    neurons: dict[str, _Group] = {}
    for path, layer in layers.items():
        if isinstance(layer, FeedForward):
            inputs = [each for each in (layer.intermediate, layer.gate, layer.up) if each is not None]
            members = [part for each in inputs for part in _outputs(f"{path}/{each.name}", each)]
            members.append(_Part(f"{path}/{layer.output_dense.name}/kernel", 0, output=True))
            neurons[path] = _Group(path, layer.intermediate_dim, tuple(members))
    yield from neurons.values()
    yield _channels(model, {part for group in (*neurons.values(),) for part in group.parts})


def _stack(attentions: Mapping[str, MultiHeadAttention]) -> str:
    """Returns the path of the only stack of a model."""
    return next(iter(attentions)).rsplit("/", 2)[0]


def _heads(path: str, layer: MultiHeadAttention) -> list[_Part]:
    """Returns the parts of the heads of an attention: the outputs of all its projections but the last one's inputs."""
    parts = []
    for each in layer.layers:
        if isinstance(each, Dense):
            output = each is layer.output_dense
            name = f"{path}/{each.name}"
            parts += [_Part(f"{name}/kernel", 0, output=True)] if output else _outputs(name, each)
    return parts


def _outputs(path: str, layer: Dense) -> list[_Part]:
    return [_Part(f"{path}/kernel", 1), *([_Part(f"{path}/bias", 0)] if layer.use_bias else [])]


def _channels(model: PretrainedModel, others: set[_Part]) -> _Group:
    """Returns the group of the channels of the hidden states, whose parts are those of vectors and matrices.

    Tables are not among them, since their gradients are sparse and their rows too many.
    """
    size, taken = model.config.hidden_dim, {(part.path, part.axis) for part in others}
    tables = {
        f"{each.path.split('/', 1)[-1]}/embeddings" for each in model._flatten_layers() if isinstance(each, Embedding)
    }
    parts = [
        _Part(path, axis)
        for path, variable in variables_by_path(model).items()
        for axis, length in enumerate(variable.shape)
        if length == size and path not in tables and (path, axis) not in taken
    ]
    return _Group(WIDTH, size, tuple(parts))


def _magnitude(group: _Group, variables: Mapping[str, keras.Variable]) -> np.ndarray:
    """Returns the importance of units by the magnitude of their weights, `(count,)`."""
    squares = {part: _by_unit(np.square(np.asarray(variables[part.path])), part, group.count) for part in group.parts}
    if group.name == WIDTH:
        return np.sqrt(sum(squares.values()))
    by_layer: dict[str, np.ndarray] = {}
    for part, square in squares.items():
        if part.path.endswith("/kernel"):
            layer = part.path.rsplit("/", 2)[0]
            by_layer[layer] = by_layer.get(layer, 1.0) * np.sqrt(square)
    return np.asarray(sum(by_layer.values()))


def _by_unit(values: Any, part: _Part, count: int) -> Any:
    """Sums values of the shape of a variable for each unit: `(count,)`."""
    axes = [axis for axis in range(len(values.shape)) if axis != part.axis]
    module: Any = np if isinstance(values, np.ndarray) else ops
    along = module.sum(values, axis=tuple(axes)) if axes else values
    return module.sum(module.reshape(along, (count, -1)), axis=1)


class _Evaluated(keras.Model):
    """A model that `fit` calls without dropout."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__(name="evaluated")
        self.model = model

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        """Applies the model."""
        return self.model(inputs, training=False)


class _Gradients(keras.optimizers.Optimizer):
    """Optimizer that changes no weight, and sums the first-order importance of units over the batches.

    Args:
        groups: The units.
    """

    def __init__(self, groups: Sequence[_Group]) -> None:
        super().__init__(learning_rate=0.0, name="importance")
        self.groups = groups

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates a sum for each group."""
        super().build(variables)
        self._paths = [variable.path.split("/", 1)[1] for variable in variables]
        self._sums: dict[str, keras.Variable] = {}
        self._parts: dict[str, list[tuple[_Group, _Part]]] = {}
        for group in self.groups:
            self._sums[group.name] = self.add_variable(shape=(group.count,), initializer="zeros")
            for part in group.parts:
                if part.output or group.name == WIDTH:
                    self._parts.setdefault(part.path, []).append((group, part))

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        """Adds the importance of the units that a variable reads."""
        path = self._paths[self._get_variable_index(variable)]
        for group, part in self._parts.get(path, ()):
            product = ops.convert_to_tensor(gradient) * ops.convert_to_tensor(variable)
            self.assign_add(self._sums[group.name], ops.abs(_by_unit(product, part, group.count)))

    def importance(self) -> dict[str, np.ndarray]:
        """Returns the means over the batches."""
        batches = max(1, int(ops.convert_to_numpy(self.iterations)))
        return {name: ops.convert_to_numpy(total) / batches for name, total in self._sums.items()}


class _Choice:
    """Which entries of which original variable each variable of a pruned model has.

    Args:
        model: The original.
        groups: Its units.
        kept: Indices of its remaining layers, by the field of their number.
        importance: Importance of the units.
    """

    def __init__(
        self, model: PretrainedModel, groups: Sequence[_Group], kept: Mapping[str, list[int]], importance: Importance
    ) -> None:
        self.config, self.importance = model.config, importance
        self._main = kept.get("num_layers")
        self._decoder = kept.get("num_decoder_layers")
        self._has_two = model.is_encoder_decoder or "num_decoder_layers" in vars(model.config)
        self._groups = {
            (part.path, part.axis): group for group in groups if group.name != WIDTH for part in group.parts
        }
        self._best: dict[tuple[str, int], np.ndarray] = {}

    def original_path(self, path: str) -> str:
        """Returns the path that a variable or layer of the pruned model has in the original."""

        def original(match: re.Match[str]) -> str:
            kept = self._decoder if self._has_two and match[1] == "decoder" else self._main
            return match[0] if kept is None else f"{match[1]}/layer_{kept[int(match[2])]}"

        return _LAYER.sub(original, path, count=1)

    def check_complete(self, originals: Iterable[str], paths: Iterable[str]) -> None:
        """Checks that a variable of the original is missing only if its layer is.

        Raises:
            UnsupportedConfigError: it is missing in a layer that remains.
        """
        used = {self.original_path(path) for path in paths}
        layers = {layer[0] for layer in map(_LAYER.search, used) if layer}
        for path in originals:
            layer = _LAYER.search(path)
            if path not in used and (layer is None or layer[0] in layers):
                raise _differs(path, "the variable", "none in the layer that takes its place")

    def indices(self, path: str, before: Sequence[int], after: Sequence[int]) -> dict[int, np.ndarray]:
        """Returns the remaining entries of the original variable along each axis that is shorter.

        Raises:
            UnsupportedConfigError: an axis depends on a size in an unknown way.
        """
        path, indices = self.original_path(path), {}
        for axis, (old, new) in enumerate(zip(before, after, strict=True)):
            group = self._groups.get((path, axis))
            if old == new:
                continue
            if group is not None and old % group.count == 0 and new % (old // group.count) == 0:
                size = old // group.count
                units = self._strongest(group.name, new // size)
            elif old == self.config.hidden_dim:
                size, units = 1, self._strongest(WIDTH, new)
            else:
                raise _differs(path, f"an axis of {old}", str(new))
            indices[axis] = (units[:, None] * size + np.arange(size)).ravel()
        return indices

    def _strongest(self, name: str, count: int) -> np.ndarray:
        """Returns the most important units of a group, ascending."""
        if (name, count) not in self._best:
            if name not in self.importance:
                raise InputError(
                    f"Importance of all units was expected, the result of unit_importance for this model. Received: "
                    f"none for {name}"
                )
            order = np.argsort(-np.asarray(self.importance[name]), kind="stable")
            self._best[name, count] = np.sort(order[:count])
        return self._best[name, count]


def _part(original: np.ndarray, indices: Mapping[int, np.ndarray], shape: Shape, dtype: str) -> np.ndarray:
    """Returns the initial value of a variable."""
    value = np.asarray(original)
    for axis, entries in indices.items():
        value = np.take(value, entries, axis)
    return value


def _check_attention(model: PretrainedModel, small: PretrainedModel, chosen: _Choice) -> None:
    """Checks that each attention computes what that of the original layer does, with fewer heads."""
    before = {path.split("/", 1)[-1]: spec for path, spec in model.attention_specs().items()}
    for path, spec in small.attention_specs().items():
        path = path.split("/", 1)[-1]
        original = before[chosen.original_path(path)]
        if replace(original, num_heads=spec.num_heads, num_key_value_heads=spec.num_key_value_heads) != spec:
            raise _differs(path, str(original), str(spec))


def _differs(path: str, expected: str, received: str) -> UnsupportedConfigError:
    return UnsupportedConfigError(
        f"The configuration cannot express the pruned model: {path} depends on the place of its layer or on a size in "
        f"another way. Expected: {expected}. Received: {received}. Choose layers of the same kinds, or other sizes"
    )
