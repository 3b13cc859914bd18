"""Generation in words: what a caller asks for over a tokenizer, as settings and controls of `kerasformer.decoding`."""

from __future__ import annotations

from kerasformer.generation.request import Request, request
from kerasformer.generation.streams import Stream
from kerasformer.generation.written import Written

__all__ = ["Request", "Stream", "Written", "request"]
