"""One case, one harness: a Keras layer beside its PyTorch twin, with the twin's weights."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import torch
from torch import nn

from kerasformer.layers.core import unpacked

Arrays = dict[str, np.ndarray]

TOLERANCE = 1e-5
"""Of the largest magnitude in the reference: float32 sums in two orders differ by a few times 6e-8 a term."""


@dataclass(frozen=True)
class Case:
    """A layer, its twin and what both are called with, by the same argument names."""

    name: str
    layer: Callable[[], keras.layers.Layer]
    twin: Callable[[], nn.Module]
    inputs: Arrays
    rename: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that turn the twin's parameter names into the layer's variable paths."""

    def __str__(self) -> str:
        return self.name


def seeded_twin(case: Case) -> nn.Module:
    """The twin with random weights: norms and biases too, or an error in them would not be seen."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    twin = case.twin()
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1.0 + 0.2 * noise if "norm" in name and name.endswith("weight") else 0.4 * noise)
    return twin


def loaded_layer(case: Case, twin: nn.Module) -> keras.layers.Layer:
    """The layer, built by a first call, with the twin's weights."""
    layer = case.layer()
    call_layer(layer, case.inputs)
    weights = translate(case, layer, {name: p.detach().numpy() for name, p in twin.named_parameters()})
    for path, variable in variables(layer).items():
        variable.assign(weights[path])
    return layer


def variables(layer: keras.layers.Layer) -> dict[str, Any]:
    """Variables by path below the layer."""
    return {v.path.removeprefix(f"{layer.name}/"): v for v in layer.trainable_variables}


def translate(case: Case, layer: keras.layers.Layer, tensors: Arrays) -> Arrays:
    """Weights, or their gradients, from the twin's names and orientation to the layer's; nothing may be left over."""
    paths, found = variables(layer), {}
    for name, tensor in _split_projections(tensors).items():
        for pattern, replacement in case.rename.items():
            name = re.sub(pattern, replacement, name)
        stem, _, kind = name.rpartition(".")
        kinds = {"weight": ("kernel", "scale", "embeddings"), "bias": ("bias",)}[kind]
        [path] = [p for k in kinds if (p := f"{stem}/{k}".replace(".", "/").removeprefix("/")) in paths]
        found[path] = tensor.T if path.endswith("kernel") else tensor
    assert found.keys() == paths.keys()
    return found


def _split_projections(tensors: Arrays) -> Arrays:
    """`nn.MultiheadAttention` keeps three projections in one tensor, or in three of its own naming."""
    split = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"(.*)in_proj_(weight|bias)", name):
            parts = zip(("query", "key", "value"), np.split(tensor, 3), strict=True)
            split.update({f"{match[1]}{part}.{match[2]}": values for part, values in parts})
        elif match := re.fullmatch(r"(.*)([qkv])_proj_weight", name):
            part = {"q": "query", "k": "key", "v": "value"}[match[2]]
            split[f"{match[1]}{part}.weight"] = tensor
        else:
            split[name] = tensor
    return split


def call_layer(layer: Any, inputs: Mapping[str, Any], **more: Any) -> list[Any]:
    """Tensors that the layer gives, in the twin's order: outputs, then attention weights."""
    (_, first), *rest = inputs.items()
    result = layer(first, **dict(rest), **more)
    return list(unpacked(result).values())


def functional(layer: keras.layers.Layer, inputs: Arrays) -> keras.Model:
    """A functional model of the layer alone, whose inputs have the names of its arguments."""
    free = {n: keras.Input(batch_shape=free_shape(a), dtype=str(a.dtype), name=n) for n, a in inputs.items()}
    (_, first), *rest = free.items()
    return keras.Model(free, layer(first, **dict(rest)))


def free_shape(array: np.ndarray) -> list[int | None]:
    """Features have a known size, and so has an axis that is there to be broadcast; all others are free."""
    features = array.dtype == np.float32
    return [n if n == 1 or (features and axis == array.ndim - 1) else None for axis, n in enumerate(array.shape)]


def call_twin(twin: nn.Module, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Tensors that the twin gives."""
    result = twin(**inputs)
    return list(result) if isinstance(result, tuple) else [result]


def torch_inputs(inputs: Arrays) -> dict[str, torch.Tensor]:
    """The same inputs for the twin; what is float will have a gradient."""
    tensors = {name: torch.tensor(array) for name, array in inputs.items()}
    return {name: t.requires_grad_() if t.is_floating_point() else t for name, t in tensors.items()}


def assert_close(
    actual: Any, expected: Any, tolerance: float = TOLERANCE, scale: float | None = None, what: str = ""
) -> None:
    """Largest difference at most `tolerance` of the largest magnitude (or of `scale`, where that is more)."""
    actual, expected = as_numpy(actual), as_numpy(expected)
    assert actual.shape == expected.shape, what
    largest = max(float(np.abs(expected).max()), scale or 0.0)
    difference = float(np.abs(actual.astype("float64") - expected).max())
    assert difference <= tolerance * largest, f"{what}: {difference:.3g} of {largest:.3g}"


def as_numpy(x: Any) -> np.ndarray:
    """An array of any framework's tensor."""
    if isinstance(x, torch.Tensor):
        return x.detach().float().numpy()
    return np.asarray(keras.ops.convert_to_numpy(x)).astype("float32")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal random numbers, float32."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


def integers(limit: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random integers below `limit`, int32."""
    return np.random.default_rng((seed, *shape)).integers(limit, size=shape).astype("int32")
