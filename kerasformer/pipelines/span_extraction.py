"""Extraction of entities whose types are named in the call, with a model of GLiNER."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, STRING, check, number, sequence
from kerasformer.bundle import LABEL_SLOTS, SPAN_LOGITS, WORD_SLOTS, SpanInfo
from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines.answers import Entity
from kerasformer.pipelines.base import Pipeline, sigmoid
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.fitting import check_known
from kerasformer.tokenization.span_prompts import Word, first_word, prompted, slots_of, words_of
from kerasformer.tokenization.truncation import TruncationWarning


class SpanExtractionPipeline(Pipeline):
    """Finds entities of any types in texts, by the names of the types.

    Raises:
        InputError: the tokenizer lacks the tokens that mark the names of types.

    Reference: Zaratiana et al. 2023, arXiv:2311.08526, and the package `gliner`.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        if self.info.spans is None:
            raise InputError(f"{self.task} needs a model of GLiNER. Received: {self.info.name}")
        self._spans: SpanInfo = self.info.spans
        marks = self._spans.label_token, self._spans.separator
        if missing := [mark for mark in marks if self.tokenizer.token_to_id(mark) is None]:
            raise InputError(
                f"The tokenizer must have the tokens {' and '.join(marks)}, between which the model reads the names of "
                f"types. Received: one without {' and '.join(missing)}. Is this the tokenizer of this model?"
            )

    def __call__(
        self,
        inputs: object,
        labels: str | Sequence[str],
        *,
        threshold: float = 0.5,
        flat_ner: bool = True,
        multi_label: bool = False,
        batch_size: int = 8,
        truncation: bool = False,
        progress: bool = False,
    ) -> Any:
        """Finds entities.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            labels: Names of the types in plain words, as a list or separated by commas, such as `"person, city"`. The
                model reads all of them before each text, so that scores depend on the others.
            threshold: Lowest probability of an entity, from 0 to 1; it must be exceeded.
            flat_ner: Whether entities do not overlap: of those that do, the most probable one is returned. Otherwise an
                entity may lie within another one.
            multi_label: Whether one span may be of several types.
            batch_size: Number of texts in one call of the model.
            truncation: Whether to omit the last words of a text that is too long, with a warning.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text, a list of `{"entity_group", "score", "word", "start", "end"}` in the order of the text, where
            `start` and `end` are character offsets; for a list of texts, a list of such lists; for another iterable, an
            iterator. A text without words has no entities.

        Raises:
            CapacityError: a text is too long, there are more types than the model can read, or their names leave no
                space for a text.
            InputError: no names, equal ones, or one with the name of a token that marks names.
        """
        names = self._labels(labels)
        least = check("threshold", threshold, number(0.0, 1.0))
        flat, several = check("flat_ner", flat_ner, BOOLEAN), check("multi_label", multi_label, BOOLEAN)
        truncates = check("truncation", truncation, BOOLEAN)
        checked = read_inputs(inputs, read_text)

        def answer(part: Sequence[str]) -> list[list[Entity]]:
            words = [words_of(self.tokenizer, text) for text in part]
            used = [index for index, row in enumerate(words) if row]
            results: list[list[Entity]] = [[] for _ in part]
            if not used:
                return results
            kept, encoded = self._read(names, [words[index] for index in used], truncates)
            slots = slots_of(encoded, len(names), [len(row) for row in kept])
            further = dict(zip((WORD_SLOTS, LABEL_SLOTS), slots, strict=True))
            logits = self._run(encoded, batch_size, further=further)[SPAN_LOGITS]
            for index, row, scores in zip(used, kept, sigmoid(logits), strict=True):
                found = _best(_candidates(scores, len(row), least), flat, several)
                results[index] = [_entity(part[index], row, names, *span) for span in found]
            return results

        return map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _labels(self, value: object) -> tuple[str, ...]:
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
        labels = tuple(check("labels", names, sequence(STRING)))
        marks, limit = (self._spans.label_token, self._spans.separator), self._spans.max_labels
        if not labels or not all(label.strip() for label in labels):
            raise InputError(
                f"labels must be names of types, such as ['person', 'city'], none of them empty. Received: {value!r}"
            )
        if double := sorted({label for label in labels if labels.count(label) > 1}):
            raise InputError(f"labels must differ. Received several times: {', '.join(map(repr, double))}")
        if marked := [label for label in labels if any(mark in label for mark in marks)]:
            raise InputError(f"labels must not contain {' or '.join(marks)}. Received: {marked[0]!r}")
        if limit is not None and len(labels) > limit:
            raise CapacityError(
                f"The bundle reads at most {limit} labels in one call. Received: {len(labels)}. Call it several times, "
                "or export the model with a larger num_labels"
            )
        return labels

    def _read(
        self, labels: Sequence[str], texts: Sequence[list[Word]], truncates: bool
    ) -> tuple[list[list[Word]], Encoding]:
        """Returns the words of each text that are read, and the tokens of the labels and these words.

        Raises:
            CapacityError: as for a call.
        """
        encoded = self._encoded(labels, texts)
        counts = [min(count, len(row)) for count, row in zip(self._fitting(labels, encoded), texts, strict=True)]
        kept = [row[:count] for count, row in zip(counts, texts, strict=True)]
        if kept == list(texts):
            return kept, encoded
        longest = max(range(len(texts)), key=lambda index: len(texts[index]) - counts[index])
        problem = f"{len(texts[longest])} words, of which {counts[longest]} can be read with these labels"
        if not truncates:
            raise CapacityError(
                f"A text is too long. Expected: at most {self._spans.max_words} words and, with the labels, "
                f"{self.info.max_length or 'any number of'} tokens. Received: {problem}. Split the text, or pass "
                "truncation=True to omit its last words"
            )
        warnings.warn(f"A text was truncated. Received: {problem}", TruncationWarning, stacklevel=2)
        return kept, self._encoded(labels, kept)

    def _encoded(self, labels: Sequence[str], texts: Sequence[list[Word]]) -> Encoding:
        encoded = prompted(self.tokenizer, self._spans.label_token, self._spans.separator, labels, texts)
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        return encoded

    def _fitting(self, labels: Sequence[str], encoded: Encoding) -> list[int]:
        """Returns the number of words of each text that the model can read.

        Raises:
            CapacityError: there is none, because of the labels.
        """
        limit, counts = self.info.max_length, []
        for word_ids, mask in zip(encoded.word_ids, encoded.attention_mask, strict=True):
            last = int(np.flatnonzero(word_ids >= 0)[-1])
            after = int(mask.sum()) - 1 - last  # special tokens
            space = last + 1 if limit is None else limit - after
            # A word counts if all of its tokens fit.
            cut = word_ids[space] if space <= last else word_ids[last] + 1
            counts.append(min(int(cut) - first_word(len(labels)), self._spans.max_words))
        if min(counts) < 1:
            needed = int(np.sum((encoded.word_ids[0] >= 0) & (encoded.word_ids[0] < first_word(len(labels)))))
            raise CapacityError(
                f"The labels leave no space for a text. Expected: fewer than {limit} tokens with special tokens. "
                f"Received: {needed} tokens of {len(labels)} labels. Pass fewer labels, or shorter ones"
            )
        return counts


