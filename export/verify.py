"""The artifact against Keras, in the real runtime, before anyone gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.errors import ExportMismatchError, argument
from kerasformer.evaluation import QUALITY, compare_quality, pipeline_of
from kerasformer.export.quantization.auto import NAME as AUTO
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.fidelity import verification
from kerasformer.fidelity.figures import Fidelity, divergence_text, near_ties_text
from kerasformer.fidelity.rounding import Rounding
from kerasformer.runtime import open_engine
from kerasformer.tokenization import load_tokenizer


def verify(
    folder: Path,
    manifest: Manifest,
    recipe: Recipe,
    num_threads: int | None = None,
    rounding: Callable[[Mapping[str, np.ndarray]], Rounding] | None = None,
) -> Fidelity:
    """Runs the artifact in its runtime and compares it with the references in its folder.

    Args:
        folder: Of the artifact.
        manifest: Of its files.
        recipe: Of its files.
        num_threads: CPU threads of the runtime.
        rounding: Measures what the recipe's rounding does by itself to the answers of these references. It is called
            where too few answers agree, to tell near ties apart; without it all answers count.
    Raises:
        ExportMismatchError: it is less faithful than its recipe promises; the message has the figures.
    """
    engine, references = open_engine(folder, manifest, num_threads), bundle.read_references(folder)
    found = verification.verify(engine, manifest, references)
    failed = found.failed(recipe.tolerance, recipe.min_agreement)
    if failed and rounding is not None and not recipe.exact and not found.failed(recipe.tolerance, 0.0):
        found = verification.verify(engine, manifest, references, rounding(references))
        failed = found.failed(recipe.tolerance, recipe.min_agreement)
    if recipe.exact:
        every = {"": found.fidelity, **found.steps}
        failed |= {name: figures for name, figures in every.items() if figures.generated not in (None, 1.0)}
    if failed:
        raise ExportMismatchError(_complaint(manifest, recipe, *next(iter(failed.items()))))
    if QUALITY not in references:
        return found.fidelity
    pipe = pipeline_of(engine, manifest.info, load_tokenizer(folder))
    return replace(found.fidelity, quality=compare_quality(pipe, references))


def _complaint(manifest: Manifest, recipe: Recipe, step: str, figures: Fidelity) -> str:
    """What was promised, what was found, and what to do."""
    where = f" with steps by {step!r}" if step else ""
    tokens = "" if figures.generated is None else f", generated tokens equal {figures.generated:.1%}"
    return (
        f"The {manifest.format} file{where} does not answer as Keras does. Expected for {recipe.name}: a largest error "
        f"of at most {recipe.tolerance:g} of the scale, agreement of at least {recipe.min_agreement:g}"
        f"{' and equal tokens' if recipe.exact else ''}. Received: largest error {figures.max_error:.3g}, agreement "
        f"{figures.agreement:.4f} of {figures.answers} answers{near_ties_text(figures)}{tokens}"
        f"{divergence_text(figures)}. {_advice(recipe, figures)}. Nothing was written"
    )


def _advice(recipe: Recipe, figures: Fidelity) -> str:
    """What to do about a file that is not faithful enough."""
    if recipe.exact:
        return "This is a defect of the export: please report it"
    if figures.decided_agreement is not None and figures.decided_agreement >= recipe.min_agreement:
        return (
            "Near ties would excuse the other answers, but the file differs from Keras by more than its rounding does. "
            "This is a defect of the export or of the runtime: please report it"
        )
    ways = [
        "Choose a recipe of more bits",
        'keep the matrices that matter at more bits (Recipe.layers, such as (("*/layer_0/*", "int8"),), or '
        f"{argument('quantize', 'auto')})",
        f"compare on texts of the model's own kind ({argument('texts', ...)})",
    ]
    if not figures.max_error <= recipe.tolerance:
        return f"{', '.join(ways)}, or, if these figures will do, pass a Recipe with more tolerance"
    less = f"a Recipe with less min_agreement, or {argument('quantize', 'auto')} with {argument('min_agreement', ...)}"
    if recipe.name == AUTO:
        less = f"less {argument('min_agreement', ...)}"
    return f"{', '.join(ways)}, or, if these figures will do, pass {less}"
