"""Objectives of pairs of texts: next sentence and sentence order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.basics.arguments import check, integer
from kerasformer.errors import InputError
from kerasformer.tools.training.objectives.batches import Batch, Documents, as_documents, text_batch
from kerasformer.tools.training.objectives.masked_tokens import Masking, mask
from kerasformer.tools.training.objectives.vocabulary import Vocabulary

Pair = tuple[np.ndarray, np.ndarray]


def next_sentence(
    documents: Documents,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    max_length: int = 128,
    masking: Masking | None = None,
    corpus: Documents | None = None,
) -> Batch:
    """Next sentence prediction: whether the second text follows the first one in its document.

    A pair is made from each document: sentences from a random one on, until the pair is full, divided at a random
    sentence. In half of the pairs, the second text comes from another document of the corpus.

    Args:
        documents: Sentences of each document as token ids without special tokens; at least two sentences of each.
        vocabulary: The vocabulary.
        rng: Random number generator.
        max_length: Maximum length of a pair in tokens, special tokens included. Longer pairs are shortened at a random
            end of the longer text.
        masking: Masks tokens for the model with both heads (`task="pretraining"`); optional.
        corpus: Documents from which the other second texts come, at least two; `documents` by default. An
            `ObjectiveDataset` passes all of its documents.

    Returns:
        `input_ids`, `attention_mask` and, if the model reads them, `token_type_ids`, `(B, T)`. `labels` `(B,)` are 0 if
        the second text follows; with `masking`, `labels` has them as `seq_relationship_logits`, and `(B, T)` as
        `prediction_logits`.

    Raises:
        InputError: fewer documents, sentences or tokens than needed.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3.1 and appendix A.2.
    """
    room = _room(vocabulary, max_length)
    pool = documents if corpus is None else corpus
    pairs, labels = [], []
    for document in as_documents(documents, vocabulary):
        first, second = _halves(document, rng, room)
        labels.append(int(rng.random() < 0.5))
        if labels[-1]:
            other = _other(document, pool, vocabulary, rng)
            second = np.concatenate(other[int(rng.integers(len(other))) :])
        pairs.append(_shortened(first, second, rng, room))
    return _batch(pairs, labels, "seq_relationship_logits", vocabulary, rng, masking)


def sentence_order(
    documents: Documents,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    max_length: int = 128,
    masking: Masking | None = None,
) -> Batch:
    """Sentence order prediction: whether two texts that follow each other were exchanged (ALBERT).

    Args:
        documents: As for `next_sentence`, but one document is enough.
        vocabulary: The vocabulary.
        rng: Random number generator.
        max_length: As for `next_sentence`.
        masking: As for `next_sentence`.

    Returns:
        The arrays of `next_sentence`. `labels` are 0 if the order is right; with `masking`, their name is `sop_logits`.

    Raises:
        InputError: fewer documents, sentences or tokens than needed.

    Reference: Lan et al. 2020, arXiv:1909.11942, section 3.1.
    """
    room = _room(vocabulary, max_length)
    pairs, labels = [], []
    for document in as_documents(documents, vocabulary):
        pair = _shortened(*_halves(document, rng, room), rng, room)
        labels.append(int(rng.random() < 0.5))
        pairs.append((pair[1], pair[0]) if labels[-1] else pair)
    return _batch(pairs, labels, "sop_logits", vocabulary, rng, masking)


def _other(
    document: Sequence[np.ndarray], corpus: Documents, vocabulary: Vocabulary, rng: np.random.Generator
) -> list[np.ndarray]:
    """Returns a random document of a corpus that is not the given one.

    Raises:
        InputError: there is none.
    """
    start = int(rng.integers(len(corpus)))
    for index in range(len(corpus)):
        candidate = as_documents([corpus[(start + index) % len(corpus)]], vocabulary)[0]
        if len(candidate) != len(document) or not all(map(np.array_equal, candidate, document)):
            return candidate
    raise InputError(
        "Next sentence prediction takes sentences of other documents. Expected: at least 2 different documents. "
        f"Received: {len(corpus)}, all equal. Pass next_sentence(…, corpus=…), or larger batches"
    )


def _room(vocabulary: Vocabulary, max_length: int) -> int:
    """Returns how many tokens of both texts a pair has at most."""
    special = sum(map(len, vocabulary.pair))
    return int(check("max_length", max_length, integer(special + 2))) - special


def _halves(document: Sequence[np.ndarray], rng: np.random.Generator, room: int) -> Pair:
    """Divides sentences that follow each other, from a random one on, until they fill the room."""
    if len(document) < 2:
        raise InputError("A pair needs two sentences of a document. Received: a document with one sentence")
    begin = int(rng.integers(len(document) - 1))
    lengths = np.cumsum([len(sentence) for sentence in document[begin:]])
    count = max(2, min(len(lengths), int(np.searchsorted(lengths, room)) + 1))
    cut = int(rng.integers(1, count))
    taken = document[begin : begin + count]
    return np.concatenate(taken[:cut]), np.concatenate(taken[cut:])


def _shortened(first: np.ndarray, second: np.ndarray, rng: np.random.Generator, room: int) -> Pair:
    """Removes tokens at a random end of the longer text until both fit."""
    texts = [first, second]
    while len(texts[0]) + len(texts[1]) > room:
        longer = int(len(texts[1]) > len(texts[0]))
        texts[longer] = texts[longer][1:] if rng.random() < 0.5 else texts[longer][:-1]
    return texts[0], texts[1]


def _batch(
    pairs: Sequence[Pair],
    labels: Sequence[int],
    name: str,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    masking: Masking | None,
) -> Batch:
    rows, segments = zip(*(vocabulary.framed(*pair) for pair in pairs), strict=True)
    relation = np.array(labels, "int32")
    if masking is None:
        return {**text_batch(rows, vocabulary, segments), "labels": relation}
    batch = mask(rows, vocabulary, rng, masking, segments)
    return {**batch, "labels": {"prediction_logits": batch["labels"], name: relation}}
