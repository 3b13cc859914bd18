"""Tokenization with WordPiece, byte-level BPE and SentencePiece vocabularies."""

from __future__ import annotations

from kerasformer.tokenization.encoding import Encoding
from kerasformer.tokenization.loading import has_tokenizer
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.tokenizer import Tokenizer
from kerasformer.tokenization.truncation import TruncationWarning

__all__ = ["Encoding", "TextStream", "Tokenizer", "TruncationWarning", "has_tokenizer"]
