"""Clients: who they are, and those that leave before they have an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

_Result = TypeVar("_Result")


async def while_connected(request: Request, result: Awaitable[_Result]) -> _Result:
    """Returns a result, or cancels its computation when the client leaves.

    Args:
        request: The request, whose body was read.
        result: Computation of the result.
    Raises:
        ClientDisconnect: the client left.
    """
    computation, departure = asyncio.ensure_future(result), asyncio.ensure_future(_departure(request))
    try:
        await asyncio.wait({computation, departure}, return_when=asyncio.FIRST_COMPLETED)
        if not computation.done():
            raise ClientDisconnect
        return computation.result()
    finally:
        for task in (computation, departure):
            task.cancel()
        await asyncio.gather(computation, departure, return_exceptions=True)


CLIENT = "kerasformer.client"
"""Where the application notes who has sent a request."""


def client_of(request: Request) -> str:
    """Returns who has sent a request: the name of the key, or the address."""
    return str(request.scope.get(CLIENT, ""))


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
