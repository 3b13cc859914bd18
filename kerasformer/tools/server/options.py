"""Options of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from kerasformer.basics.arguments import BOOLEAN, STRING, TEXT, integer, number, optional, sequence
from kerasformer.basics.options import Option
from kerasformer.tools.server.limits import Limits


@dataclass(frozen=True)
class ServerOptions(Limits):
    """Options of `serve`.

    Attributes:
        host: Address to listen on; `0.0.0.0` for all networks of this machine.
        port: Port to listen on; 0 selects a free one.
        api_key: Key that requests must have in the header `Authorization: Bearer KEY`. The variable KERASFORMER_API_KEY
            is safer, since other users of the machine can read a command line.
        api_keys: Keys of several clients, which take turns by their names: `NAME=KEY,NAME=KEY`, or `@FILE` with such
            lines. The variable KERASFORMER_API_KEYS is safer.
        adapter: Adapters that requests name like a model: `NAME=FOLDER`, or `NAME=MODEL:FOLDER` if there are several
            models.
        memory_budget: Gigabytes for the weights of open models, each opened for its first request; the one that was not
            used for the longest time is closed when another needs its memory.
        num_threads: Number of CPU threads of each bundle; the runtime's default otherwise.
        prefix_cache: Whether a text that begins like an earlier one continues its caches.
        cors_origins: Origins of web pages that may use the server from a browser, such as `https://example.com`, or `*`
            for all.
    """

    host: Annotated[str, Option(STRING)] = "127.0.0.1"
    port: Annotated[int, Option(integer(0, 65_535))] = 8000
    api_key: Annotated[str | None, Option(optional(STRING), environment="KERASFORMER_API_KEY")] = None
    api_keys: Annotated[str | None, Option(optional(STRING), environment="KERASFORMER_API_KEYS")] = None
    adapter: Annotated[Sequence[str], Option(sequence(TEXT))] = ()
    memory_budget: Annotated[float | None, Option(optional(number(above=0)))] = None
    num_threads: Annotated[int | None, Option(optional(integer(1)))] = None
    prefix_cache: Annotated[bool, Option(BOOLEAN)] = True
    cors_origins: Annotated[Sequence[str], Option(sequence(TEXT))] = ()
