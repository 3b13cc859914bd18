"""`kerasformer serve`, which runs a server with the API of OpenAI."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kerasformer.basics.options import checked
from kerasformer.cli.console import say
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.tools.server import ServerOptions


@with_options(
    [ServerOptions],
    "host",
    "port",
    "api_key",
    "api_keys",
    "adapter",
    "memory_budget",
    "num_threads",
    "prefix_cache",
    "cors_origins",
    "max_running",
    "max_waiting",
    "max_tokens",
    "max_body",
    "timeout",
)
def serve(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Presets, checkpoint folders, hub ids and bundles. NAME=SOURCE sets the name of the model.",
        ),
    ],
    **options: Any,
) -> None:
    """Serve models over HTTP with the API of OpenAI."""
    from kerasformer.tools.server import serve as run

    chosen = checked(ServerOptions, passed(options), "a server")

    def ready(address: str, names: list[str]) -> None:
        say(f"Serving {', '.join(names)} at {address} (press Ctrl+C to stop)")
        if chosen.host not in ("127.0.0.1", "localhost", "::1") and chosen.api_key is None and chosen.api_keys is None:
            say("Everyone in the network can use this server. Set a key with KERASFORMER_API_KEY.")

    run(sources, chosen, ready=ready)
    say("Stopped.")
