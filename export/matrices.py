"""The matrices of a model, whose storage a recipe decides, and what a format makes of each of them."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.export.recipes import MIN_QUANTIZED, Recipe, Storage
from kerasformer.export.sample import as_inputs, one_by_one, passages
from kerasformer.layers.primitives import Primitives, Tensor, lowering


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix that texts are multiplied with, that rows are looked up in, or both.

    Attributes:
        variable: Of the Keras model.
        table: Rows of it are looked up.
        output_first: It is `(N, K)`, a row for each output or token; otherwise `(K, N)`.
    """

    variable: keras.Variable
    table: bool
    output_first: bool

    @property
    def path(self) -> str:
        """Of the variable."""
        return str(self.variable.path)

    @property
    def rows(self) -> tuple[int, int]:
        """`(N, K)`."""
        shape = tuple(self.variable.shape)
        return shape if self.output_first else shape[::-1]

    def value(self) -> np.ndarray:
        """float32 `(N, K)`."""
        value = ops.convert_to_numpy(self.variable.value).astype("float32", copy=False)
        return value if self.output_first else value.T

    def as_stored(self, recipe: Recipe, format: str) -> np.ndarray:
        """The values that a runtime finds in the file, in the shape of the variable."""
        values = _LAYOUTS[format].as_stored(self, recipe)
        return values if self.output_first else values.T

    def num_bytes(self, recipe: Recipe, format: str) -> int:
        """Bytes in the file, scales included."""
        return _LAYOUTS[format].num_bytes(self, recipe)


class _Tflite:
    """One scale a row, or a block of it."""

    @staticmethod
    def as_stored(matrix: Matrix, recipe: Recipe) -> np.ndarray:
        from kerasformer.export import tflite_storage

        form = tflite_storage.form_of(recipe, matrix.path, matrix.rows, matrix.table)
        return tflite_storage.as_stored(matrix.value(), form)

    @staticmethod
    def num_bytes(matrix: Matrix, recipe: Recipe) -> int:
        from kerasformer.export import tflite_storage

        form = tflite_storage.form_of(recipe, matrix.path, matrix.rows, matrix.table)
        return form.num_bytes(matrix.rows) + form.scale_bytes(matrix.rows)


_LAYOUTS: dict[str, Any] = {"tflite": _Tflite}


def matrices(model: Any) -> list[Matrix]:
    """Those that the model's functions use and that are large enough to be quantized, in the order of its variables."""
    noting = _Noting()
    with lowering(noting):
        model(as_inputs(next(one_by_one(passages(model, ["A text."])))), training=False)
    return [
        Matrix(variable, variable.path in noting.tables, noting.used[variable.path])
        for variable in {id(v): v for v in model.variables}.values()
        if variable.path in noting.used and prod(variable.shape) >= MIN_QUANTIZED
    ]


class _Noting(Primitives):
    """Plain primitives that take note of the matrices they are given.

    Attributes:
        used: Whether a matrix is output-first, by path.
        tables: Paths of those that rows are looked up in.
    """

    def __init__(self) -> None:
        self.used: dict[str, bool] = {}
        self.tables: set[str] = set()

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """The product."""
        self.used[kernel.path] = transposed
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """The rows."""
        self.used[table.path] = True
        self.tables.add(table.path)
        return super().embedding(table, ids)


def num_bytes(model: Any, parts: Sequence[Matrix], recipe: Recipe, format: str) -> int:
    """Bytes of all weights in the model's files; the graphs are extra, a few hundred kilobytes.

    Args:
        model: Whose matrices they are.
        parts: What `matrices` found.
        recipe: How they are stored.
        format: `"tflite"` or `"onnx"`.
    """
    matrix_bytes = sum(part.num_bytes(recipe, format) for part in parts)
    # Small matrices, and vectors.
    rest = sum(4 * prod(v.shape) for v in model.variables if len(v.shape) == 1 or prod(v.shape) < MIN_QUANTIZED)
    return matrix_bytes + rest


@dataclass(frozen=True, eq=False)
class Group:
    """Matrices that are stored alike: those of an attention, of a feed-forward network, or one table.

    Runtimes compute products of one input side by side, which asks for one storage.

    Attributes:
        name: What they have in common of their paths.
        parts: The matrices.
        patterns: Shell patterns that match their paths and no others, whatever the model is called.
    """

    name: str
    parts: tuple[Matrix, ...]
    patterns: tuple[str, ...]

    @property
    def table(self) -> bool:
        """It is a table."""
        return self.parts[0].table


def groups(parts: Sequence[Matrix]) -> list[Group]:
    """The matrices in groups, each of which is in one."""
    found: dict[str, list[Matrix]] = {}
    for part in parts:
        layer = part.path.rsplit("/", 1)[0]
        found.setdefault(layer if part.table else layer.rsplit("/", 1)[0], []).append(part)
    return [_group(members, parts) for members in found.values()]


def _group(members: list[Matrix], parts: Sequence[Matrix]) -> Group:
    common = members[0].path.rsplit("/", 1)[0]
    if len(members) > 1:
        common = common.rsplit("/", 1)[0]
    others = [part.path for part in parts if not any(part is member for member in members)]
    whole = "/" in common and not any(path.startswith(f"{common}/") for path in others)
    name = _below_model(common)
    if whole:
        return Group(name, tuple(members), (f"*/{glob.escape(name)}/*",))
    return Group(name, tuple(members), tuple(f"*/{glob.escape(_below_model(member.path))}" for member in members))


def _below_model(path: str) -> str:
    """The model's own name comes first."""
    return path.split("/", 1)[-1]


def mixed(name: str, chosen: Mapping[str, Storage], parts: Sequence[Group], **settings: Any) -> Recipe:
    """A recipe that stores each group as chosen: the commonest storages first, all others as exceptions.

    Args:
        name: Of the recipe.
        chosen: Storage by the name of a group.
        parts: The groups.
        settings: Its other fields.
    """

    def usual(table: bool) -> Storage:
        sizes: Counter[Storage] = Counter()
        for group in parts:
            if group.table == table:
                sizes[chosen[group.name]] += len(group.patterns)
        return sizes.most_common(1)[0][0] if sizes else "float32"

    usually = {table: usual(table) for table in (False, True)}
    layers = tuple(
        (pattern, chosen[group.name])
        for group in parts
        if chosen[group.name] != usually[group.table]
        for pattern in group.patterns
    )
    return Recipe(name, usually[False], usually[True], layers=layers, **settings)
