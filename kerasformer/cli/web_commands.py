"""`kerasformer web` and `kerasformer serve`: bundles as a page in a browser, a phone's too."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerasformer.cli.console import Stages, say, table
from kerasformer.errors import require

if TYPE_CHECKING:
    from kerasformer.bundle import Bundle

_RECIPES = ("int8", "fp16")
"""For a page, the preferred one first; where it changes too many answers, the next."""


def web(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Bundles; presets, checkpoint folders and hub ids are exported first. NAME=SOURCE shows another name."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    title: Annotated[str, typer.Option(help="Of the page.")] = "Kerasformer",
    runtime_files: Annotated[
        Path | None,
        typer.Option(help="A folder where npm ci was run with the page's package.json; npm is run without."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a site that is there.")] = False,
) -> None:
    """Write a page that runs models in a browser, offline after the first visit."""
    from kerasformer.publishing import SITE, check_destination
    from kerasformer.web.site import build, check_site

    check_destination(out, overwrite, SITE)
    with tempfile.TemporaryDirectory(prefix="kerasformer-web-") as place:
        bundles = [_bundle(each, Path(place) / str(number)) for number, each in enumerate(sources)]
        folder = build(bundles, out, title=title, runtime_files=runtime_files, overwrite=overwrite)
    site = check_site(folder)
    rows = [
        [model["title"], model["task"], f"{engine['engine']} {engine['recipe']}", f"{engine['bytes'] / 1e6:.1f} MB"]
        for model in site["models"]
        for engine in model["engines"]
    ]
    table(str(folder), ["model", "task", "engine", "size"], rows)
    say(f"Look at it with: kerasformer serve {folder}")
    say("Or copy the folder to any web host with https, such as GitHub Pages.")


def _bundle(given: str, place: Path) -> str:
    """`NAME=FOLDER` of a bundle; one in `place` where a checkpoint was given."""
    from kerasformer.sources import kind, resolve
    from kerasformer.web.site import name_of

    name, source = name_of(given)
    folder = resolve(source)
    if kind(folder) == "bundle":
        return f"{name}={folder}" if name else str(folder)
    bundle, recipe = _exported(source, place / folder.name, _RECIPES)
    say(
        f"Exported {source} for LiteRT.js as {recipe}. To keep such a bundle: kerasformer export {source} FOLDER "
        f"--target litert-web --quantize {recipe}",
    )
    return f"{name or Path(source).name}={bundle}"


def _exported(source: str, folder: Path, recipes: Sequence[str]) -> tuple[Bundle, str]:
    """A bundle for a page, and the recipe that was faithful enough."""
    from kerasformer.errors import ExportMismatchError

    require("keras", "export")
    from kerasformer.export import export

    recipe, *others = recipes
    try:
        with Stages() as stages:
            return export(source, folder, quantize=recipe, target="litert-web", progress=stages), recipe
    except ExportMismatchError as error:
        if not others:
            raise
        say(f"{recipe} will not do: {error}. Trying {others[0]}.")
    return _exported(source, folder, others)


def serve(
    folder: Annotated[Path, typer.Argument(help="What kerasformer web wrote.")],
    port: Annotated[int, typer.Option(help="0 for a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="0.0.0.0 for all networks of this machine.")] = "127.0.0.1",
) -> None:
    """Serve a page on this machine, with the headers that threads need."""
    from kerasformer.web.serve import address, server

    with server(folder, host, port) as running:
        say(f"Serving {folder} at {address(running)} (Ctrl+C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            say(
                "A browser gives a page from another device threads and offline use over https alone. For a phone, "
                "copy the folder to a host with https; or join an Android phone by cable, run "
                f"adb reverse tcp:{running.server_address[1]} tcp:{running.server_address[1]}, and open "
                f"{address(running)} there.",
            )
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("Stopped.")
