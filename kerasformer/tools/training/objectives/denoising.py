"""Objectives of encoder-decoders that restore a damaged text: those of T5, BART and PEGASUS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from kerasformer.basics.arguments import check, number, one_of
from kerasformer.errors import InputError
from kerasformer.tools.training.objectives.batches import (
    Batch,
    Documents,
    Texts,
    as_documents,
    as_texts,
    teacher_forcing,
)
from kerasformer.tools.training.objectives.vocabulary import Vocabulary

Noise = Callable[[list[np.ndarray], Vocabulary, np.random.Generator], list[np.ndarray]]
"""Damages a document, a list of sentences."""


def span_corruption(
    texts: Texts,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    rate: float = 0.15,
    mean_length: float = 3.0,
) -> Batch:
    """Span corruption: spans are replaced by sentinels, and the decoder writes each sentinel with its span (T5).

    "Thank you for inviting me to your party last week." becomes "Thank you <X> me to your party <Y> week." with the
    target "<X> for inviting <Y> last <Z>".

    Args:
        texts: Token ids without special tokens, at least two of each text.
        vocabulary: A vocabulary with sentinels.
        rng: Random number generator.
        rate: Share of the tokens in spans.
        mean_length: Mean number of tokens of a span.

    Returns:
        The arrays of `teacher_forcing`.

    Raises:
        InputError: a text with fewer than two tokens, or more spans than sentinels.

    Reference: Raffel et al. 2020, arXiv:1910.10683, sections 3.1.4 and 3.3.4.
    """
    check("rate", rate, number(0, 1))
    check("mean_length", mean_length, number(1))
    rows = as_texts(texts, vocabulary)
    noise = [random_spans(len(row), rng, rate, mean_length) for row in rows]
    halves = [corrupted(row, spans, vocabulary) for row, spans in zip(rows, noise, strict=True)]
    return teacher_forcing([source for source, _ in halves], [target for _, target in halves], vocabulary)


def random_spans(length: int, rng: np.random.Generator, rate: float, mean_length: float) -> np.ndarray:
    """Returns which tokens of a text are in spans, boolean `(T,)`; it starts outside of a span and ends in one.

    Raises:
        InputError: fewer than two tokens.
    """
    if length < 2:
        raise InputError(f"Span corruption needs at least 2 tokens of each text. Received: {length}")
    noise = min(max(round(length * rate), 1), length - 1)
    spans = min(max(round(noise / mean_length), 1), noise, length - noise)
    lengths = np.stack([_segments(length - noise, spans, rng), _segments(noise, spans, rng)], axis=1)
    return np.repeat(np.tile([False, True], spans), lengths.reshape(-1))


def _segments(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Divides a number at random into positive numbers."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff([0, *cuts, total])


def corrupted(text: np.ndarray, noise: np.ndarray, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Returns source and target of span corruption.

    Args:
        text: Token ids `(T,)`.
        noise: Which tokens are in spans, boolean `(T,)`.
        vocabulary: A vocabulary with sentinels.

    Raises:
        InputError: more spans than sentinels.
    """
    return _with_sentinels(text, noise, vocabulary), _with_sentinels(text, ~noise, vocabulary, skip=int(noise[0]))


def _with_sentinels(text: np.ndarray, hidden: np.ndarray, vocabulary: Vocabulary, skip: int = 0) -> np.ndarray:
    """Replaces runs of hidden tokens by sentinels; the first `skip` sentinels come before the text.

    A target that starts with a span has no run before it, and still starts with the first sentinel.
    """
    first = hidden & ~np.concatenate([[False], hidden[:-1]])
    number_of_run = np.cumsum(first) - 1 + skip
    needed, sentinels = skip + int(first.sum()), vocabulary.sentinel_ids
    if not sentinels:
        raise InputError(
            "Each span needs a sentinel. Expected: a vocabulary with <extra_id_0> and so on, or Vocabulary(…, "
            "sentinel_ids=…). Received: none. kf.zoo.add_tokens(model, …) adds them to a model and its tokenizer"
        )
    if needed > len(sentinels):
        raise InputError(
            f"Each span needs a sentinel, such as <extra_id_0>. Expected: at most {len(sentinels)} spans. "
            f"Received: {needed}. Use shorter texts, a lower rate or a higher mean_length"
        )
    ids = np.where(hidden, np.take([*sentinels, 0], number_of_run), text)
    return np.concatenate([sentinels[:skip], ids[first | ~hidden]]).astype("int32")


