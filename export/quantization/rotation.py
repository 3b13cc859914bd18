"""Rotation of the hidden states of decoders, so that no channel is much larger than the others.

The hidden states of trained decoders have a few enormous channels, which take most of the levels when a token is
rounded to eight bits. An RMS norm without its scale does not depend on the basis of the hidden states. They can
therefore be multiplied by an orthogonal matrix, which spreads each channel over all others, if the matrix is also
multiplied into every weight that reads or writes them. The scales of the norms are multiplied into the weights that
read their outputs. The model computes the same as before, without a further operation, except for one: a table of
tokens that is also the output matrix cannot contain the scale of the final norm, which becomes a product with a matrix
in float32.

References: Ashkboos et al. 2024, "QuaRot", arXiv:2404.00456, section 4; Liu et al. 2024, "SpinQuant",
arXiv:2405.16406.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import keras
import numpy as np
from keras import ops

from kerasformer.bundle.recipes import ROTATED_SCALE, Recipe
from kerasformer.export.graph.variable_values import value_of
from kerasformer.layers import Decoder, DecoderLayer, FeedForward, MultiHeadAttention, RMSNormalization, primitives
from kerasformer.layers.core import Dense
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.variables import read_again_with, replace_value, source_of

_LARGEST_FACTOR = 64
"""Size of the factors of the rotation; the product with each is a small part of the whole."""

Transform = Callable[[np.ndarray], np.ndarray]


class Rotation:
    """An orthogonal matrix `R`, `(E, E)`, whose entries all have about the same magnitude.

    It is the product of a diagonal matrix of random signs and of a Kronecker product of Hadamard matrices, and of a
    Hartley matrix if `E` is not a power of two. The signs have a fixed seed.

    Args:
        size: `E`.
    """

    def __init__(self, size: int) -> None:
        self._signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), size)
        remaining = size & -size  # the largest power of two that divides it
        self._factors = [_hartley(size // remaining)] if remaining < size else []
        while remaining > 1:
            factor = min(remaining, _LARGEST_FACTOR)
            self._factors.append(_hadamard(factor))
            remaining //= factor

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns `rows @ R`, float32 `(..., E)`."""
        shape = rows.shape
        sizes = [len(factor) for factor in self._factors]
        x = (rows * self._signs).reshape(-1, *sizes)
        for factor in self._factors:  # contracts the first of the axes, and appends it as the last one
            x = np.tensordot(x, factor, axes=(1, 0))
        return np.ascontiguousarray(x.reshape(shape), np.float32)

    def of_columns(self, matrix: np.ndarray) -> np.ndarray:
        """Returns `R^T @ matrix`, float32 `(E, ...)`."""
        return self.of_rows(matrix.T).T


def _hadamard(size: int) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.kron(matrix, np.array([[1, 1], [1, -1]]))
    return (matrix / np.sqrt(size)).astype(np.float32)


def _hartley(size: int) -> np.ndarray:
    angles = np.outer(np.arange(size), np.arange(size)) * (2 * np.pi / size)
    return ((np.cos(angles) + np.sin(angles)) / np.sqrt(size)).astype(np.float32)


def rotates(model: PretrainedModel, recipe: Recipe) -> bool:
    """Returns whether the hidden states of a model are rotated in the files of a recipe.

    This needs a decoder for text generation whose norms are all RMS norms of the hidden states, and a recipe with
    integers that neither the training nor the checkpoint has determined.
    """
    backbone = model.backbone
    return (
        bool(recipe.integers)
        and recipe.rounding not in ("trained", "stored")
        and isinstance(model, CausalLM)
        and isinstance(backbone, CausalDecoder)
        and isinstance(backbone.decoder.final_norm, RMSNormalization)
        and backbone.positions is None
        and backbone.embedding_norm is None
        and backbone.input_projection is None
        and all(map(_reads_normalized, backbone.decoder.layers))
    )


def _reads_normalized(layer: DecoderLayer) -> bool:
    norms = [layer.attention_norm, layer.feed_forward_norm or layer.attention_norm]
    return (
        type(layer) is DecoderLayer
        and type(layer.attention) is MultiHeadAttention
        and type(layer.feed_forward) is FeedForward
        and layer.order in ("pre_norm", "parallel", "shared_parallel")
        and layer.cross_attention is None
        and all(isinstance(norm, RMSNormalization) for norm in norms)
    )


