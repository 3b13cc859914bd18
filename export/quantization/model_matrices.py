"""The matrices of a model whose storage a recipe determines."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import keras
import numpy as np

from kerasformer.bundle.recipes import MIN_QUANTIZED, Recipe
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.quantization.calibration import Calibration, Ranges, input_scale
from kerasformer.export.quantization.compensation import RoundedKernel
from kerasformer.export.quantization.sample_inputs import few_tokens
from kerasformer.layers.primitives import Primitives, Weight, lowering
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel


@dataclass(frozen=True, eq=False)
class ModelMatrix:
    """A matrix that is used in products, in lookups, or both.

    Attributes:
        variable: Variable of the Keras model.
        product: Whether activations are multiplied with it.
        table: Whether its rows are looked up.
        output_first: Whether its shape is `(N, K)`, with a row for each output or token, and not `(K, N)`.
        incremental: Whether it is used token by token, and not only for whole texts.
        ranges: Calibrated ranges of its products, if they were measured.
    """

    variable: keras.Variable
    product: bool
    table: bool
    output_first: bool
    incremental: bool
    ranges: Ranges | None = None

    @property
    def path(self) -> str:
        """Path of the variable."""
        return str(self.variable.path)

    @property
    def rows(self) -> tuple[int, int]:
        """Shape `(N, K)`."""
        shape = tuple(self.variable.shape)
        return shape if self.output_first else shape[::-1]

    def value(self) -> np.ndarray:
        """Returns the values as float32 `(N, K)`."""
        value = value_of(self.variable).astype("float32", copy=False)
        return value if self.output_first else value.T

    @property
    def rounded(self) -> RoundedKernel | None:
        """The kernel, if it was rounded beforehand."""
        return None if self.ranges is None else self.ranges.rounded

    def calibration(self) -> Calibration:
        """Returns the ranges as a calibration."""
        return {} if self.ranges is None else {self.path: self.ranges}

    def input_scale(self, recipe: Recipe) -> np.ndarray | None:
        """Returns the scales of the products' inputs; see `calibration.input_scale`."""
        return input_scale(self.calibration(), recipe, {self.path: self.rows})

    def in_keras(self, rows: np.ndarray) -> np.ndarray:
        """Converts values `(N, K)` to the shape of the variable."""
        return rows if self.output_first else rows.T


def matrices(model: PretrainedModel, calibration: Calibration | None = None) -> list[ModelMatrix]:
    """Returns the matrices that the model uses and that are large enough to be quantized, in variable order.

    Args:
        model: A model of the zoo.
        calibration: Calibrated ranges of its products, if they were measured.
    """
    inputs = few_tokens(model)
    usage, encoder_usage = _MatrixUsage(), _MatrixUsage()
    with lowering(usage):
        model(inputs, training=False)
    if model.is_encoder_decoder and model.generates:
        with lowering(encoder_usage):
            model.encode(inputs["input_ids"])
    return [
        ModelMatrix(
            variable,
            product=path in usage.products,
            table=path in usage.tables,
            output_first=usage.output_first[path],
            incremental=model.generates and path not in encoder_usage.output_first,
            ranges=(calibration or {}).get(path),
        )
        for path, variable in {v.path: v for v in model.variables}.items()
        if path in usage.output_first and prod(variable.shape) >= MIN_QUANTIZED
    ]


class _MatrixUsage(Primitives):
    """Plain primitives that record how matrices are used.

    Attributes:
        output_first: `ModelMatrix.output_first` of every matrix, by its path.
        products: Paths of matrices that are used in products.
        tables: Paths of matrices that are used in lookups.
    """

    def __init__(self) -> None:
        self.output_first: dict[str, bool] = {}
        self.products: set[str] = set()
        self.tables: set[str] = set()

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Computes the product and records its kernel."""
        self.output_first[kernel.path] = transposed
        self.products.add(kernel.path)
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Looks up the rows and records the table."""
        self.output_first[table.path] = True
        self.tables.add(table.path)
        return super().embedding(table, ids)