def deshuffling(texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator) -> Batch:
    """Deshuffling: the decoder writes the text whose tokens the encoder reads in a random order.

    Args:
        texts: Token ids without special tokens.
        vocabulary: The vocabulary.
        rng: Random number generator.

    Returns:
        The arrays of `teacher_forcing`.

    Reference: Liu et al. 2019, "SummAE", arXiv:1910.00998; Raffel et al. 2020, arXiv:1910.10683, section 3.3.1.
    """
    rows = as_texts(texts, vocabulary)
    return teacher_forcing([rng.permutation(row) for row in rows], rows, vocabulary)


def denoising(
    documents: Documents, vocabulary: Vocabulary, rng: np.random.Generator, noises: Sequence[Noise] | None = None
) -> Batch:
    """Denoising: the decoder writes the original of a document that was damaged in one or several ways (BART).

    Args:
        documents: Sentences of each document as token ids without special tokens.
        vocabulary: The vocabulary.
        rng: Random number generator.
        noises: Functions that damage a document, one after the other: `permute_sentences`, `infill`, `delete_tokens`,
            `rotate` or your own; by default the first two, as for the published models.

    Returns:
        The arrays of `teacher_forcing`.

    Raises:
        InputError: a document without tokens, or a vocabulary without mask token for `infill`.

    Reference: Lewis et al. 2020, arXiv:1910.13461, sections 2.2 and 5.
    """
    texts = as_documents(documents, vocabulary)
    damaged = []
    for sentences in texts:
        for noise in (permute_sentences, infill) if noises is None else noises:
            sentences = noise(sentences, vocabulary, rng)
        damaged.append(np.concatenate(sentences))
    return teacher_forcing(damaged, [np.concatenate(sentences) for sentences in texts], vocabulary)


def text_infilling(
    documents: Documents,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    rate: float = 0.3,
    mean_length: float = 3.0,
) -> Batch:
    """Text infilling: each span, which may be empty, is replaced by a single mask token. See `denoising` and `infill`.

    Arguments are those of both, and the result is that of `denoising`.
    """
    return denoising(documents, vocabulary, rng, [partial(infill, rate=rate, mean_length=mean_length)])


def sentence_permutation(documents: Documents, vocabulary: Vocabulary, rng: np.random.Generator) -> Batch:
    """Sentence permutation: the sentences are in a random order. Arguments and result are those of `denoising`."""
    return denoising(documents, vocabulary, rng, [permute_sentences])


def token_deletion(documents: Documents, vocabulary: Vocabulary, rng: np.random.Generator, rate: float = 0.15) -> Batch:
    """Token deletion: random tokens are missing, and the model finds out where. See `denoising` and `delete_tokens`."""
    return denoising(documents, vocabulary, rng, [partial(delete_tokens, rate=rate)])


def document_rotation(documents: Documents, vocabulary: Vocabulary, rng: np.random.Generator) -> Batch:
    """Document rotation: the document starts at a random token, and its start follows its end. See `denoising`."""
    return denoising(documents, vocabulary, rng, [rotate])


def permute_sentences(
    sentences: list[np.ndarray], vocabulary: Vocabulary, rng: np.random.Generator
) -> list[np.ndarray]:
    """Returns the sentences in a random order."""
    return [sentences[index] for index in rng.permutation(len(sentences))]


def infill(
    sentences: list[np.ndarray],
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    rate: float = 0.3,
    mean_length: float = 3.0,
) -> list[np.ndarray]:
    """Replaces spans by a mask token each, as one text.

    Args:
        sentences: Token ids of each sentence.
        vocabulary: A vocabulary with a mask token.
        rng: Random number generator.
        rate: Share of the tokens in spans.
        mean_length: Mean of the Poisson distribution of the lengths; a span of length 0 inserts a mask token.

    Raises:
        InputError: no mask token.
    """
    text, mask = np.concatenate(sentences), vocabulary.required("mask_id", "Text infilling")
    check("rate", rate, number(0, 1))
    check("mean_length", mean_length, number(above=0))
    hidden = round(rate * len(text))
    lengths, total = list[int](), 0
    while total < hidden:
        lengths.append(int(rng.poisson(mean_length)))
        total += lengths[-1]
    # Spans lie in different gaps between the tokens that stay, so that no two of them touch. The longest one makes the
    # number of tokens exact.
    kept = len(text) - hidden
    lengths = sorted(lengths, reverse=True)[: kept + 1]
    lengths[:1] = [lengths[0] + hidden - sum(lengths)] if lengths else []
    gaps = np.sort(rng.choice(kept + 1, len(lengths), replace=False))
    parts, position = [], 0
    for gap, length in zip(np.diff(gaps, prepend=0), rng.permutation(lengths), strict=True):
        parts += [text[position : position + gap], [mask]]
        position += int(gap + length)
    return [np.concatenate([*parts, text[position:]]).astype("int32")]


