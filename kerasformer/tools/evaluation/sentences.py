"""Sentences of texts whose lines may break within a sentence."""

from __future__ import annotations

import re

from kerasformer.pipelines import text_parts

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")


def sentences(text: str) -> list[str]:
    """Splits a text into its sentences, as `pipelines.text_parts` does; but only blank lines separate sentences.

    Returns:
        Sentences, without white space around them; line ends and multiple spaces within one become a space.
    """
    paragraphs = (" ".join(paragraph.split()) for paragraph in _PARAGRAPH.split(text))
    return [part for paragraph in paragraphs if paragraph for part in text_parts.sentences(paragraph).texts]
