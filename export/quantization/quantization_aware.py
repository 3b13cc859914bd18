"""Quantization-aware training: the model computes with the weights that the files of a format will contain.

In each step, the matrices are rounded to the levels of the export, with its scales, and the gradient passes through the
rounding as if it were the identity (the straight-through estimator). The weights themselves stay in float32 and move
until their levels change.

The scales are computed by the writers of the formats. They are variables of the model that do not change within a step;
those of the last step are computed from the weights of the last step, so that the export, which computes them again,
stores the same integers and scales bit for bit.

References: Bengio et al. 2013, arXiv:1308.3432; Jacob et al. 2018, arXiv:1712.05877, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from kerasformer.basics.arguments import check, instance, integer
from kerasformer.bundle.export_options import ALIASES
from kerasformer.bundle.recipes import TRAINED
from kerasformer.errors import InputError
from kerasformer.export.formats.registry import find_format
from kerasformer.export.quantization.layouts import Levels
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.layers.core import layers_with_lora
from kerasformer.layers.layer_types import LayerConfig, Outputs
from kerasformer.layers.primitives import Primitives, Weight, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel

if TYPE_CHECKING:
    from kerasformer.bundle import Bundle

RECIPES = {name.removesuffix("_trained"): recipe for name, recipe in TRAINED.items()}
"""Recipes by the names that `QuantizationAware` accepts."""


class QuantizationAware(keras.Model):
    """A model that is trained with the weights that its bundle will have.

        aware = kf.training.quantization_aware(model, "int4")
        aware.compile("adamw", loss)
        aware.fit(batch, labels)
        aware.export("bundle")

    `model` keeps its own weights, which training changes; `model.save_pretrained` saves them, and an export of them
    with the recipe `int8_trained` or `int4_trained` in the same format is the same bundle.

    Args:
        model: A model of the zoo without adapters.
        quantize: `"int8"` or `"int4"`: what the export of this name stores as integers.
        format: Format of the bundle, `"litert"` or `"onnx"`; their scales differ.
        profile: Profile of the format, as for the export; optional.
        steps: Number of steps after which the scales are computed again.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: As for the model; so is the result.

    Attributes:
        model: The model.
        recipe: The recipe of the export.

    Raises:
        InputError: an argument is invalid, or the model has an adapter.
    """

    def __init__(
        self,
        model: PretrainedModel,
        quantize: str = "int8",
        format: str = "litert",
        *,
        profile: str | None = None,
        steps: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check("model", model, instance("a model of the zoo", PretrainedModel))
        if quantize not in RECIPES or ALIASES.get(format, format) not in ("tflite", "onnx"):
            raise InputError(
                "Unknown quantization. Expected: 'int8' or 'int4', for format 'litert' or 'onnx'. "
                f"Received: {quantize!r}, format={format!r}"
            )
        if layers_with_lora(model):
            raise InputError(
                "A model without adapter was expected, since the export rounds the sum of matrix and adapter. "
                "Received: one with an adapter. Call merge_adapter first"
            )
        self.model, self.recipe, self.format = model, RECIPES[quantize], ALIASES.get(format, format)
        self.steps = check("steps", steps, integer(1))
        self.layout = find_format(self.format).layout(profile, None)
        self._profile = profile
        self._rounded: dict[str, _Rounded] = {}
        for matrix in matrices(model):
            levels = self.layout.levels(matrix, self.recipe)
            if levels is not None:
                name = f"scales_{len(self._rounded)}"
                scales = self.add_weight(levels.scales.shape, "ones", "float32", trainable=False, name=name)
                self._rounded[matrix.path] = _Rounded(matrix, levels, scales)
        if not self._rounded:
            raise InputError("No matrix of this model is large enough to be quantized. Received: a tiny model")
        self.built = True
        self.update_scales()

    def call(self, inputs: Any, training: bool = False, **flags: bool) -> Tensor | Outputs:
        """Applies the model with rounded weights."""
        with lowering(_RoundedWeights(self._rounded)):
            return self.model(inputs, training=training, **flags)

    def update_scales(self) -> None:
        """Computes the scales of the current weights."""
        for each in self._rounded.values():
            levels = self.layout.levels(each.matrix, self.recipe)
            if levels is not None:
                each.scales.assign(levels.scales)

    def stored_weights(self) -> dict[str, np.ndarray]:
        """Returns the weights that the model computes with and that the bundle contains, by path, float32 `(N, K)`."""
        return {
            path: ops.convert_to_numpy(each.values(_rows(each.matrix.variable, each.matrix.output_first)))
            for path, each in self._rounded.items()
        }

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the weights of the model itself are the rounded ones, for evaluations and pipelines."""
        originals = {path: ops.convert_to_numpy(each.matrix.variable) for path, each in self._rounded.items()}
        for path, rows in self.stored_weights().items():
            matrix = self._rounded[path].matrix
            matrix.variable.assign(matrix.in_keras(rows))
        try:
            yield
        finally:
            for path, value in originals.items():
                self._rounded[path].matrix.variable.assign(value)

    @property
    def update(self) -> keras.callbacks.Callback:
        """The callback that computes the scales during `fit`, which `fit` adds."""
        return _ScaleUpdate(self)

    def fit(self, *args: Any, callbacks: Any = None, **kwargs: Any) -> keras.callbacks.History:
        """As in Keras; the scales follow the weights."""
        return super().fit(*args, callbacks=with_callback(callbacks, self.update), **kwargs)

    def export(self, folder: str | Path, **options: Any) -> Bundle:  # type: ignore[override]
        """Exports the model as a verified bundle, which is compared with the rounded model.

        Args:
            folder: Folder of the bundle.
            options: See `kerasformer.export.ExportOptions`.
        """
        if self._profile is not None:
            options["profile"] = self._profile
        self.model.__dict__.pop("_compiled_functions", None)  # they have other weights
        try:
            with lowering(_RoundedWeights(self._rounded)):
                return self.model.export(folder, self.format, self.recipe, **options)
        finally:
            self.model.__dict__.pop("_compiled_functions", None)

    def get_config(self) -> LayerConfig:
        """Raises an error: the model is saved, and not what trains it."""
        raise NotImplementedError("Save the model: aware.model.save_pretrained(folder)")


