"""The artifact against Keras, in the real runtime, before anyone gets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.errors import ExportMismatchError
from kerasformer.evaluation import QUALITY, compare_quality, pipeline_of
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.fidelity import verification
from kerasformer.fidelity.figures import Fidelity
from kerasformer.runtime import open_engine
from kerasformer.tokenization import load_tokenizer


def verify(folder: Path, manifest: Manifest, recipe: Recipe, num_threads: int | None = None) -> Fidelity:
    """Runs the artifact in its runtime and compares it with the references in its folder.

    Raises:
        ExportMismatchError: it is less faithful than its recipe promises; the message has the figures.
    """
    engine, references = open_engine(folder, manifest, num_threads), bundle.read_references(folder)
    found = verification.verify(engine, manifest, references)
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
    change = "" if figures.divergence is None else f", mean KL divergence {figures.divergence:.3g}"
    advice = (
        "This is a defect of the export: please report it"
        if recipe.exact
        else "Choose a recipe of more bits, keep the matrices that matter at more bits (Recipe.layers, such as "
        '(("*/layer_0/*", "int8"),), or quantize="auto"), compare on texts of the model\'s own kind (texts=), or, if '
        "these figures will do, pass a recipe with less min_agreement or more tolerance"
    )
    return (
        f"The {manifest.format} file{where} does not answer as Keras does. Expected for {recipe.name}: a largest error "
        f"of at most {recipe.tolerance:g} of the scale, agreement of at least {recipe.min_agreement:g}"
        f"{' and equal tokens' if recipe.exact else ''}. Received: largest error {figures.max_error:.3g}, agreement "
        f"{figures.agreement:.4f} of {figures.answers} answers{tokens}{change}. {advice}. Nothing was written"
    )
