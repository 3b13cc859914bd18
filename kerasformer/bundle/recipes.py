"""Quantization recipes, each with the fidelity that it promises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, get_args

from kerasformer.basics.arguments import shown
from kerasformer.errors import ExportError
from kerasformer.files.reading import JsonMapping, JsonObject

Storage = Literal["float32", "float16", "int8", "int4"]
Activations = Literal["float", "dynamic", "fast", "static"]
Rounding = Literal["nearest", "calibrated", "distilled", "trained", "stored"]

BITS: dict[Storage, int] = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}

# Smaller matrices (a classifier's output, segment embeddings) keep their precision at hardly any cost in size.
MIN_QUANTIZED = 4096

_LAYER = re.compile("(.*)/layer_([0-9]+)/")
"""A layer of a stack of layers, in the path of a variable."""

_SENSITIVE = "*/feed_forward/output/*", "*attention/value/*"
_OUTER = 16  # the first and the last of as many equal parts of a stack

OFFSETS = "/offsets"
"""End of the path of what is added to the weights of each block of a matrix, which takes no part in its rounding."""

ROTATED_SCALE = "rotated_scale"
"""Name of the matrix of a rotated norm's scale (see `rotation`), whose diagonal would take all levels from the rest."""


@dataclass(frozen=True)
class Recipe:
    """How weights are stored, and how much the answers may then differ from those of the Keras model.

    Quantization is symmetric (the zero point is 0), with one scale for each output channel or for each block of a
    channel. Vectors (biases, scales of norms) and matrices of fewer than 4096 values stay in float32.

    Attributes:
        name: Name for `quantize=`, also recorded in the bundle's manifest.
        weights: Storage type of the matrices that activations are multiplied with.
        tables: Storage type of embedding tables, including one that is tied to the output projection.
        activations: How products with quantized matrices are computed. `"float"`: in float32, with weights that are
            dequantized as they are read. `"dynamic"`: activations are quantized to int8 at run time, with scales from
            their current values. `"fast"`: as `"dynamic"` on LiteRT, whose kernels round each token by itself, and for
            models that generate; ONNX files of other models have scales that were measured beforehand on calibration
            texts, except for outputs of GELU. `"static"`: activations are quantized to int8 with scales that were
            measured beforehand on calibration texts.
        tolerance: Largest permitted error of a logit, as a share of the largest absolute logit of the Keras model.
        min_agreement: Smallest permitted share of answers whose most probable choice is that of the Keras model. If
            fewer answers agree, near ties that rounding alone explains are not counted (see docs/quantization.md).
            Models that generate are judged by `max_divergence` instead, if it is not `None`.
        block: Number of weights of an output channel that share a scale; `None` for the format's default.
        layers: Exceptions as `(pattern, storage)` pairs: a matrix whose path matches a shell pattern such as
            `"*/layer_0/*"` has that storage type. The first match counts; `weights` and `tables` apply to the rest.
        sensitive: Storage type of the matrices that lose most by rounding, if it is not that of `weights`: those of
            values in attention and of outputs of feed-forward networks, and all matrices in the first and in the last
            sixteenth of a stack of layers, rounded. They become entries of `layers` when the model is known; see
            `resolved`.
        budget: For decoders, the size of all matrices that are quantized, as a share of their size with `weights` and
            `tables`. Those by which the answers change most for each byte get eight bits, and a tied table may get
            four, as measured on the calibration texts (see `mixed_bits`). `None`: as the other attributes say.
        min_cosine: Smallest permitted mean cosine similarity of embeddings with those of the Keras model, which decides
            instead of the agreement for models for sentence-similarity.
        rounding: How kernels are rounded to integers. `"nearest"`: each weight for itself. `"calibrated"`: so that the
            errors of weights compensate each other on calibration texts (GPTQ, see `compensation`). Tables that are not
            tied to the output projection are rounded to the nearest value, and so are kernels of eight bits on ONNX
            Runtime that do not have a scale for each block. `"distilled"`: calibrated, and four-bit kernels are
            then trained for minutes (see `learned_rounding`). `"trained"`: to the nearest value of exactly
            those weights that the model was trained with (see `quantization_aware`), without scales of inputs and
            without rotation. `"stored"`: not at all, where a quantized checkpoint has levels that the format holds (see
            `stored_levels`).
        channelwise: Whether matrices of four bits have one scale for each output channel instead of blocks.
        max_divergence: For models that generate, largest permitted mean Kullback-Leibler divergence of the
            distributions of next tokens from those of the Keras model, in nats, on texts that the model is used with:
            conversations if it has a chat template.
        max_divergence_p99: Largest permitted 99th percentile of that divergence.

    Raises:
        ExportError: A storage type, `activations`, `block`, `budget` or `rounding` is invalid.
    """

    name: str
    weights: Storage
    tables: Storage
    activations: Activations
    tolerance: float
    min_agreement: float
    block: int | None = None
    layers: tuple[tuple[str, Storage], ...] = ()
    sensitive: Storage | None = None
    budget: float | None = None
    min_cosine: float = 0.0
    rounding: Rounding = "nearest"
    channelwise: bool = False
    max_divergence: float | None = None
    max_divergence_p99: float | None = None

    def __post_init__(self) -> None:
        for storage in (*self._kernels, self.tables):
            if storage not in BITS:
                raise ExportError(f"A storage type must be one of {', '.join(BITS)}. Received: {storage!r}")
        if self.activations not in get_args(Activations):
            raise ExportError(
                f"activations must be one of {', '.join(get_args(Activations))}. Received: {self.activations!r}"
            )
        if self.block is not None and (self.block < 16 or self.block & (self.block - 1)):
            raise ExportError(f"block must be a power of two of at least 16, or None. Received: {self.block}")
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise ExportError(f"budget must be a positive number, or None. Received: {self.budget!r}")
        if self.rounding not in get_args(Rounding):
            raise ExportError(f"rounding must be one of {', '.join(get_args(Rounding))}. Received: {self.rounding!r}")
        if self.channelwise and self.block is not None:
            raise ExportError(
                "A recipe has one scale for each channel or for each block, not both. Received: channelwise=True, "
                f"block={self.block}. Remove one of them"
            )

    @property
    def exact(self) -> bool:
        """Whether every weight is stored in float32."""
        return {*self._kernels, self.tables} == {"float32"}

    @property
    def scales_inputs(self) -> bool:
        """Whether the inputs of some products are scaled by channel; see `calibration.input_scale`."""
        rounds = self.rounding not in ("trained", "stored")
        return self.activations in ("dynamic", "fast") and "int8" in self._kernels and rounds

    @property
    def compensates(self) -> bool:
        """Whether kernels are rounded with calibration texts."""
        return self.rounding in ("calibrated", "distilled") and bool(self.integers)

    @property
    def integers(self) -> set[str]:
        """The integer storage types of matrices of products."""
        return {"int8", "int4"} & {*self._kernels}

    @property
    def _kernels(self) -> tuple[Storage, ...]:
        """The storage types of matrices of products."""
        sensitive = () if self.sensitive is None else (self.sensitive,)
        return self.weights, *(storage for _, storage in self.layers), *sensitive

    def resolved(self, paths: Iterable[str]) -> Recipe:
        """Returns the recipe with the sensitive matrices of a model as entries of `layers`, after those of the caller.

        Args:
            paths: Paths of the model's Keras variables.
        """
        if self.sensitive is None:
            return self
        stacks: dict[str, set[int]] = {}
        for layer in filter(None, map(_LAYER.match, paths)):
            stacks.setdefault(layer[1].split("/", 1)[-1], set()).add(int(layer[2]))
        outer = [
            f"*/{stack}/layer_{index}/*"
            for stack, indices in stacks.items()
            for index in sorted(indices)
            if min(index, len(indices) - 1 - index) < round(len(indices) / _OUTER)
        ]
        layers = ((pattern, self.sensitive) for pattern in (*_SENSITIVE, *outer))
        return replace(self, layers=(*self.layers, *layers))

    def storage(self, path: str, shape: Sequence[int], table: bool = False) -> Storage:
        """Returns the storage type of a variable.

        Args:
            path: Path of the Keras variable.
            shape: Its shape.
            table: Whether it is an embedding table.
        """
        if len(shape) != 2 or math.prod(shape) < MIN_QUANTIZED or path.endswith(f"/{ROTATED_SCALE}"):
            return "float32"
        chosen = (storage for pattern, storage in self.layers if fnmatchcase(path, pattern))
        return next(chosen, self.tables if table else self.weights)

    def no_stricter_than(self, other: Recipe) -> Recipe:
        """Returns the recipe with the limits of another one where these are less strict."""
        return replace(
            self,
            tolerance=max(self.tolerance, other.tolerance),
            min_agreement=min(self.min_agreement, other.min_agreement),
            min_cosine=min(self.min_cosine, other.min_cosine),
            max_divergence=_larger(self.max_divergence, other.max_divergence),
            max_divergence_p99=_larger(self.max_divergence_p99, other.max_divergence_p99),
        )

    def to_dict(self) -> JsonObject:
        """Returns the fields as a dictionary for the manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: JsonMapping) -> Recipe:
        """Returns the recipe with the fields of `to_dict`, also after they were JSON."""
        return cls(**{**fields, "layers": tuple(map(tuple, fields["layers"]))})


def _larger(limit: float | None, other: float | None) -> float | None:
    """Returns the larger one of two limits, of which `None` is the strictest."""
    limits = [value for value in (limit, other) if value is not None]
    return max(limits, default=None)


_INT4 = Recipe(
    "int4",
    "int4",
    "int8",
    "dynamic",
    tolerance=0.5,
    min_agreement=0.9,
    min_cosine=0.95,
    max_divergence=0.15,
    max_divergence_p99=1.0,
    rounding="calibrated",
    budget=1.0,
)

# In float32, only the order of summation differs. The other recipes are judged by their answers; their tolerance only
# catches a wrong scale. benchmarks/RESULTS.md has the measurements that the limits of the divergence follow from.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("none", "float32", "float32", "float", tolerance=1e-4, min_agreement=1.0, min_cosine=0.9999),
        Recipe(
            "fp16",
            "float16",
            "float16",
            "float",
            tolerance=0.01,
            min_agreement=0.99,
            min_cosine=0.9999,
            max_divergence=0.001,
            max_divergence_p99=0.01,
        ),
        Recipe(
            "int8",
            "int8",
            "int8",
            "dynamic",
            tolerance=0.15,
            min_agreement=0.98,
            min_cosine=0.999,
            max_divergence=0.0075,
            max_divergence_p99=0.05,
        ),
        Recipe("int8_fast", "int8", "int8", "fast", tolerance=0.3, min_agreement=0.97, min_cosine=0.996),
        Recipe(
            "int8_weights",
            "int8",
            "int8",
            "float",
            tolerance=0.1,
            min_agreement=0.98,
            min_cosine=0.999,
            max_divergence=0.0075,
            max_divergence_p99=0.05,
        ),
        Recipe(
            "int8_static",
            "int8",
            "int8",
            "static",
            tolerance=0.3,
            min_agreement=0.95,
            min_cosine=0.98,
            max_divergence=0.03,
            max_divergence_p99=0.3,
        ),
        _INT4,
        replace(
            _INT4,
            name="int4_mixed",
            tolerance=0.4,
            min_agreement=0.93,
            min_cosine=0.97,
            max_divergence=0.1,
            max_divergence_p99=0.75,
            sensitive="int8",
            budget=None,
        ),
        replace(_INT4, name="int4_distilled", rounding="distilled"),
        replace(_INT4, name="int4_channel", channelwise=True, budget=None),
        Recipe(
            "stored",
            "int8",
            "int8",
            "float",
            tolerance=0.01,
            min_agreement=0.99,
            min_cosine=0.9999,
            max_divergence=0.0005,
            max_divergence_p99=0.005,
            rounding="stored",
            layers=((f"*{OFFSETS}", "float16"),),
        ),
    )
}
"""When to use which: docs/quantization.md."""


TRAINED = {
    f"{name}_trained": replace(RECIPES[name], name=f"{name}_trained", rounding="trained") for name in ("int8", "int4")
}
"""Recipes of models that were trained with rounded weights; see `quantization_aware`."""


def recipe(name: str | Recipe | None) -> Recipe:
    """Returns the recipe with a name; `None` means `"none"`, and a `Recipe` is returned unchanged.

    Raises:
        ExportError: The name is unknown.
    """
    if isinstance(name, Recipe):
        return name
    if name == "auto":
        raise ExportError("A search is a call of its own. Expected: quantize=kf.search(model, …). Received: 'auto'")
    try:
        return {**RECIPES, **TRAINED}[name or "none"]
    except (KeyError, TypeError):
        known = ", ".join((*RECIPES, *TRAINED))
        raise ExportError(f"Unknown quantization recipe. Expected one of {known}. Received: {shown(name)}") from None


def fallbacks(recipe: Recipe) -> list[Recipe]:
    """Returns the recipes to try if the files of a recipe are not faithful enough, the smallest and fastest first.

    Each of them has more bits than the recipe, or as many bits and finer activations.
    """
    others = [
        other
        for other in RECIPES.values()
        if not other.exact and other.activations not in ("static", "fast") and other.rounding != "stored"
    ]
    return sorted((other for other in others if _precision(other) > _precision(recipe)), key=_precision)


def _precision(recipe: Recipe) -> tuple[int, int, int]:
    """Returns the bits of the coarsest matrices and of the sensitive ones, and a number for those of activations."""
    storages = (recipe.weights, recipe.tables, *(storage for _, storage in recipe.layers))
    activations = ("static", "fast", "dynamic", "float").index(recipe.activations)
    return min(map(BITS.__getitem__, storages)), BITS[recipe.sensitive or recipe.weights], activations


WHEN = {
    "none": "Its answers are those of the Keras model. Use it as a baseline, or if size and speed do not matter.",
    "fp16": "Half the size with the same answers; arithmetic is in float32.",
    "int8": "A quarter of the size, and fast on CPUs: the recipe to try first.",
    "int8_fast": "As `int8`, faster for encoders on ONNX Runtime, and less accurate for texts unlike those of the "
    "calibration.",
    "int8_weights": "A quarter of the size, with activations in float32: for models that lose too much with `int8`.",
    "int8_static": "For accelerators that support only integers. Calibrate it with your own texts.",
    "int4": "An eighth of the size or slightly more. Compare it on your own texts before you ship it.",
    "int4_mixed": "As int4, with eight bits for the matrices that lose most: a fifth larger, and more faithful.",
    "int4_distilled": "As int4, with rounding that is learned from your texts: as small and fast, and more faithful.",
    "int4_channel": "As int4, with one scale for each channel: for accelerators that do not support blocks.",
    "stored": "The levels of a quantized checkpoint, such as a GGUF file, without a second rounding where the format "
    "holds them.",
    "auto": "The storage type of each part was chosen by its cost in fidelity.",
}
"""When to use which recipe."""


def recipe_line(recipe: JsonMapping, default: bool = False) -> str:
    """Describes the recipe of a bundle in one line.

    Args:
        recipe: The manifest's entry for the recipe.
        default: Whether the caller did not choose a recipe.
    """
    name = str(recipe.get("name", ""))
    chosen = f"{name} (the default; int8 takes about a quarter of the size)" if default else name
    if rows := stored_rows(recipe):
        return f"Recipe {name}: {'; '.join(f'{count} of {levels}: {form}' for levels, count, _, form in rows)}"
    stored = "" if recipe["tables"] == recipe["weights"] else f", tables as {recipe['tables']}"
    return f"Recipe {chosen}: matrices as {recipe['weights']}{stored}. {WHEN.get(name, '')}".rstrip()


def stored_rows(recipe: JsonMapping) -> list[tuple[str, str, str, str]]:
    """Returns the kinds of matrices of a quantized checkpoint whose levels a bundle keeps; none for other recipes.

    Args:
        recipe: The manifest's entry for the recipe.

    Returns:
        For each kind: the levels of the checkpoint, the number of matrices, that of their values in millions, and how
        they are stored.
    """
    return [
        (
            row["levels"],
            str(row["matrices"]),
            f"{row['values'] / 1e6:.1f}",
            f"{row['storage']}, {'kept' if row['kept'] else 'rounded: the format has no such levels'}",
        )
        for row in recipe.get("stored", ())
    ]


FALLBACK = "fallback"
"""Name of the entry of a manifest's recipe that tells which recipes were refused."""


def fallback_text(recipe: JsonMapping) -> str:
    """Returns why a bundle has another recipe than the requested one; empty if it does not.

    Args:
        recipe: The manifest's entry for the recipe.
    """
    entry = recipe.get(FALLBACK)
    if entry is None:
        return ""
    reasons = "; ".join(f"{refusal['name']}: {refusal['received']}" for refusal in entry["refused"])
    return (
        f"The recipe {entry['requested']} was requested, but its files exceeded its limits, so the export fell back to "
        f"{recipe['name']}. Refused: {reasons}."
    )
