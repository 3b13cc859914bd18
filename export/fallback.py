"""What an export does if the files of a recipe are refused: it finds, or falls back to, a more faithful recipe."""

from __future__ import annotations

from dataclasses import replace

from kerasformer.bundle import Fidelity
from kerasformer.bundle.recipes import FALLBACK, Recipe, fallbacks
from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export.builder import BundleBuilder
from kerasformer.files.reading import JsonObject


def write_verified(builder: BundleBuilder) -> tuple[Recipe, Fidelity, JsonObject]:
    """Writes and verifies the files of a recipe or, if they are refused, of the first of its fallbacks that is not.

    Args:
        builder: Writes and verifies the model files, by the requested recipe. Unless its job has `fallback`, the error
            names the first fallback that was seen to pass.

    Returns:
        The recipe of the files, their fidelity, and the entries of the manifest's recipe about refused recipes.

    Raises:
        ExportMismatchError: The files are refused, and no fallback was requested or faithful enough.
    """
    recipe = builder.job.recipe
    builder.write(recipe)
    try:
        return recipe, builder.verify(recipe), {}
    except ExportMismatchError as error:
        refused = {recipe.name: error.with_traceback(None)}  # its frames hold the engine
    for other in filter(builder.supports, fallbacks(recipe)):
        other = replace(other, rounding=recipe.rounding) if other.integers else other  # kernels are rounded already
        other = other.resolved(variable.path for variable in builder.job.model.variables)
        builder.report(f"try {other.name}", 0, 0)
        try:
            builder.write(other)
            if builder.job.fallback:
                return other, builder.verify(other), {FALLBACK: _entry(refused)}
            seen = builder.look(other)
        except ExportMismatchError as error:
            refused[other.name] = error.with_traceback(None)
        except ExportError:  # the format cannot store the model so
            continue
        else:
            raise ExportMismatchError(
                f"{refused[recipe.name]}. The files of {other.name} passed {seen}: pass "
                f"quantize={other.name!r}, or fallback=True to fall back to such a recipe"
            )
    tried = ", ".join(list(refused)[1:])
    also = f". The recipes that were tried instead were refused as well: {tried}" if tried else ""
    raise ExportMismatchError(f"{refused[recipe.name]}{also}")


def _entry(refused: dict[str, ExportMismatchError]) -> JsonObject:
    return {
        "requested": next(iter(refused)),
        "refused": [{"name": name, "received": error.received} for name, error in refused.items()],
    }
