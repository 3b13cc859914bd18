"""`kerasformer web`, which writes and serves a web page that runs bundles in the browser."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerasformer.basics.command_options import SiteOptions
from kerasformer.cli.console import print_warning, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.cli.quick_export import exported
from kerasformer.errors import InputError

if TYPE_CHECKING:
    pass


@with_options([SiteOptions])
def web(
    *,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Bundles. Presets, checkpoint folders and hub ids are exported first. NAME=SOURCE sets the displayed "
            "name. None with --serve, for a folder that was written before."
        ),
    ] = None,
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page on this machine.")] = False,
    port: Annotated[int, typer.Option(help="Port of --serve; 0 selects a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address of --serve; 0.0.0.0 for all networks.")] = "127.0.0.1",
    **options: Any,
) -> None:
    """Write a web page that runs models in the browser, and serve it with --serve.

    The page also works offline after the first visit.
    """
    if not sources and not serve:
        raise InputError(
            f"Bundles, and the folder to write, were expected. Received: {out} alone. Pass --serve to "
            "serve a page that was written before"
        )
    if sources:
        _write(sources, out, passed(options))
    if serve:
        _serve(out, host, port)
    else:
        say(f"View it with: kerasformer web {out} --serve")
        say("Or copy the folder to any web host with https, such as GitHub Pages.")


def _write(sources: Sequence[str], out: Path, options: Mapping[str, Any]) -> None:
    from kerasformer.files.publishing import SITE, check_destination
    from kerasformer.tools.web.site import build, check_site

    check_destination(out, options.get("overwrite", False), SITE)
    with tempfile.TemporaryDirectory(prefix="kerasformer-web-") as temporary:
        bundles = [_bundle(each, Path(temporary) / str(number)) for number, each in enumerate(sources)]
        folder = build(bundles, out, **options)
        slow = {each: note for each in bundles if (note := _slow(each))}
    site = check_site(folder)
    rows = [
        [model["title"], model["task"], f"{engine['engine']} {engine['recipe']}", f"{engine['bytes'] / 1e6:.1f} MB"]
        for model in site["models"]
        for engine in model["engines"]
    ]
    table(str(folder), ["model", "task", "engine", "size"], rows)
    for bundle, note in slow.items():
        print_warning(f"{bundle}: {note}")


def _slow(argument: str) -> str:
    """Returns what to do about a bundle that is large and slow in browsers; an empty text if it is not."""
    from kerasformer import bundle
    from kerasformer.tools.web.site import name_of

    folder = Path(name_of(argument)[1])
    manifest = bundle.read(folder, check=False)
    note = bundle.browser_warning(manifest)
    size = sum((folder / name).stat().st_size for name in manifest.files if ".onnx" in name) / 1e6
    return f"{size:.1f} MB to download. {note}" if note else ""


def _bundle(argument: str, parent: Path) -> str:
    """Returns `NAME=FOLDER` for a bundle; a checkpoint is exported to a folder in `parent` first."""
    from kerasformer.bundle import agreement_text
    from kerasformer.files.sources import kind, resolve
    from kerasformer.tools.web.site import name_of

    name, source = name_of(argument)
    folder = resolve(source)
    if kind(folder) == "bundle":
        return f"{name}={folder}" if name else str(folder)
    bundle = exported(source, parent / (Path(source).name or folder.name), target="litert-web")
    recipe = bundle.manifest.recipe["name"]
    say(
        f"Exported {source} for LiteRT.js as {recipe}: {bundle.model_bytes / 1e6:.1f} MB; "
        f"{agreement_text(bundle.fidelity)}. To keep such a bundle: kerasformer export {source} FOLDER "
        f"--target litert-web --quantize {recipe}",
    )
    return f"{name}={bundle}" if name else str(bundle)


def _serve(folder: Path, host: str, port: int) -> None:
    from kerasformer.tools.web.serve import address, server

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
