"""One page that shows what happens inside of a model: a file that opens in a browser without a server."""

from __future__ import annotations

from kerasformer.tools.interpretability.explainer.page import write_site
from kerasformer.tools.interpretability.explainer.recording import record

__all__ = ["record", "write_site"]
