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

from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization.recipes import MIN_QUANTIZED, Recipe, Storage
from kerasformer.export.quantization.sample_inputs import as_inputs, one_by_one, passages
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.tensor import Tensor


@dataclass(frozen=True, eq=False)
class ModelMatrix:
    """A matrix that texts are multiplied with, that rows are looked up in, or both.

    Attributes:
        variable: Of the Keras model.
        product: Texts are multiplied with it.
        table: Rows of it are looked up.
        output_first: It is `(N, K)`, a row for each output or token; otherwise `(K, N)`.
        incremental: It is used token by token, not for whole texts alone.
    """

    variable: keras.Variable
    product: bool
    table: bool
    output_first: bool
    incremental: bool

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

    def in_keras(self, rows: np.ndarray) -> np.ndarray:
        """`(N, K)` in the shape of the variable."""
        return rows if self.output_first else rows.T


def matrices(model: Any) -> list[ModelMatrix]:
    """Those that the model's functions use and that are large enough to be quantized, in the order of its variables."""
    inputs = as_inputs(next(one_by_one(passages(model, ["A text."]))))
    noting, once = _Noting(), _Noting()
    with lowering(noting):
        model(inputs, training=False)
    if model.is_encoder_decoder and model.generates:
        with lowering(once):
            model.encode(inputs["input_ids"])
    return [
        ModelMatrix(
            variable,
            product=path in noting.products,
            table=path in noting.tables,
            output_first=noting.output_first[path],
            incremental=model.generates and path not in once.output_first,
        )
        for path, variable in {v.path: v for v in model.variables}.items()
        if path in noting.output_first and prod(variable.shape) >= MIN_QUANTIZED
    ]


class _Noting(Primitives):
    """Plain primitives that take note of the matrices they are given.

    Attributes:
        output_first: Of every matrix, by its path.
        products: Paths of those that texts are multiplied with.
        tables: Paths of those that rows are looked up in.
    """

    def __init__(self) -> None:
        self.output_first: dict[str, bool] = {}
        self.products: set[str] = set()
        self.tables: set[str] = set()

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """The product."""
        self.output_first[kernel.path] = transposed
        self.products.add(kernel.path)
        return super().linear(x, kernel, bias, transposed=transposed)

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """The rows."""
        self.output_first[table.path] = True
        self.tables.add(table.path)
        return super().embedding(table, ids)


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
    parts: tuple[ModelMatrix, ...]
    patterns: tuple[str, ...]

    @property
    def table(self) -> bool:
        """It is a table."""
        return self.parts[0].table


def groups(parts: Sequence[ModelMatrix]) -> list[Group]:
    """The matrices in groups, each of which is in one."""
    found: dict[str, list[ModelMatrix]] = {}
    for part in parts:
        layer = part.path.rsplit("/", 1)[0]
        found.setdefault(layer if part.table else layer.rsplit("/", 1)[0], []).append(part)
    return [_group(members, parts) for members in found.values()]


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
