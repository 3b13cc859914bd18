"""Text generation with a tokenizer, on top of `kerasformer.decoding`."""

from __future__ import annotations

from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.readable_tokens import readable_token
from kerasformer.generation.request import Request, request
from kerasformer.generation.streams import NewText, Stream

__all__ = ["Request", "Stream", "GeneratedText", "NewText", "readable_token", "request"]
