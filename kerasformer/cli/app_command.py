"""`kerasformer app`, which writes the project of an Android or iOS app with a model in it."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerasformer.cli.console import Source, one_of, say, waiting
from kerasformer.cli.quick_export import exported
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
        given: Path | Bundle = path
        if kind(path) == "checkpoint":
            _check_screen(source)
            given = exported(source, Path(temporary) / "bundle", format=PLATFORMS[platform].format)
        bundle = write(platform, given, folder)
    say(f"{folder}: an app for {PLATFORMS[platform].title} with {bundle.path.relative_to(bundle.path.parents[1])}")
    say(f"{bundle.model_bytes / 1e6:.1f} MB; {agreement_text(bundle.fidelity)}. README.md there has all figures.")
    say(f"Next: cd {shlex.quote(str(folder))} && {PLATFORMS[platform].next}")


def _check_screen(source: str) -> None:
    """Checks that an app has a screen for a model, before it is exported."""
    require("keras", "export")
    from kerasformer.tools.app import screen
    from kerasformer.zoo import load

    with waiting("Loading…"):
        model = load(source)
    screen(model.info(), model.tokenizer)
