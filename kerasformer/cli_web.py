"""`kerasformer web` and `kerasformer serve`: bundles as a page in a browser, a phone's too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerasformer.cli_output import console, table


def web(
    bundles: Annotated[list[str], typer.Argument(help="Bundles, or NAME=BUNDLE for the name that is shown.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    title: Annotated[str, typer.Option(help="Of the page.")] = "Kerasformer",
    runtime_files: Annotated[
        Path | None,
        typer.Option(help="A folder where npm ci was run with the page's package.json; npm is run without."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a site that is there.")] = False,
) -> None:
    """Write a page that runs bundles in a browser, offline after the first visit."""
    from kerasformer.web.site import build, check_site

    folder = build(bundles, out, title=title, runtime_files=runtime_files, overwrite=overwrite)
    site = check_site(folder)
    rows = [
        [model["title"], model["task"], f"{engine['engine']} {engine['recipe']}", f"{engine['bytes'] / 1e6:.1f} MB"]
        for model in site["models"]
        for engine in model["engines"]
    ]
    table(str(folder), ["model", "task", "engine", "size"], rows)
    console.print(f"Look at it with: kerasformer serve {folder}", soft_wrap=True)
    console.print("Or copy the folder to any web host with https, such as GitHub Pages.")


def serve(
    folder: Annotated[Path, typer.Argument(help="What kerasformer web wrote.")],
    port: Annotated[int, typer.Option(help="0 for a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="0.0.0.0 for all networks of this machine.")] = "127.0.0.1",
) -> None:
    """Serve a page on this machine, with the headers that threads need."""
    from kerasformer.web.serve import address, server

    with server(folder, host, port) as running:
        console.print(f"Serving {folder} at {address(running)} (Ctrl+C ends it)", soft_wrap=True)
        if host not in ("127.0.0.1", "localhost", "::1"):
            console.print(
                "A browser gives a page from another device threads and offline use over https alone. For a phone, "
                "copy the folder to a host with https; or join an Android phone by cable, run "
                f"adb reverse tcp:{running.server_address[1]} tcp:{running.server_address[1]}, and open "
                f"{address(running)} there.",
                soft_wrap=True,
            )
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            console.print("Stopped.")
