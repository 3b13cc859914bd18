"""HTTP server with the API of OpenAI, for any source that a pipeline opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasformer.extras import require
from kerasformer.tools.server.options import ServerOptions

if TYPE_CHECKING:
    from kerasformer.tools.server.running import serve

__all__ = ["ServerOptions", "serve"]


def __getattr__(name: str) -> Any:
    """Imports the server when it is needed, and names the extra if a package of it is missing."""
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in ("starlette", "uvicorn", "prometheus_client"):
        require(module, "serve")
    from kerasformer.tools.server.running import serve

    return serve
