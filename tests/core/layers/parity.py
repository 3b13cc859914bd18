"""Harness that compares a Keras layer with an equivalent PyTorch module (its twin) of the same weights."""

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

from kerasformer import layers
from kerasformer.layers.core import unpacked

Arrays = dict[str, np.ndarray]

TOLERANCE = 1e-5
"""Relative to the largest magnitude of the reference; float32 sums in different order differ by some 6e-8 per term."""


@dataclass(frozen=True)
class Case:
    """A layer, its twin, and the inputs of both, which have the same argument names."""

    name: str
    layer: Callable[[], keras.layers.Layer]
    twin: Callable[[], nn.Module]
    inputs: Arrays
    rename: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that convert the parameter names of the twin to the variable paths of the layer."""

    def __str__(self) -> str:
        return self.name


def seeded_twin(case: Case) -> nn.Module:
    """Creates the twin with random weights, also in norms and biases, so that errors in them are detected."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    twin = case.twin()
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1.0 + 0.2 * noise if "norm" in name and name.endswith("weight") else 0.4 * noise)
    return twin


def loaded_layer(case: Case, twin: nn.Module) -> keras.layers.Layer:
    """Creates the layer, builds it by a call, and copies the weights of the twin."""
    layer = case.layer()
    call_layer(layer, case.inputs)
    weights = translate(case, layer, {name: p.detach().numpy() for name, p in twin.named_parameters()})
    for path, variable in variables(layer).items():
        variable.assign(weights[path])
    return layer


def variables(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the variables by their path below the layer."""
    return {v.path.removeprefix(f"{layer.name}/"): v for v in layer.trainable_variables}


def translate(case: Case, layer: keras.layers.Layer, tensors: Arrays) -> Arrays:
    """Converts weights or gradients of the twin to the names and orientation of the layer; all must have a variable."""
    paths, converted = variables(layer), {}
    for name, tensor in _split_projections(tensors).items():
        for pattern, replacement in case.rename.items():
            name = re.sub(pattern, replacement, name)
        stem, _, kind = name.rpartition(".")
        kinds = {"weight": ("kernel", "scale", "embeddings"), "bias": ("bias",)}[kind]
        [path] = [p for k in kinds if (p := f"{stem}/{k}".replace(".", "/").removeprefix("/")) in paths]
        converted[path] = tensor.T if path.endswith("kernel") else tensor
    assert converted.keys() == paths.keys()
    return converted


def _split_projections(tensors: Arrays) -> Arrays:
    """Splits and renames the projections of `nn.MultiheadAttention`, which are one tensor or three."""
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
    """Returns the results of the layer in the order of the twin: outputs, then attention weights."""
    (_, first), *rest = inputs.items()
    result = layer(first, **dict(rest), **more)
    return list(unpacked(result).values())


def functional(layer: keras.layers.Layer, inputs: Arrays) -> keras.Model:
    """Creates a functional model of the layer, whose inputs have the names of its arguments."""
    shapes = {name: free_shape(array) for name, array in inputs.items()}
    if isinstance(layer, layers.HeadNormalization):
        shapes["x"][-2] = inputs["x"].shape[-2]  # the number of heads, which is that of its scales
    free = {n: keras.Input(batch_shape=shapes[n], dtype=str(a.dtype), name=n) for n, a in inputs.items()}
    (_, first), *rest = free.items()
    return keras.Model(free, layer(first, **dict(rest)))


def free_shape(array: np.ndarray) -> list[int | None]:
    """Returns a shape in which only the last axis of floats and axes of size 1 are fixed."""
    features = array.dtype == np.float32
    return [n if n == 1 or (features and axis == array.ndim - 1) else None for axis, n in enumerate(array.shape)]


def call_twin(twin: nn.Module, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Returns the results of the twin."""
    result = twin(**inputs)
    return list(result) if isinstance(result, tuple) else [result]


def torch_inputs(inputs: Arrays) -> dict[str, torch.Tensor]:
    """Converts inputs for the twin; floating-point tensors require gradients."""
    tensors = {name: torch.tensor(array) for name, array in inputs.items()}
    return {name: t.requires_grad_() if t.is_floating_point() else t for name, t in tensors.items()}


def assert_close(
    actual: Any, expected: Any, tolerance: float = TOLERANCE, scale: float | None = None, what: str = ""
) -> None:
    """Asserts a maximum difference of `tolerance` times the largest magnitude, or times `scale` if that is larger."""
    actual, expected = as_numpy(actual), as_numpy(expected)
    assert actual.shape == expected.shape, what
    largest = max(float(np.abs(expected).max()), scale or 0.0)
    difference = float(np.abs(actual.astype("float64") - expected).max())
    assert difference <= tolerance * largest, f"{what}: {difference:.3g} of {largest:.3g}"


def as_numpy(x: Any) -> np.ndarray:
    """Converts a tensor of any framework to a float32 array."""
    if isinstance(x, torch.Tensor):
        return x.detach().float().numpy()
    return np.asarray(keras.ops.convert_to_numpy(x)).astype("float32")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns normal random numbers, float32."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("float32")


def integers(limit: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Returns random integers below `limit`, int32."""
    return np.random.default_rng((seed, *shape)).integers(limit, size=shape).astype("int32")