def delete_tokens(
    sentences: list[np.ndarray], vocabulary: Vocabulary, rng: np.random.Generator, rate: float = 0.15
) -> list[np.ndarray]:
    """Removes a share `rate` of the tokens, at least one and never all, as one text."""
    text = np.concatenate(sentences)
    check("rate", rate, number(0, 1))
    count = min(max(1, round(rate * len(text))), len(text) - 1)
    return [np.delete(text, rng.choice(len(text), count, replace=False))]


def rotate(sentences: list[np.ndarray], vocabulary: Vocabulary, rng: np.random.Generator) -> list[np.ndarray]:
    """Moves the tokens before a random one to the end, as one text."""
    text = np.concatenate(sentences)
    return [np.roll(text, -int(rng.integers(len(text))))]


def gap_sentences(
    documents: Documents,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    rate: float = 0.3,
    select: Literal["independent", "sequential", "lead", "random"] = "independent",
    unique: bool = False,
) -> Batch:
    """Gap sentences: the decoder writes the sentences that mask tokens replace, those most like a summary (PEGASUS).

    Args:
        documents: Sentences of each document as token ids without special tokens, at least two of each.
        vocabulary: A vocabulary with a mask token.
        rng: Random number generator.
        rate: Share of the sentences that are replaced, at least one and never all.
        select: Which ones: those with the highest ROUGE-1 F1 against the rest of the document, each scored by itself
            (`"independent"`, Ind in the paper), or chosen one after the other for the score of all chosen ones together
            (`"sequential"`, Seq); the first ones (`"lead"`) or random ones (`"random"`).
        unique: Whether a token that occurs several times counts once (Uniq); otherwise each time (Orig).

    Returns:
        The arrays of `teacher_forcing`; the target is the chosen sentences in their order.

    Raises:
        InputError: a document with fewer than two sentences, or a vocabulary without mask token.

    Reference: Zhang et al. 2020, arXiv:1912.08777, section 3.1.
    """
    check("rate", rate, number(0, 1))
    check("select", select, one_of("independent", "sequential", "lead", "random"))
    name = "mask_id" if vocabulary.sentence_mask_id is None else "sentence_mask_id"
    mask = np.array([vocabulary.required(name, "Replacing a sentence")], "int32")
    sources, targets = [], []
    for sentences in as_documents(documents, vocabulary):
        if len(sentences) < 2:
            raise InputError("Gap sentences need a rest. Expected: at least 2 sentences of each document. Received: 1")
        count = min(max(1, round(rate * len(sentences))), len(sentences) - 1)
        if select in ("independent", "sequential"):
            chosen = principal_sentences(sentences, count, select == "sequential", unique)
        else:
            chosen = np.arange(count) if select == "lead" else rng.choice(len(sentences), count, replace=False)
        gaps = np.isin(np.arange(len(sentences)), chosen)
        sources.append(np.concatenate([mask if gap else text for text, gap in zip(sentences, gaps, strict=True)]))
        targets.append(np.concatenate([text for text, gap in zip(sentences, gaps, strict=True) if gap]))
    return teacher_forcing(sources, targets, vocabulary)


def principal_sentences(
    sentences: Sequence[np.ndarray], count: int, sequential: bool = False, unique: bool = False
) -> np.ndarray:
    """Returns the indices of the sentences with the highest ROUGE-1 F1 against the rest of the document, in order.

    Args:
        sentences: Token ids of each sentence.
        count: Number of sentences.
        sequential: Whether each is chosen for the score of all chosen ones together, as in `gap_sentences`.
        unique: Whether repeated tokens count once.
    """
    counts = [Counter(sentence.tolist()) for sentence in sentences]

    def score(chosen: Sequence[int]) -> float:
        summary, rest = Counter[int](), Counter[int]()
        for index, tokens in enumerate(counts):
            (summary if index in chosen else rest).update(tokens)
        return rouge_1(Counter(set(summary)), Counter(set(rest))) if unique else rouge_1(summary, rest)

    if not sequential:
        scores = np.array([score([index]) for index in range(len(sentences))])
        return np.sort(np.argsort(-scores, stable=True)[:count])
    chosen: list[int] = []
    for _ in range(count):
        left = [index for index in range(len(sentences)) if index not in chosen]
        chosen.append(max(left, key=lambda index: score([*chosen, index])))
    return np.sort(chosen)


def rouge_1(candidate: Counter[int], reference: Counter[int]) -> float:
    """Returns the F1 of the tokens that two texts share, counted with repetitions (Lin 2004, "ROUGE", section 2)."""
    shared, total = (candidate & reference).total(), candidate.total() + reference.total()
    return 2 * shared / total if total else 0.0