def _candidates(scores: np.ndarray, count: int, threshold: float) -> list[tuple[int, int, int, float]]:
    """Returns first word, last word, label and probability of the spans of a text, the most probable first.

    Args:
        scores: Probabilities `(W, K, C)`.
        count: Number of words of the text.
        threshold: Probability that they exceed.
    """
    starts, widths, labels = np.nonzero(scores > threshold)
    within = starts + widths < count
    starts, widths, labels = starts[within], widths[within], labels[within]
    values = scores[starts, widths, labels]
    order = np.argsort(-values, kind="stable")
    columns = (starts, starts + widths, labels, values)
    return list(zip(*(column[order].tolist() for column in columns), strict=True))


def _best(spans: Iterable[tuple[int, int, int, float]], flat: bool, several: bool) -> list[tuple[int, int, int, float]]:
    """Returns the spans that do not conflict with a more probable one, in the order of the text.

    Args:
        spans: First word, last word, label and probability, the most probable first.
        flat: Whether spans that overlap conflict even if one of them lies within the other.
        several: Whether a span may have several labels.
    """
    chosen: list[tuple[int, int, int, float]] = []
    known: set[tuple[int, int]] = set()
    starts, ends = np.zeros(0, int), np.zeros(0, int)
    for span in spans:
        start, end = span[:2]
        if (start, end) in known:
            if several:
                chosen.append(span)
            continue
        overlaps = (starts <= end) & (start <= ends)
        if not flat:
            within = ((starts <= start) & (end <= ends)) | ((start <= starts) & (ends <= end))
            overlaps &= ~within
        if not overlaps.any():
            known.add((start, end))
            starts, ends = np.append(starts, start), np.append(ends, end)
            chosen.append(span)
    return sorted(chosen, key=lambda span: span[0])


def _entity(
    text: str, words: Sequence[Word], labels: Sequence[str], first: int, last: int, label: int, score: float
) -> Entity:
    start, end = words[first].start, words[last].end
    return {"entity_group": labels[label], "score": score, "word": text[start:end], "start": start, "end": end}
