"""`kerasformer serve`, which runs a server with the API of OpenAI."""

from __future__ import annotations

from typing import Annotated

import typer

from kerasformer.cli.console import say

_LIMITS, _ADDRESS = "Limits", "Address"


def serve(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Presets, checkpoint folders, hub ids and bundles. NAME=SOURCE sets the name of the model.",
        ),
    ],
    port: Annotated[int, typer.Option(help="Port; 0 selects a free one.", rich_help_panel=_ADDRESS)] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.", rich_help_panel=_ADDRESS)
    ] = "127.0.0.1",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="KERASFORMER_API_KEY",
            show_default=False,
            help="Key that requests must have. The environment variable is safer: other users of the machine can read "
            "a command line.",
            rich_help_panel=_ADDRESS,
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of each bundle.")] = None,
    prefix_cache: Annotated[
        bool, typer.Option(help="Whether a text that begins like an earlier one continues its caches.")
    ] = True,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin of web pages that may use the server from a browser, such as https://example.com; * for all. "
            "Can be repeated.",
            rich_help_panel=_ADDRESS,
        ),
    ] = None,
    max_running: Annotated[
        int, typer.Option(help="Requests of a model that are computed at once.", rich_help_panel=_LIMITS)
    ] = 8,
    max_waiting: Annotated[
        int, typer.Option(help="Further requests of a model that wait.", rich_help_panel=_LIMITS)
    ] = 64,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Largest number of new tokens of a text; the capacity of the cache by default.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Largest body of a request in bytes.", rich_help_panel=_LIMITS)] = 4
    * 2**20,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds from the arrival of a request to the end of its answer.", rich_help_panel=_LIMITS),
    ] = 300.0,
) -> None:
    """Serve models over HTTP with the API of OpenAI."""
    from kerasformer.server import Limits
    from kerasformer.server import serve as run

    limits = Limits(running=max_running, waiting=max_waiting, max_tokens=max_tokens, max_body=max_body, timeout=timeout)

    def ready(address: str, names: list[str]) -> None:
        say(f"Serving {', '.join(names)} at {address} (press Ctrl+C to stop)")
        if host not in ("127.0.0.1", "localhost", "::1") and api_key is None:
            say("Everyone in the network can use this server. Set a key with KERASFORMER_API_KEY.")

    run(
        sources,
        host=host,
        port=port,
        api_key=api_key,
        num_threads=threads,
        prefix_cache=prefix_cache,
        cors_origins=cors_origin or (),
        limits=limits,
        ready=ready,
    )
    say("Stopped.")
