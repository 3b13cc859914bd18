"""The matrices of a model whose storage a recipe determines, and groups of them."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import keras
import numpy as np

from kerasformer.bundle.recipes import MIN_QUANTIZED, Recipe, Storage
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.quantization.calibration import Calibration, Ranges, input_scale
from kerasformer.export.quantization.compensation import RoundedKernel
from kerasformer.export.quantization.sample_inputs import few_tokens
from kerasformer.layers.primitives import Primitives, lowering
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

    def linear(
        self,
        x: Tensor,
        kernel: keras.Variable | Tensor,
        bias: keras.Variable | Tensor | None = None,
        *,
        transposed: bool = False,
    ) -> Tensor:
        """Computes the product and records its kernel."""
        self.output_first[kernel.path] = transposed
        self.products.add(kernel.path)
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: keras.Variable | Tensor, ids: Tensor) -> Tensor:
        """Looks up the rows and records the table."""
        self.output_first[table.path] = True
        self.tables.add(table.path)
        return super().embedding(table, ids)


@dataclass(frozen=True, eq=False)
class Group:
    """Matrices with the same storage type: those of an attention, of a feed-forward network, or a single table.

    Runtimes merge products of one input, for which the matrices need the same storage type.

    Attributes:
        name: The common part of their paths.
        parts: The matrices.
        patterns: Shell patterns that match their paths and no others, whatever the model's name is.
    """

    name: str
    parts: tuple[ModelMatrix, ...]
    patterns: tuple[str, ...]

    @property
    def table(self) -> bool:
        """Whether the group is a table."""
        return self.parts[0].table


def groups(parts: Sequence[ModelMatrix]) -> list[Group]:
    """Divides the matrices into groups."""
    members_by_name: dict[str, list[ModelMatrix]] = {}
    for part in parts:
        layer = part.path.rsplit("/", 1)[0]
        members_by_name.setdefault(layer if part.table else layer.rsplit("/", 1)[0], []).append(part)
    return [_group(members, parts) for members in members_by_name.values()]


def _group(members: list[ModelMatrix], parts: Sequence[ModelMatrix]) -> Group:
    common = members[0].path.rsplit("/", 1)[0]
    if len(members) > 1:
        common = common.rsplit("/", 1)[0]
    others = [part.path for part in parts if not any(part is member for member in members)]
    whole = "/" in common and not any(path.startswith(f"{common}/") for path in others)
    name = below_model(common)
    if whole:
        return Group(name, tuple(members), (f"*/{glob.escape(name)}/*",))
    return Group(name, tuple(members), tuple(f"*/{glob.escape(below_model(member.path))}" for member in members))


def mixed(name: str, chosen: Mapping[str, Storage], parts: Sequence[Group], **settings: Any) -> Recipe:
    """Returns a recipe with the most common storage types as defaults and all others as exceptions.

    Args:
        name: Name of the recipe.
        chosen: Storage type by name of the group.
        parts: The groups.
        settings: Other fields of the recipe.
    """

    def most_common(table: bool) -> Storage:
        sizes: Counter[Storage] = Counter()
        for group in parts:
            if group.table == table:
                sizes[chosen[group.name]] += len(group.patterns)
        return sizes.most_common(1)[0][0] if sizes else "float32"

    defaults = {table: most_common(table) for table in (False, True)}
    layers = tuple(
        (pattern, chosen[group.name])
        for group in parts
        if chosen[group.name] != defaults[group.table]
        for pattern in group.patterns
    )
    return Recipe(name, defaults[False], defaults[True], layers=layers, **settings)
