"""Tokenization with WordPiece, byte-level BPE and SentencePiece vocabularies."""

from __future__ import annotations

from kerasformer.tokenization import m2m_100, spiece
from kerasformer.tokenization.chat_templates import pair_template, read_templates
from kerasformer.tokenization.chat_templates.rendering import checked_messages
from kerasformer.tokenization.encoding import Encoding
from kerasformer.tokenization.families import PLAIN_INPUTS, SEGMENT_INPUTS
from kerasformer.tokenization.fitting import check_known
from kerasformer.tokenization.hard_texts import FILE
from kerasformer.tokenization.languages import MultilingualTokenizer, marks
from kerasformer.tokenization.loading import has_tokenizer
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.tokenizer import Tokenizer
from kerasformer.tokenization.truncation import TruncationWarning
from kerasformer.tokenization.words import first_tokens

__all__ = [
    "Encoding",
    "FILE",
    "MultilingualTokenizer",
    "PLAIN_INPUTS",
    "SEGMENT_INPUTS",
    "TextStream",
    "Tokenizer",
    "TruncationWarning",
    "check_known",
    "checked_messages",
    "first_tokens",
    "has_tokenizer",
    "m2m_100",
    "marks",
    "pair_template",
    "read_templates",
    "spiece",
]
