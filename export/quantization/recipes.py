"""Quantization recipes as values, each with the fidelity that it must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any, Literal, get_args

from kerasformer.arguments import shown
from kerasformer.errors import ExportError

Storage = Literal["float32", "float16", "int8", "int4"]
Activations = Literal["float", "dynamic", "static"]

BITS: dict[Storage, int] = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}

# Smaller matrices (a classifier's output, segment embeddings) cost nothing in float32 and keep their precision.
MIN_QUANTIZED = 4096


@dataclass(frozen=True)
class Recipe:
    """How weights are stored, and how far answers may then be from the Keras model's.

    Integers are symmetric (zero is zero), with one scale for each output channel or for each block of it. Vectors
    (biases, scales of norms) and matrices of fewer than 4096 values stay float32.

    Attributes:
        name: What `quantize=` takes, and what the bundle's manifest says.
        weights: Storage of the matrices that texts are multiplied with.
        tables: Storage of embedding tables, also where one is tied to the output projection.
        activations: `"float"`: products are computed in float32, from weights that are widened while they are read;
            `"dynamic"`: what a quantized matrix is multiplied with becomes int8 while running, with scales from the
            values at hand; `"static"`: with scales measured beforehand on calibration texts.
        tolerance: Largest difference of a logit, as a share of the largest absolute logit of the Keras model.
        min_agreement: Least share of answers whose most probable one is the Keras model's; where rounding by itself
            breaks this, near ties do not count (see docs/quantization.md).
        block: Weights of an output channel that share a scale; `None`: what the format runs best.
        layers: `(pattern, storage)` pairs: a matrix whose path matches a shell pattern such as `"*/layer_0/*"` is
            stored that way; the first match counts, and `weights` and `tables` are for the rest.
    """

    name: str
    weights: Storage
    tables: Storage
    activations: Activations
    tolerance: float
    min_agreement: float
    block: int | None = None
    layers: tuple[tuple[str, Storage], ...] = ()

    def __post_init__(self) -> None:
        for storage in (self.weights, self.tables, *(storage for _, storage in self.layers)):
            if storage not in BITS:
                raise ExportError(f"Weights are stored as one of {', '.join(BITS)}. Received: {storage!r}")
        if self.activations not in get_args(Activations):
            raise ExportError(
                f"Activations are one of {', '.join(get_args(Activations))}. Received: {self.activations!r}"
            )
        if self.block is not None and (self.block < 16 or self.block & (self.block - 1)):
            raise ExportError(f"block must be a power of two of at least 16, or None. Received: {self.block}")

    @property
    def exact(self) -> bool:
        """Every weight keeps its float32 value."""
        return {self.weights, self.tables, *(storage for _, storage in self.layers)} == {"float32"}

    def storage(self, path: str, shape: Sequence[int], table: bool = False) -> Storage:
        """How a variable is stored.

        Args:
            path: Path of the Keras variable.
            shape: Its shape.
            table: Rows of it are looked up.
        """
        if len(shape) != 2 or prod(shape) < MIN_QUANTIZED:
            return "float32"
        chosen = (storage for pattern, storage in self.layers if fnmatchcase(path, pattern))
        return next(chosen, self.tables if table else self.weights)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)


# float32 differs by the order of sums alone. The others are judged by their answers; their tolerance only catches a
# broken scale.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("none", "float32", "float32", "float", tolerance=1e-4, min_agreement=1.0),
        Recipe("fp16", "float16", "float16", "float", tolerance=0.01, min_agreement=0.99),
        Recipe("int8", "int8", "int8", "dynamic", tolerance=0.15, min_agreement=0.98),
        Recipe("int8_weights", "int8", "int8", "float", tolerance=0.1, min_agreement=0.98),
        Recipe("int8_static", "int8", "int8", "static", tolerance=0.3, min_agreement=0.95),
        Recipe("int4", "int4", "int8", "dynamic", tolerance=0.5, min_agreement=0.9),
    )
}
"""When to use which: docs/quantization.md."""


def recipe(wanted: str | Recipe | None) -> Recipe:
    """The recipe of that name; `None` means `"none"`.

    Raises:
        ExportError: no recipe has that name.
    """
    if isinstance(wanted, Recipe):
        return wanted
    try:
        return RECIPES[wanted or "none"]
    except (KeyError, TypeError):
        known = ", ".join((*RECIPES, "auto"))
        raise ExportError(f"Unknown quantization recipe. Expected one of {known}. Received: {shown(wanted)}") from None


WHEN = {
    "none": "It answers as the Keras model does. Take it where size and speed do not matter, and to compare with.",
    "fp16": "Half the size at the same answers; arithmetic is in float32.",
    "int8": "A quarter of the size, and fast on processors: the recipe to begin with.",
    "int8_weights": "A quarter of the size, with activations in float: where `int8` loses too much.",
    "int8_static": "For accelerators that take integers alone. Calibrate it with texts of your own.",
    "int4": "An eighth of the size or little more. Compare it on texts of your own before you ship it.",
    "auto": "The storage of each part was chosen by what it costs in fidelity.",
}
"""When to take which recipe."""


def recipe_line(recipe: Mapping[str, Any], default: bool = False) -> str:
    """A line about the recipe of a bundle, for people.

    Args:
        recipe: As the manifest has it.
        default: Nobody asked for another one.
    """
    name = str(recipe.get("name", ""))
    chosen = f"{name} (the default; int8 takes about a quarter of the size)" if default else name
    stored = "" if recipe["tables"] == recipe["weights"] else f", tables as {recipe['tables']}"
    return f"Recipe {chosen}: matrices as {recipe['weights']}{stored}. {WHEN.get(name, '')}".rstrip()
