"""The export with which other commands begin if they get a model in place of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.cli.console import say
from kerasformer.cli.measurement import measured, speed_line
from kerasformer.extras import require
from kerasformer.files.sources import is_foreign, resolve

if TYPE_CHECKING:
    from kerasformer.bundle import Bundle


def exported(source: str, folder: Path, **options: Any) -> Bundle:
    """Exports a model in int8 or, if too many answers change, by a more faithful recipe.

    A quantized file, such as one of llama.cpp, keeps its levels, which takes no calibration.
    """
    require("keras", "export")
    from kerasformer.bundle.recipes import fallback_text
    from kerasformer.export import export

    recipe = None if is_foreign(resolve(source)) else "int8"
    bundle = export(source, folder, quantize=recipe, fallback=True, progress=True, **options)
    if note := fallback_text(bundle.manifest.recipe):
        say(note)
    if figures := measured(bundle.path):
        say(f"{speed_line(figures)}.")
    return bundle