def adapted(recipe: Recipe) -> Recipe:
    """Returns a recipe for a model whose hidden states are rotated.

    Rounding with calibration texts halves what eight bits cost such a model (docs/quantization.md). Recipes with four
    bits choose their rounding themselves.
    """
    return recipe if "int4" in recipe.integers else replace(recipe, rounding="calibrated")


class _RotatedNorm(keras.layers.Layer):
    """An RMS norm without scale, and the product with the matrix of its scale in the rotated basis."""

    def __init__(self, norm: RMSNormalization, matrix: np.ndarray) -> None:
        super().__init__(name=norm.name)
        self.norm = norm
        self.rotated_scale = keras.Variable(matrix, trainable=False, name=ROTATED_SCALE)
        self.rotated_scale._path = f"{norm.scale.path.rpartition('/')[0]}/{ROTATED_SCALE}"
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return primitives.linear(self.norm(x), self.rotated_scale)


@contextmanager
def rotated(model: CausalLM, keep: bool = True) -> Iterator[None]:
    """Context in which the hidden states of a model are rotated; see `rotates`.

    Args:
        model: The model. The values of its variables are replaced, also those that are read again after
            `release_weights`.
        keep: Whether the original values stay in memory meanwhile. Otherwise they are read from the files afterwards,
            as after `release_weights`, where that is possible.
    """
    backbone, norm = model.backbone, model.backbone.decoder.final_norm
    rotation = Rotation(backbone.config.hidden_dim)
    scale = np.diag(value_of(norm.scale).astype(np.float32))
    restored = []
    model.__dict__.pop("_compiled_functions", None)  # they have the original values and norm
    try:
        for variable, transform in _transforms(model, rotation).values():
            source = source_of(variable)
            value = transform(value_of(variable).astype(np.float32))
            restored.append(replace_value(variable, ops.convert_to_tensor(value, dtype=variable.dtype), keep))
            if source is not None:
                read_again_with(variable, partial(_read, source, transform))
        if model.shared_table is not None:
            _set_final_norm(backbone.decoder, _RotatedNorm(norm, rotation.of_columns(rotation.of_rows(scale))))
        yield
    finally:
        _set_final_norm(backbone.decoder, norm)
        for restore in restored:
            restore()
        model.__dict__.pop("_compiled_functions", None)


def _set_final_norm(decoder: Decoder, norm: keras.layers.Layer) -> None:
    """Replaces the final norm of a decoder that is built, at the same place among its layers."""
    layers = decoder._layers
    layers[next(index for index, layer in enumerate(layers) if layer is decoder.final_norm)] = norm
    object.__setattr__(decoder, "final_norm", norm)  # Keras would append it to the layers of a decoder that is built


def _read(stored: Callable[[Shape, str], Tensor], transform: Transform, shape: Shape, dtype: str) -> np.ndarray:
    """Reads the value of a variable in float32, so that it is rounded only once."""
    return transform(np.asarray(stored(shape, dtype)).astype(np.float32))


def _transforms(model: CausalLM, rotation: Rotation) -> dict[str, tuple[keras.Variable, Transform]]:
    """Returns the variables that change, by path, each with the function of its new value."""
    backbone, transforms = model.backbone, {}

    def add(variable: keras.Variable | None, transform: Transform) -> None:
        if variable is not None:
            transforms[variable.path] = variable, transform

    def read(norm: RMSNormalization, *kernels: keras.Variable) -> None:
        scale = value_of(norm.scale).astype(np.float32)[:, None]
        add(norm.scale, np.ones_like)
        for kernel in kernels:
            add(kernel, lambda value: rotation.of_columns(value * scale))

    def written(dense: Dense) -> None:
        add(dense.kernel, rotation.of_rows)
        add(dense.bias, rotation.of_rows)

    final = backbone.decoder.final_norm
    read(final, *(() if model.head.kernel is None else (model.head.kernel,)))
    add(backbone.tokens.embeddings, rotation.of_rows)
    for layer in backbone.decoder.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        read(layer.attention_norm, *(part.kernel for part in (attention.query, attention.key, attention.value)))
        inputs = (feed_forward.intermediate, feed_forward.gate, feed_forward.up)
        read(layer.feed_forward_norm or layer.attention_norm, *(part.kernel for part in inputs if part is not None))
        written(attention.output_dense)
        written(feed_forward.output_dense)
    return transforms
