"""Inputs of a model that finds spans of named types: the names of a few types before each text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from kerasformer.bundle import LABEL_SLOTS, WORD_SLOTS, Signature, SpanInfo
from kerasformer.engines.fidelity.references import stacked
from kerasformer.errors import InputError
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.span_prompts import Word, prompted, slots_of, words_of

LABELS = ("person", "place", "time", "thing", "animal")
"""Names of types that every text is read with, or as many of them as leave space for it."""
_LONGEST = 64
"""Number of tokens of a text, unless a signature has more."""
_RANDOM = 2
"""Number of labels in random ids."""

Arrays = dict[str, np.ndarray]


def span_inputs(model: PretrainedModel, texts: Sequence[str], signatures: Sequence[Signature] = ()) -> Arrays:
    """Returns the inputs of texts, and of composed texts for the signatures that none of them fits.

    Args:
        model: A model with `info().spans`; one without a tokenizer reads random ids.
        texts: The texts; their last words are omitted if they are longer than a signature.
        signatures: Signatures of the bundle, of which each reads a text.

    Returns:
        int32 arrays of `N` texts by the names of the inputs, with 1 in `made_up` `(N,)` for composed ones.

    Raises:
        InputError: No text has a word that the model can read.
    """
    sizes = sorted(
        (int(each.tokens), int(each.inputs[WORD_SLOTS].shape[1])) for each in signatures if each.tokens is not None
    )
    limit = min(filter(None, (model.max_length, max((size for size, _ in sizes), default=_LONGEST))))
    most = max((words for _, words in sizes), default=limit)
    spans = model.info().spans
    if spans is None:
        raise InputError(f"A model that finds spans was expected. Received: {type(model).__name__}")
    if model.tokenizer is None:
        rows = _random(model, len(texts), limit, most)
    else:
        labels = _labels(model.tokenizer, spans, min((size for size, _ in sizes), default=limit))
        split = [words for text in texts if (words := words_of(model.tokenizer, text))]
        rows = [row for words in split if (row := _row(model.tokenizer, spans, labels, words, limit, most))]
        if not rows:
            raise InputError(f"A text with at least one word was expected. Received: {len(texts)} texts without any")
        whole = [word for words in split for word in words]
        for shorter, size in zip([(0, 0), *sizes], sizes, strict=False):
            if not any(_fits(row, size) and not _fits(row, shorter) for row in rows[: len(split)]):
                longer = list(islice(cycle(whole), size[0]))
                if row := _row(model.tokenizer, spans, labels, longer, *size):
                    rows.append(row)
    count = min(len(rows), len(texts))
    inputs = {name: stacked([row[name] for row in rows]) for name in ("input_ids", "attention_mask")}
    for name in (WORD_SLOTS, LABEL_SLOTS):
        # Padding is -1: `stacked` pads by 0.
        inputs[name] = stacked([row[name] + 1 for row in rows]) - 1
    return {**inputs, "made_up": (np.arange(len(rows)) >= count).astype("uint8")}


def _fits(row: Arrays, size: tuple[int, int]) -> bool:
    return len(row["input_ids"]) <= size[0] and len(row[WORD_SLOTS]) <= size[1]


def _labels(tokenizer: Tokenizer, spans: SpanInfo, limit: int) -> tuple[str, ...]:
    """Returns as many labels as leave half of the tokens to the text, but at least one."""
    counts = [count for count in range(1, len(LABELS) + 1) if _length(tokenizer, spans, LABELS[:count]) <= limit // 2]
    return LABELS[: max(counts, default=1)]


def _length(tokenizer: Tokenizer, spans: SpanInfo, labels: Sequence[str]) -> int:
    return int(prompted(tokenizer, spans.label_token, spans.separator, labels, [[]]).attention_mask.sum())


def _row(
    tokenizer: Tokenizer, spans: SpanInfo, labels: Sequence[str], words: Sequence[Word], limit: int, most: int
) -> Arrays | None:
    """Returns the inputs of as many words as can be read; `None` if none can."""
    words = words[: min(most, spans.max_words)]
    while words:
        encoded = prompted(tokenizer, spans.label_token, spans.separator, labels, [words])
        excess = int(encoded.attention_mask.sum()) - limit
        if excess <= 0:
            slots = slots_of(encoded, len(labels), [len(words)])
            arrays = dict(zip((WORD_SLOTS, LABEL_SLOTS), slots, strict=True))
            arrays |= {name: getattr(encoded, name) for name in ("input_ids", "attention_mask")}
            return {name: array[0] for name, array in arrays.items()}
        # Several words may have one token each, and all have at least one.
        words = words[: len(words) - max(1, excess // 4)]
    return None


def _random(model: PretrainedModel, count: int, limit: int, most: int) -> list[Arrays]:
    """Returns rows of random ids: a token before each label, one after both, and a word for each other token."""
    random = np.random.default_rng(0)
    first = 2 * _RANDOM + 1
    if limit <= first:
        raise InputError(f"A length must leave space for words after the labels. Expected: more than {first} tokens")
    rows = []
    for size in random.integers(first + 1, limit + 1, count):
        slots = np.arange(first, size)[:most]
        ids = random.integers(0, model.config.vocab_size, first + len(slots))
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), WORD_SLOTS: slots}
        rows.append({**arrays, LABEL_SLOTS: np.arange(0, first - 1, 2)})
    return rows
