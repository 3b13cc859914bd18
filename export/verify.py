"""Verification of an exported model: runs it in its runtime and compares it with Keras."""

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
from kerasformer.fidelity.figures import Fidelity, cosine_text, divergence_text, near_ties_text
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
    """Runs a bundle in its runtime and compares its answers with the references in its folder.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        recipe: Recipe of the model files.
        num_threads: Number of CPU threads of the runtime.
        rounding: Measures the effect of the recipe's rounding alone on the answers to these references. It is called if
            too few answers agree, to identify near ties; without it, all answers count.

    Returns:
        The fidelity of the bundle.

    Raises:
        ExportMismatchError: The bundle is less faithful than its recipe promises; the message has the figures.
    """
    engine, references = open_engine(folder, manifest, num_threads), bundle.read_references(folder)
    min_cosine = recipe.min_cosine if manifest.info.embedding else None
    limits = recipe.tolerance, recipe.min_agreement, min_cosine
    result = verification.verify(engine, manifest, references)
    failed = result.failed(*limits)
    if failed and rounding is not None and not recipe.exact and not result.failed(recipe.tolerance, 0.0, min_cosine):
        del engine  # `rounding` needs the memory of another model
        measured = rounding(references)
        engine = open_engine(folder, manifest, num_threads)
        result = verification.verify(engine, manifest, references, measured)
        failed = result.failed(*limits)
    if recipe.exact and manifest.cache_dtype in (None, "float32"):
        all_figures = {"": result.fidelity, **result.steps}
        failed |= {name: figures for name, figures in all_figures.items() if figures.generated not in (None, 1.0)}
    if failed:
        raise ExportMismatchError(_mismatch_message(manifest, recipe, *next(iter(failed.items()))))
    if QUALITY not in references:
        return result.fidelity
    pipe = pipeline_of(engine, manifest.info, load_tokenizer(folder))
    return replace(result.fidelity, quality=compare_quality(pipe, references))


def _mismatch_message(manifest: Manifest, recipe: Recipe, step: str, figures: Fidelity) -> str:
    """Returns what was expected, what was measured, and what to do."""
    signature = f", with steps of the signature {step!r}," if step else ""
    tokens = "" if figures.generated is None else f", {figures.generated:.1%} of freely generated tokens"
    answers = bundle.compared_answers(figures.to_dict())
    share = f"agreement of at least {recipe.min_agreement:g} of the {answers}"
    if manifest.info.embedding:
        share = f"a mean cosine similarity of at least {recipe.min_cosine:g}"
    return (
        f"The answers of the {manifest.format} file{signature} differ from those of Keras. Expected for "
        f"{recipe.name}: a largest error of at most {recipe.tolerance:g} of the scale, {share}"
        f"{' and equal tokens' if recipe.exact else ''}. Received: largest error "
        f"{figures.max_error:.3g}, agreement {figures.agreement:.4f} of {figures.answers} {answers}"
        f"{near_ties_text(figures)}{tokens}"
        f"{cosine_text(figures)}{divergence_text(figures)}. {_advice(recipe, figures)}. Nothing was written"
    )


def _advice(recipe: Recipe, figures: Fidelity) -> str:
    """Returns what to do about a file that is not faithful enough."""
    if recipe.exact:
        return "This is a defect of the export: please report it"
    if figures.decided_agreement is not None and figures.decided_agreement >= recipe.min_agreement:
        return (
            "Enough answers agree apart from near ties, but the file differs from Keras by more than rounding "
            "explains. This is a defect of the export or of the runtime: please report it"
        )
    ways = [
        "Choose a recipe with more bits",
        'store sensitive matrices with more bits (Recipe.layers, such as (("*/layer_0/*", "int8"),), or '
        f"{argument('quantize', 'auto')})",
        f"compare on texts of the kind that the model is used for ({argument('texts', ...)})",
    ]
    if not figures.max_error <= recipe.tolerance:
        return f"{', '.join(ways)}, or, if these figures are acceptable, pass a Recipe with a higher tolerance"
    if figures.cosine is not None:
        ways.insert(0, f"Keep activations in float32 ({argument('quantize', 'int8_weights')})")
        ways[1] = "choose a recipe with more bits"
        return f"{', '.join(ways)}, or, if these figures are acceptable, pass a Recipe with a lower min_cosine"
    lower = (
        f"a Recipe with a lower min_agreement, or {argument('quantize', 'auto')} with {argument('min_agreement', ...)}"
    )
    if recipe.name == AUTO:
        lower = f"a lower {argument('min_agreement', ...)}"
    return f"{', '.join(ways)}, or, if these figures are acceptable, pass {lower}"
