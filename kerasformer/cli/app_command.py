"""`kerasformer app`, which writes the project of an Android or iOS app with a model in it."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerasformer.cli.console import Source, Stages, one_of, say
from kerasformer.extras import require

if TYPE_CHECKING:
    from kerasformer.bundle import Bundle

# A copy of the keys of `kerasformer.tools.app.PLATFORMS`.
NAMES = ("android", "ios")


def app(
    platform: Annotated[str, typer.Argument(help=f"{' or '.join(NAMES)}.", autocompletion=one_of(*NAMES))],
    source: Source,
    folder: Annotated[Path, typer.Argument(help="New folder to write.")],
) -> None:
    """Write an Android or iOS app with a model in it, ready for Android Studio or Xcode.

    Models are exported in int8 first, quantized GGUF files with their own levels. For other options, export a bundle
    and pass it.
    """
    from kerasformer.bundle import agreement_text
    from kerasformer.files.sources import kind, resolve
    from kerasformer.tools.app import PLATFORMS, check_folder, write

    check_folder(platform, folder)
    path = resolve(source)
    with tempfile.TemporaryDirectory(prefix="kerasformer-app-") as temporary:
        exported = kind(path) == "checkpoint"
        given = _exported(source, path, Path(temporary) / "bundle", platform) if exported else path
        bundle = write(platform, given, folder)
    say(f"{folder}: an app for {PLATFORMS[platform].title} with {bundle.path.relative_to(bundle.path.parents[1])}")
    say(f"{bundle.model_bytes / 1e6:.1f} MB; {agreement_text(bundle.fidelity)}. README.md there has all figures.")
    say(f"Next: cd {shlex.quote(str(folder))} && {PLATFORMS[platform].next}")


def _exported(source: str, path: Path, folder: Path, platform: str) -> Bundle:
    """Exports a model, after a check that the app has a screen for it."""
    require("keras", "export")
    from kerasformer.bundle.recipes import fallback_text
    from kerasformer.export import export
    from kerasformer.files.sources import is_foreign
    from kerasformer.tools.app import PLATFORMS, screen
    from kerasformer.zoo import load

    with Stages() as stages:
        stages("load", 0, 0)
        model = load(source)
        screen(model.info(), model.tokenizer)
        del model  # the export reads the weights as it writes them
        recipe = None if is_foreign(path) else "int8"
        bundle = export(source, folder, PLATFORMS[platform].format, recipe, fallback=True, progress=stages)
    if note := fallback_text(bundle.manifest.recipe):
        say(note)
    return bundle
