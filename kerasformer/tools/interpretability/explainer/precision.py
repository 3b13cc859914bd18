"""The same model in several precisions: bundles that are exported for the comparison, or that lie beside a bundle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer import bundle
from kerasformer.basics.arguments import check, one_of
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import ALIASES, FORMATS, Manifest
from kerasformer.errors import BundleError, ExportError, ExportMismatchError, InputError, KerasformerError
from kerasformer.files.publishing import MANIFEST
from kerasformer.pipelines import Opened, open_source
from kerasformer.tools.interpretability.explainer.answers import COMPARED_TOKENS, Continued
from kerasformer.tools.interpretability.explainer.readings import Reading

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

RECIPES = ("int8", "int4")
"""Recipes that are exported by default."""
EXACT = ("none", "float32")
"""Names of recipes whose weights are those of the Keras model."""

_LENGTHS = tuple(2**power for power in range(4, 11))


@dataclass(frozen=True)
class Precision:
    """A model in one precision.

    Attributes:
        name: Name of the recipe.
        opened: The opened bundle; `None` if there is none.
        bytes: Size of its model files; 0 if there is none.
        note: What the page says about it; optional.
    """

    name: str
    opened: Opened | None
    bytes: int = 0
    note: str = ""


def opened_bundle(folder: str | os.PathLike[str], name: str | None = None, note: str = "") -> Precision:
    """Opens a bundle of the same model.

    Raises:
        BundleError: the folder is no bundle, or is damaged.
    """
    path = Path(folder)
    manifest = bundle.read(path)
    return Precision(name or _name(manifest), open_source(None, path), bundle.Bundle(path).model_bytes, note)


def _name(manifest: Manifest) -> str:
    name = str(manifest.recipe.get("name", "unknown"))
    return "float32" if name in EXACT else name


@contextmanager
def exported(
    model: PretrainedModel,
    texts: Sequence[Continued | Reading],
    recipes: Sequence[str],
    format: str,
    report: StageProgress,
) -> Iterator[list[Precision]]:
    """Exports a model by recipes to a temporary folder, which exists until the block ends.

    A bundle that an export would refuse, since it differs too much from the Keras model, is shown as well, with a note.

    Raises:
        ExportError: a recipe is unknown.
        InputError: the format is unknown.
    """
    from kerasformer.export import recipe

    check("format", format, one_of(*FORMATS, *ALIASES))
    for name in recipes:
        recipe(name)  # raises an error for an unknown name
    with tempfile.TemporaryDirectory(prefix="kerasformer-", ignore_cleanup_errors=True) as folder:
        precisions = []
        for name in recipes:
            report(f"export {name}", 0, 0)
            precisions.append(_exported(model, texts, name, format, Path(folder) / name))
        yield precisions


def _exported(
    model: PretrainedModel, texts: Sequence[Continued | Reading], name: str, format: str, folder: Path
) -> Precision:
    from kerasformer.export import export, recipe

    options, note = _sizes(model, texts, format), ""
    try:
        try:
            export(model, folder, format, name, **options)
        except ExportMismatchError as mismatch:
            note = f"An export refuses this bundle: {mismatch.received or mismatch}"
            loose = replace(recipe(name), tolerance=1e9, min_agreement=0.0, min_cosine=-1.0, max_divergence=None)
            export(model, folder, format, loose, **options)
    except ExportError as error:
        return Precision(name, None, note=f"It could not be exported: {error}")
    return opened_bundle(folder, name, note)


def _sizes(model: PretrainedModel, texts: Sequence[Continued | Reading], format: str) -> Any:
    """Returns options of an export for the lengths of these texts: few and short signatures take less time."""
    readings = [text.reading if isinstance(text, Continued) else text for text in texts]
    longest = max(len(reading.ids) for reading in readings)
    limit = model.max_length or longest
    options: dict[str, Any] = {"progress": False}
    tflite = format in ("litert", "tflite")
    if model.is_encoder_decoder or (tflite and not model.generates):
        options["lengths"] = (min(limit, next(length for length in _LENGTHS if length >= longest)),)
    if model.generates:
        longest = max(len(text.start) for text in texts if isinstance(text, Continued)) + COMPARED_TOKENS
        capacity, answer = -(-longest // 16) * 16, model.max_answer_length
        options["capacity"] = capacity if answer is None else min(answer, capacity)
        options |= {"batch_sizes": (), "verify_lengths": (), "cache_lengths": ()} if tflite else {}
    return options


def siblings(folder: Path, manifest: Manifest) -> list[Precision]:
    """Opens the bundles of the same model that lie beside a bundle, one for each other recipe, the most exact first."""
    found: dict[str, Precision] = {}
    for path in sorted(folder.absolute().parent.iterdir()):
        if path.resolve() == folder.resolve() or not (path / MANIFEST).is_file():
            continue
        try:
            other = bundle.read(path, check=False)
            if _same_model(manifest, other) and _name(other) != _name(manifest):
                found.setdefault(_name(other), opened_bundle(path))
        except (BundleError, KerasformerError):
            continue
    return sorted(found.values(), key=lambda precision: -precision.bytes)


def _same_model(first: Manifest, second: Manifest) -> bool:
    """Whether two bundles are of the same model, as far as manifests tell."""
    return replace(first.info, task="") == replace(second.info, task="")


def divergence(reference: np.ndarray, other: np.ndarray, independent: bool) -> np.ndarray:
    """Returns the Kullback-Leibler divergence of distributions, in nats, `(P,)`.

    Args:
        reference: Log-probabilities `(P, N)` of the reference.
        other: Log-probabilities `(P, N)`.
        independent: Whether each candidate is chosen or not, by itself; their divergences are then added.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(np.isneginf(reference), 0, np.exp(reference) * (reference - other))
        if independent:
            absent, other_absent = (np.log1p(-np.exp(np.minimum(logs, -1e-12))) for logs in (reference, other))
            terms = terms + np.exp(absent) * (absent - other_absent)
    return np.maximum(terms.sum(axis=1), 0)


def by_name(bundles: Mapping[str, str | os.PathLike[str]]) -> list[Precision]:
    """Opens the bundles that a caller names."""
    return [opened_bundle(folder, name) for name, folder in bundles.items()]


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Returns bundles by the names of their recipes.

    Raises:
        BundleError: a folder is no bundle.
        InputError: two bundles have the same recipe.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        name = _name(bundle.read(folder, check=False))
        if name in found:
            raise InputError(f"Bundles of different recipes were expected. Received: {name} in {found[name]}, {folder}")
        found[name] = folder
    return found
