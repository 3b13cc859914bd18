"""Documents of texts: the token ids of each sentence, for objectives that move, replace or pair sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kerasformer.basics.arguments import check, integer, optional
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.evaluation.sentences import sentences


def documents(
    texts: Iterable[str], tokenizer: Tokenizer, max_length: int | None = None, least: int = 1
) -> list[list[np.ndarray]]:
    """Divides texts into sentences, for the objectives of documents.

        read = kf.training.documents(texts, model.tokenizer, max_length=128)
        data = kf.training.ObjectiveDataset(read, kf.training.text_infilling, kf.training.Vocabulary.of(model))

    Args:
        texts: Texts of several sentences. A line break ends a sentence only where the text has no other end of one;
            a blank line always does.
        tokenizer: Tokenizer of the model.
        max_length: Maximum number of tokens of a document; longer texts become several documents, divided between
            sentences. By default, each text is a document.
        least: Minimum number of sentences of each part of a long text.

    Returns:
        For each document the ids of its sentences without special tokens, which are together those of the text. A text
        without tokens has no document, and a text of few sentences has few.
    """
    limit = check("max_length", max_length, optional(integer(1)))
    return [part for text in texts for part in _divided(_ids(text, tokenizer), limit, least)]


def _ids(text: str, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Returns the ids of each sentence of a text. The text is tokenized as a whole, since spaces belong to tokens."""
    found = sentences(text)
    if len(found) == 1:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    encoding = tokenizer(" ".join(found), add_special_tokens=False, return_offsets_mapping=True)
    ids, ends = encoding["input_ids"][0], np.asarray(encoding["offset_mapping"][0])[:, 1]
    # The space before a sentence is part of its first token, or a token of its own.
    starts = np.cumsum([0, *(len(sentence) + 1 for sentence in found[:-1])]) - 1
    owner = np.searchsorted(starts, ends - 1, side="right") - 1
    return [ids[owner == index] for index in range(len(found)) if (owner == index).any()]


def _divided(document: Sequence[np.ndarray], limit: int | None, least: int) -> list[list[np.ndarray]]:
    """Divides a document into parts of at most `limit` tokens and, if it has as many, at least `least` sentences."""
    if limit is None:
        return [list(document)] if document else []
    longest = max(1, limit // least)
    pieces = [row[start : start + longest] for row in document for start in range(0, len(row), longest)]
    parts: list[list[np.ndarray]] = []
    size = limit
    for piece in pieces:
        if size + len(piece) > limit:
            parts.append([])
            size = 0
        parts[-1].append(piece)
        size += len(piece)
    if len(parts) > 1 and len(parts[-1]) < least:
        # Also with the sentences before, which the part before has as well, so that no text is lost.
        parts[-1] = pieces[-least:]
    return parts
