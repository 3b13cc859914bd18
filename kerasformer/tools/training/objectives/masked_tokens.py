"""Masked language modelling: of tokens, whole words, n-grams, spans, and of translated pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kerasformer.basics.arguments import check, integer, number, one_of
from kerasformer.errors import InputError
from kerasformer.tools.training.objectives.batches import IGNORED, Batch, Text, Texts, as_texts, padded, text_batch
from kerasformer.tools.training.objectives.vocabulary import Vocabulary

Unit = Literal["token", "word", "ngram", "span"]
Spans = Sequence[tuple[int, int]]
"""First slot of each span, and the slot after its last token."""


@dataclass(frozen=True)
class Masking:
    """Which tokens of a text are predicted, and what stands in their place.

    Attributes:
        rate: Share of the tokens that are predicted; at least one of each text.
        unit: What is chosen at random: `"token"` (BERT), `"word"` for all tokens of a word (whole word masking),
            `"ngram"` for up to `max_length` words, of which n have the probability `(1/n) / (1/1 + 1/2 + …)` (ALBERT),
            or `"span"` for a number of words from a geometric distribution up to `max_length` (SpanBERT). Spans do not
            touch each other, and the tokens of a span are replaced in the same way.
        masked: Probability that a chosen token becomes the mask token.
        random: Probability that it becomes a random token; otherwise it stays.
        max_length: Maximum number of words of an n-gram (3 by default) or a span (10 by default).
        stop: Probability of the geometric distribution that a span ends after a word.

    Raises:
        InputError: a value outside of its range.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3.1; Lan et al. 2020, arXiv:1909.11942, section 4.1;
    Joshi et al. 2020, arXiv:1907.10529, section 3.1.
    """

    rate: float = 0.15
    unit: Unit = "token"
    masked: float = 0.8
    random: float = 0.1
    max_length: int | None = None
    stop: float = 0.2

    def __post_init__(self) -> None:
        """Checks the values."""
        check("unit", self.unit, one_of("token", "word", "ngram", "span"))
        check("rate", self.rate, number(0, 1))
        check("masked", self.masked, number(0, 1))
        check("random", self.random, number(0, 1))
        if self.masked + self.random > 1:
            raise InputError(
                "masked and random are probabilities of different outcomes. Expected: a sum of at most 1. "
                f"Received: masked={self.masked}, random={self.random}"
            )
        check("max_length", self.longest, integer(1))
        check("stop", self.stop, number(0, 1))

    @property
    def longest(self) -> int:
        """Maximum number of words that are chosen together."""
        default = {"token": 1, "word": 1, "ngram": 3, "span": 10}[self.unit]
        return default if self.max_length is None else self.max_length

    @property
    def lengths(self) -> np.ndarray:
        """Probability of each number of words from 1 to `longest`."""
        counts = np.arange(1, self.longest + 1)
        weights = (1 - self.stop) ** (counts - 1.0) if self.unit == "span" else 1 / counts
        return weights / weights.sum()


BERT = Masking()
SPANBERT = Masking(unit="span")
ELECTRA = Masking(masked=1.0, random=0.0)


def masked(texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator, masking: Masking = BERT) -> Batch:
    """Masked language modelling: the original of each chosen token.

    Args:
        texts: Token ids without special tokens.
        vocabulary: The vocabulary.
        rng: Random number generator.
        masking: Which tokens are chosen, and what replaces them.

    Returns:
        `input_ids`, `attention_mask`, `token_type_ids` if the model reads them, and `labels`, `(B, T)`.

    Raises:
        InputError: a text without tokens, a vocabulary without mask token, or no mark where words start.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3.1.
    """
    rows = [vocabulary.framed(text)[0] for text in as_texts(texts, vocabulary)]
    return mask(rows, vocabulary, rng, masking)


def mask(
    rows: Sequence[np.ndarray],
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    masking: Masking,
    segments: Sequence[np.ndarray] = (),
) -> Batch:
    """Masks rows that have their special tokens; arguments and result are those of `masked` and `text_batch`."""
    changed, labels = [], []
    for row in rows:
        spans = choose(row, vocabulary, rng, masking)
        changed.append(replaced(row, spans, vocabulary, rng, masking))
        labels.append(labels_of(row, spans))
    return {**text_batch(changed, vocabulary, segments), "labels": padded(labels, IGNORED)}


def span_boundary(texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator, masking: Masking = SPANBERT) -> Batch:
    """Masked spans, whose tokens are also predicted from the two tokens at the boundary of the span (SpanBERT).

    Args:
        texts: Token ids without special tokens.
        vocabulary: The vocabulary, whose special tokens stand before and after a text.
        rng: Random number generator.
        masking: Which spans are chosen, and what replaces them.

    Returns:
        The inputs of `masked`; for each token of a span the slots of the tokens before and after the span, `span_left`
        and `span_right`, and its index in the span, `span_index`; `(B, T)`, 0 for other tokens. `labels` has the same
        array for both outputs of `SpanBoundary`, `prediction_logits` and `boundary_logits`.

    Raises:
        InputError: see `masked`; or the special tokens do not enclose a text.

    Reference: Joshi et al. 2020, arXiv:1907.10529, section 3.2.
    """
    if not all(vocabulary.single):
        raise InputError(
            "A span at the edge of a text is predicted from a special token beside it. Expected: special tokens before "
            f"and after a text. Received: single={vocabulary.single}"
        )
    names = "span_left", "span_right", "span_index"
    rows = [vocabulary.framed(text)[0] for text in as_texts(texts, vocabulary)]
    changed, labels, boundaries = [], [], []
    for row in rows:
        spans = choose(row, vocabulary, rng, masking)
        changed.append(replaced(row, spans, vocabulary, rng, masking))
        labels.append(labels_of(row, spans))
        arrays = np.zeros((3, len(row)), "int32")
        for start, end in spans:
            arrays[:2, start:end] = [[start - 1], [end]]
            arrays[2, start:end] = np.arange(end - start)
        boundaries.append(arrays)
    further = {name: padded([arrays[index] for arrays in boundaries], 0) for index, name in enumerate(names)}
    target = padded(labels, IGNORED)
    outputs = {"prediction_logits": target, "boundary_logits": target}
    return {**text_batch(changed, vocabulary), **further, "labels": outputs}


def replaced_tokens(
    texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator, masking: Masking = ELECTRA
) -> Batch:
    """Masked tokens for the generator of a `ReplacedTokens`, whose discriminator finds the tokens that it replaced.

    Args:
        texts: Token ids without special tokens.
        vocabulary: The vocabulary.
        rng: Random number generator.
        masking: Which tokens are chosen; all of them are masked in the paper.

    Returns:
        The arrays of `masked`, and `original_ids` `(B, T)`.

    Raises:
        InputError: see `masked`.

    Reference: Clark et al. 2020, arXiv:2003.10555, section 2.
    """
    batch = masked(texts, vocabulary, rng, masking)
    ids, labels = batch["input_ids"], batch["labels"]
    return {**batch, "original_ids": np.asarray(np.where(labels == IGNORED, ids, labels), "int32")}


def translation_lm(
    pairs: Sequence[tuple[Text, Text]],
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    languages: tuple[int, int] = (0, 1),
    masking: Masking = BERT,
) -> Batch:
    """Translation language modelling: masked tokens of a text and its translation, which help each other (XLM).

    Each text has its own special tokens, and the positions of the second one start at 0 again.

    Args:
        pairs: Token ids of a text and its translation without special tokens.
        vocabulary: The vocabulary.
        rng: Random number generator.
        languages: Ids of the languages of both texts.
        masking: Which tokens are chosen, and what replaces them.

    Returns:
        `input_ids`, `attention_mask`, `langs`, `position_ids` and `labels`, `(B, T)`.

    Raises:
        InputError: see `masked`.

    Reference: Lample and Conneau 2019, arXiv:1901.07291, section 3.3.
    """
    sides = zip(*pairs, strict=True) if len(pairs) else ((), ())
    framed = [[vocabulary.framed(text)[0] for text in as_texts(side, vocabulary)] for side in sides]
    both = list(zip(*framed, strict=True))
    batch = mask([np.concatenate(pair) for pair in both], vocabulary, rng, masking)
    batch["langs"] = padded([np.repeat(languages, list(map(len, pair))) for pair in both], languages[1])
    batch["position_ids"] = padded([np.concatenate([np.arange(len(row)) for row in pair]) for pair in both], 0)
    return batch


def choose(
    row: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator, masking: Masking
) -> list[tuple[int, int]]:
    """Chooses the tokens of a row that are predicted: the first slot of each unit, and the one after its last."""
    maskable = ~np.isin(row, vocabulary.special_ids)
    starts, ends = _words(row, maskable, vocabulary, whole=masking.unit != "token")
    remaining = max(1, round(masking.rate * int(maskable.sum()))) if masking.rate else 0
    apart = int(masking.unit == "span")
    taken = np.zeros(len(row) + 1, bool)
    spans: list[tuple[int, int]] = []
    for first in rng.permutation(len(starts)):
        if not remaining:
            break
        last = first + int(rng.choice(masking.longest, p=masking.lengths)) if masking.longest > 1 else first
        last = min(last, len(starts) - 1)
        # Shortened to what remains, and to words that follow each other without a special token.
        while last > first and (
            ends[last] - starts[first] > remaining or (ends[first:last] != starts[first + 1 : last + 1]).any()
        ):
            last -= 1
        start, end = int(starts[first]), int(ends[last])
        if end - start <= remaining and not taken[max(start - apart, 0) : end + apart].any():
            taken[start:end] = True
            remaining -= end - start
            spans.append((start, end))
    return sorted(spans)


def _words(row: np.ndarray, maskable: np.ndarray, vocabulary: Vocabulary, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first slot of each word, and the slot after its last token; with `whole=False`, of each token."""
    after_special = np.concatenate([[True], ~maskable[:-1]])
    starts = maskable & (after_special | vocabulary.starts_word(row)) if whole else maskable
    first = np.flatnonzero(starts)
    borders = np.append(np.flatnonzero(starts | ~maskable), len(row))
    return first, borders[np.searchsorted(borders, first, side="right")]


def replaced(
    row: np.ndarray,
    spans: Spans,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    masking: Masking,
) -> np.ndarray:
    """Returns a row with other tokens in place of those that are predicted."""
    row, together = row.copy(), masking.unit == "span"
    for start, end in spans:
        chance = np.full(end - start, rng.random()) if together else rng.random(end - start)
        kept = row[start:end]
        drawn = rng.choice(vocabulary.ordinary_ids, end - start) if masking.random else kept
        others = np.where(chance < masking.masked + masking.random, drawn, kept)
        if masking.masked:
            others = np.where(chance < masking.masked, vocabulary.required("mask_id", "Masking"), others)
        row[start:end] = others
    return row


def labels_of(row: np.ndarray, spans: Spans) -> np.ndarray:
    """Returns the original tokens in the spans, and `IGNORED` elsewhere."""
    labels = np.full_like(row, IGNORED)
    for start, end in spans:
        labels[start:end] = row[start:end]
    return labels
