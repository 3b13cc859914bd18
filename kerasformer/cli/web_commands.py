"""`kerasformer web` and `kerasformer preview`, which write and serve a web page that runs bundles in the browser."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerasformer.cli.console import Stages, say, table
from kerasformer.errors import require

if TYPE_CHECKING:
    from kerasformer.bundle import Bundle


def web(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Bundles. Presets, checkpoint folders and hub ids are exported first. NAME=SOURCE sets the displayed "
            "name."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Kerasformer",
    runtime_files: Annotated[
        Path | None,
        typer.Option(
            help="Folder where npm ci was run with the page's package.json; by default, kerasformer runs npm."
        ),
    ] = None,
    given_texts: Annotated[
        bool,
        typer.Option(
            "--given-texts",
            help="Also copy reference answers to texts that were passed to the export; visitors of the page can read "
            "these texts.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing site.")] = False,
) -> None:
    """Write a web page that runs models in the browser.

    The page also works offline after the first visit.
    """
    from kerasformer.publishing import SITE, check_destination
    from kerasformer.web.site import build, check_site

    check_destination(out, overwrite, SITE)
    with tempfile.TemporaryDirectory(prefix="kerasformer-web-") as temporary:
        bundles = [_bundle(each, Path(temporary) / str(number)) for number, each in enumerate(sources)]
        folder = build(
            bundles, out, title=title, runtime_files=runtime_files, given_texts=given_texts, overwrite=overwrite
        )
    site = check_site(folder)
    rows = [
        [model["title"], model["task"], f"{engine['engine']} {engine['recipe']}", f"{engine['bytes'] / 1e6:.1f} MB"]
        for model in site["models"]
        for engine in model["engines"]
    ]
    table(str(folder), ["model", "task", "engine", "size"], rows)
    say(f"View it with: kerasformer preview {folder}")
    say("Or copy the folder to any web host with https, such as GitHub Pages.")


def _bundle(argument: str, parent: Path) -> str:
    """Returns `NAME=FOLDER` for a bundle; a checkpoint is exported to a folder in `parent` first."""
    from kerasformer.sources import kind, resolve
    from kerasformer.web.site import name_of

    name, source = name_of(argument)
    folder = resolve(source)
    if kind(folder) == "bundle":
        return f"{name}={folder}" if name else str(folder)
    bundle = _exported(source, parent / (Path(source).name or folder.name))
    recipe = bundle.manifest.recipe["name"]
    say(
        f"Exported {source} for LiteRT.js as {recipe}. To keep such a bundle: kerasformer export {source} FOLDER "
        f"--target litert-web --quantize {recipe}",
    )
    return f"{name}={bundle}" if name else str(bundle)


def _exported(source: str, folder: Path) -> Bundle:
    """Exports a model in int8 or, if too many answers change, with a more faithful recipe."""
    require("keras", "export")
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import fallback_text

    with Stages() as stages:
        bundle = export(source, folder, quantize="int8", target="litert-web", fallback=True, progress=stages)
    if note := fallback_text(bundle.manifest.recipe):
        say(note)
    return bundle


def preview(
    folder: Annotated[Path, typer.Argument(help="Folder written by kerasformer web.")],
    port: Annotated[int, typer.Option(help="Port; 0 selects a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
) -> None:
    """Serve a page written by kerasformer web on this machine."""
    from kerasformer.web.serve import address, server

    with server(folder, host, port) as running:
        say(f"Serving {folder} at {address(running)} (press Ctrl+C to stop)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            say(
                "On other devices, browsers allow threads and offline use only over https. For a phone, copy the "
                "folder to a host with https; or connect an Android phone by cable, run "
                f"adb reverse tcp:{running.server_address[1]} tcp:{running.server_address[1]}, and open "
                f"{address(running)} there.",
            )
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("Stopped.")
