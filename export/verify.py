"""Verification of an exported model: runs it in its runtime and compares it with Keras.

Called by `builder` as soon as the files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import Fidelity, Limits, Manifest, Rounding
from kerasformer.bundle.recipes import Recipe
from kerasformer.engines import Forward, Step, open_engine
from kerasformer.engines.fidelity import verification
from kerasformer.engines.whole_texts import WholeTexts
from kerasformer.errors import ExportMismatchError
from kerasformer.export.references import Attentions
from kerasformer.pipelines.quality import QUALITY, compare_quality, pipeline_of
from kerasformer.tokenization import Tokenizer

EXACT = "none"
"""The recipe that does not round."""
MAX_ATTENTION_ERROR = 1e-3
"""Largest difference of an attention weight, for a recipe that does not round."""
MAX_ATTENTION_SHIFT = 0.25
"""Largest share of attention that falls on other tokens than in Keras, for a recipe that rounds; on the presets, it is
at most 0.012 for int8 and 0.062 for int4."""


def verify(
    folder: Path,
    manifest: Manifest,
    recipe: Recipe,
    rounding: Callable[[Mapping[str, np.ndarray]], Rounding] | None = None,
) -> Fidelity:
    """Runs a bundle in its runtime and compares its answers with the references in its folder.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        recipe: Recipe of the model files.
        rounding: Measures the effect of the recipe's rounding alone on the answers to these references. It is called if
            too few answers agree, to identify near ties; without it, all answers count.

    Returns:
        The fidelity of the bundle.

    Raises:
        ExportMismatchError: The bundle is less faithful than its recipe promises; the message has the figures.
    """
    engine, references = open_engine(folder, manifest), bundle.read_references(folder)
    limits = _limits(manifest, recipe)
    if limits.max_divergence is not None or (recipe.exact and isinstance(engine, Step)):
        _look(engine, manifest, references, recipe, limits.of_sample())
    result = verification.verify(engine, manifest, references)
    failed = result.failed(limits)
    if failed and rounding is not None and not recipe.exact and not result.failed(limits._replace(min_agreement=0.0)):
        del engine  # `rounding` needs the memory of another model
        measured = rounding(references)
        engine = open_engine(folder, manifest)
        result = verification.verify(engine, manifest, references, measured)
        failed = result.failed(limits)
    if recipe.exact and manifest.cache_dtype in (None, "float32"):
        all_figures = {"": result.fidelity, **result.steps}
        failed |= {name: figures for name, figures in all_figures.items() if figures.generated not in (None, 1.0)}
    if failed:
        step, figures = next(iter(failed.items()))
        signature = f", with steps of the signature {step!r}," if step else ""
        raise _mismatch(manifest, recipe, limits.of_sample() if step else limits, figures, signature)
    if QUALITY not in references:
        return result.fidelity
    pipe = pipeline_of(engine, manifest.info, Tokenizer.load(folder))
    return replace(result.fidelity, quality=compare_quality(pipe, references))


def first_look(folder: Path, manifest: Manifest, recipe: Recipe) -> Fidelity | None:
    """Compares a bundle with a small part of the references, which takes seconds; see `verify`.

    Returns:
        The fidelity; `None` if the recipe does not limit the divergence of this model, so that there is no first look.

    Raises:
        ExportMismatchError: The mean divergence exceeds the recipe's limit.
    """
    limits = _limits(manifest, recipe)
    if limits.max_divergence is None:
        return None
    engine, references = open_engine(folder, manifest), bundle.read_references(folder)
    return _look(engine, manifest, references, recipe, limits._replace(max_divergence_p99=None))


def verify_attention(folder: Path, manifest: Manifest, recipe: str, expected: Attentions) -> None:
    """Compares the attention weights of a bundle with those of the Keras model, for one text.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        recipe: Name of the recipe of the model files.
        expected: The text and the weights, of `references.record_attention`.

    Raises:
        ExportMismatchError: The weights differ by more than `MAX_ATTENTION_ERROR`; or for a recipe that rounds, by more
            than `MAX_ATTENTION_SHIFT`.
    """
    inputs, weights = expected
    received = [array for _, array in WholeTexts(folder, manifest).run(inputs)]
    differences = [np.abs(a - b) for a, b in zip(received, weights, strict=True)]
    if recipe == EXACT:
        what, limit = "largest difference", MAX_ATTENTION_ERROR
        errors = [difference.max() for difference in differences]
    else:
        what, limit = "mean share of attention on other tokens", MAX_ATTENTION_SHIFT
        errors = [difference.sum(axis=-1).mean() / 2 for difference in differences]
    error = float(np.max(errors))  # NaN if any of them is
    if not error <= limit:
        raise ExportMismatchError(
            f"The attention weights of the {manifest.format} file differ from those of Keras. Expected for "
            f"{recipe}: {what} at most {limit}. Received: {error:.3g}. Export without outputs, or with a recipe "
            "with more bits. Nothing was written"
        )


def _limits(manifest: Manifest, recipe: Recipe) -> Limits:
    return replace(manifest, recipe=recipe.to_dict()).promise


def _look(
    engine: Forward | Step, manifest: Manifest, references: Mapping[str, np.ndarray], recipe: Recipe, limits: Limits
) -> Fidelity:
    """Compares a part of the references.

    Raises:
        ExportMismatchError: The figures exceed the limits.
    """
    figures = verification.first_look(engine, manifest, references)
    if not figures.within(limits):
        raise _mismatch(manifest, recipe, limits, figures, ", at a first look at a few texts,")
    return figures


def _mismatch(
    manifest: Manifest, recipe: Recipe, limits: Limits, figures: Fidelity, where: str = ""
) -> ExportMismatchError:
    """Returns an error with what was expected, what was measured, and what to do."""
    received = bundle.figure_line(figures.to_dict())
    error = ExportMismatchError(
        f"The answers of the {manifest.format} file{where} differ from those of Keras. Expected for "
        f"{recipe.name}: {limits}{' and equal tokens' if recipe.exact else ''}. "
        f"Received: {received}. {_advice(recipe, limits, figures)}. Nothing was written"
    )
    error.received = received
    return error


def _advice(recipe: Recipe, limits: Limits, figures: Fidelity) -> str:
    """Returns what to do about a file that is not faithful enough."""
    if recipe.exact:
        return "This is a defect of the export: please report it"
    if figures.decided_agreement is not None and figures.decided_agreement >= recipe.min_agreement:
        return (
            "Enough answers agree apart from near ties, but the file differs from Keras by more than rounding "
            "explains. This is a defect of the export or of the runtime: please report it"
        )
    ways = [
        "Choose a recipe with more bits or with activations in float32",
        'store sensitive matrices with more bits (Recipe.layers, such as (("*/layer_0/*", "int8"),), or '
        "the recipe that kf.search(model, …) finds)",
        "compare on texts of the kind that the model is used for (texts=…)",
    ]
    accepted = "if these figures are acceptable, pass"
    if not figures.max_error <= limits.tolerance:
        return f"{', '.join(ways)}, or, {accepted} a Recipe with a higher tolerance"
    if limits.max_divergence is not None:
        return f"{', '.join(ways)}, or, {accepted} a Recipe with higher limits of the divergence (max_divergence)"
    if limits.min_cosine is not None:
        return f"{', '.join(ways)}, or, {accepted} a Recipe with a lower min_cosine"
    return f"{', '.join(ways)}, or, {accepted} a Recipe with a lower min_agreement"
