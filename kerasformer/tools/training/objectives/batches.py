"""Rows of token ids of different lengths, and the arrays that models read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import shown
from kerasformer.errors import InputError
from kerasformer.tools.training.objectives.vocabulary import Vocabulary

Text = Sequence[int] | np.ndarray
Texts = Sequence[Text] | np.ndarray
"""Token ids of several texts without special tokens; an array `(B, T)` may have padding on either side."""
Documents = Sequence[Sequence[Text]]
"""Token ids of several texts, each a list of sentences without special tokens."""
Batch = dict[str, Any]
"""Arrays of a batch by the names of the model's inputs, and `labels`: an array, or several by the names of outputs."""

IGNORED = -100
"""Label of a position that does not count."""


def as_texts(texts: Texts, vocabulary: Vocabulary) -> list[np.ndarray]:
    """Returns the ids of each text, without padding.

    Raises:
        InputError: there is no text, one has no tokens, or the values are not ids of the vocabulary.
    """
    rows = [as_ids(text, vocabulary) for text in texts]
    if isinstance(texts, np.ndarray):
        rows = [_without_padding(row, vocabulary.pad_id) for row in rows]
    if not rows or not all(map(len, rows)):
        raise InputError(
            "An objective needs at least one text, and each needs a token. "
            f"Received: {len(rows)} texts, of which {sum(not len(row) for row in rows)} have no tokens"
        )
    return rows


def as_documents(documents: Documents, vocabulary: Vocabulary) -> list[list[np.ndarray]]:
    """Returns the ids of each sentence of each document.

    Raises:
        InputError: there is no document, one has no sentence, or a sentence has no tokens.
    """
    if not len(documents) or not all(map(len, documents)):
        raise InputError(
            "An objective needs at least one document, and each needs a sentence. "
            f"Received: {len(documents)} documents with {', '.join(str(len(each)) for each in documents)} sentences"
        )
    return [as_texts(sentences, vocabulary) for sentences in documents]


def as_ids(text: Text, vocabulary: Vocabulary) -> np.ndarray:
    """Returns the ids of a text as an array `(T,)`.

    Raises:
        InputError: the values are not integers from 0 to the size of the vocabulary.
    """
    try:
        ids = np.asarray(text)
    except ValueError:  # lists of different lengths
        ids = np.empty((0, 0))
    integers = ids.ndim == 1 and (not ids.size or ids.dtype.kind in "iu")
    if not integers or (ids.size and not 0 <= ids.min() <= ids.max() < vocabulary.size):
        raise InputError(
            f"A text must be a list of token ids from 0 to {vocabulary.size - 1}, such as tokenizer.encode(text, "
            f"add_special_tokens=False). Received: {shown(text)}"
        )
    return ids.astype("int32")


def _without_padding(row: np.ndarray, pad_id: int) -> np.ndarray:
    real = np.flatnonzero(row != pad_id)
    return row[real[0] : real[-1] + 1] if len(real) else row[:0]


def padded(rows: Sequence[np.ndarray], value: int) -> np.ndarray:
    """Pads rows on the right to the longest one, `(B, T)` int32."""
    result = np.full((len(rows), max(map(len, rows))), value, "int32")
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result


def text_batch(rows: Sequence[np.ndarray], vocabulary: Vocabulary, segments: Sequence[np.ndarray] = ()) -> Batch:
    """Returns the inputs of an encoder or a decoder-only model.

    Args:
        rows: Ids with special tokens.
        vocabulary: The vocabulary.
        segments: Segment of each token, 0 by default.
    """
    batch = {
        "input_ids": padded(rows, vocabulary.pad_id),
        "attention_mask": padded([np.ones_like(row) for row in rows], 0),
    }
    if vocabulary.segments:
        batch["token_type_ids"] = padded(segments or [np.zeros_like(row) for row in rows], 0)
    return batch


def teacher_forcing(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], vocabulary: Vocabulary) -> Batch:
    """Returns the inputs and labels of an encoder-decoder that learns to write each target for its source.

    The decoder reads the right tokens of the target, shifted by one after its start token, instead of its own
    predictions (teacher forcing, Williams and Zipser 1989).

    Args:
        sources: Ids without special tokens.
        targets: Ids without special tokens.
        vocabulary: The vocabulary, which adds those of both sides.
    """
    before, after = vocabulary.target
    framed = [np.concatenate([before, target, after]).astype("int32") for target in targets]
    starts = [target[-1] if vocabulary.start_id is None else vocabulary.start_id for target in framed]
    shifted = [np.concatenate([[start], target[:-1]]) for start, target in zip(starts, framed, strict=True)]
    return {
        **text_batch([vocabulary.framed(source)[0] for source in sources], vocabulary),
        "decoder_input_ids": padded(shifted, vocabulary.pad_id),
        "decoder_attention_mask": padded([np.ones_like(target) for target in framed], 0),
        "labels": padded(framed, IGNORED),
    }
