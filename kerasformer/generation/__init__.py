"""Text generation with a tokenizer, on top of `kerasformer.decoding`."""

from __future__ import annotations

from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.request import Request, request
from kerasformer.generation.streams import NewText, Stream
from kerasformer.generation.token_run import TokenRun

__all__ = ["Request", "Stream", "GeneratedText", "NewText", "TokenRun", "request"]