def with_callback(callbacks: Any, callback: keras.callbacks.Callback) -> Any:
    """Returns the callbacks of `fit` with another one."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(callback)
        return callbacks
    return [*(callbacks if isinstance(callbacks, Sequence) else [callbacks] if callbacks else []), callback]


class _Rounded:
    """A matrix with the scales that it is rounded with.

    Args:
        matrix: The matrix.
        levels: Its levels; they change only in their scales.
        scales: Variable with the scales `(N, blocks)`.
    """

    def __init__(self, matrix: ModelMatrix, levels: Levels, scales: keras.Variable) -> None:
        self.matrix, self.levels, self.scales = matrix, levels, scales

    def values(self, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """Rounds rows `(..., K)` of the matrix: all of them, or those with the given indices `(...)`."""
        levels, width = self.levels, rows.shape[-1]
        scales = ops.convert_to_tensor(self.scales)
        scales = scales if ids is None else ops.take(scales, ids, axis=0)
        scales = scales if scales.shape[-1] == 1 else ops.repeat(scales, levels.block, axis=-1)[..., :width]
        rows = ops.cast(rows, "float32")
        # XLA would multiply by the inverses of broadcast divisors, which rounds differently from a division.
        divisors = scales + 0.0 * rows
        rounded = ops.clip(ops.round(rows / divisors), levels.low, levels.high)
        return (rounded if levels.pairs is None else _with_reduced_pairs(rounded, levels.pairs)) * scales


def _with_reduced_pairs(levels: Tensor, largest: int) -> Tensor:
    """Reduces the first of two adjacent levels `(..., K)` of the same sign whose sum is too large by 1."""
    width = levels.shape[-1] // 2 * 2
    pairs = ops.reshape(levels[..., :width], (*ops.shape(levels)[:-1], width // 2, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    over = ops.logical_and(even * odd > 0, ops.abs(even + odd) > largest)
    even = ops.where(over, even - ops.sign(even), even)
    reduced = ops.reshape(ops.stack([even, odd], axis=-1), (*ops.shape(levels)[:-1], width))
    return ops.concatenate([reduced, levels[..., width:]], axis=-1)


def _rows(variable: Weight, output_first: bool) -> Tensor:
    value = ops.convert_to_tensor(variable)
    return value if output_first else ops.transpose(value)


class _RoundedWeights(Primitives):
    """Plain primitives that round matrices, with the gradient of the identity.

    Args:
        rounded: The matrices by path.
    """

    def __init__(self, rounded: Mapping[str, _Rounded]) -> None:
        self.rounded = rounded

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product with the rounded matrix."""
        each = self.rounded.get(getattr(kernel, "path", ""))
        if each is not None:
            value = ops.convert_to_tensor(kernel)
            values = each.values(_rows(value, transposed))
            kernel = _straight_through(value, values if transposed else ops.transpose(values))
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up rows of the rounded table."""
        rows, each = super().embedding(table, ids), self.rounded.get(getattr(table, "path", ""))
        return rows if each is None else _straight_through(rows, each.values(rows, ids))


def _straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """Returns the rounded value exactly, with the gradient of the other one."""
    return ops.stop_gradient(ops.cast(rounded, value.dtype)) + (value - ops.stop_gradient(value))


class _ScaleUpdate(keras.callbacks.Callback):
    """Computes the scales again every few steps, and before and after epochs, so that evaluations and files have them.

    Args:
        aware: The model whose scales change.
    """

    def __init__(self, aware: QuantizationAware) -> None:
        super().__init__()
        self.aware = aware

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Computes the scales after some steps."""
        if batch % self.aware.steps == 0:
            self._update()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Computes the scales of the weights of the epoch."""
        self._update()

    def on_train_end(self, logs: Any = None) -> None:
        """Computes the scales of the final weights."""
        self._update()

    def _update(self) -> None:
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # the state of a run is otherwise not in the variables
        self.aware.update_scales()
