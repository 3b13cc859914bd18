"""Classes of words, such as names of persons and places, with their offsets in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.arguments import STRING, check, one_of, sequence
from kerasformer.pipelines.base import Pipeline, Reading, softmax
from kerasformer.pipelines.chunks import best_places, rows_of
from kerasformer.pipelines.inputs import answered, read_inputs, read_text
from kerasformer.tokenization import Encoding

_STRATEGIES = ("none", "simple", "first", "average", "max")


@dataclass(frozen=True)
class _Piece:
    """A token, or the tokens of a word, with its scores `(C,)`."""

    scores: np.ndarray
    start: int
    end: int
    index: int
    word: int

    @property
    def label(self) -> int:
        return int(self.scores.argmax())


class TokenClassificationPipeline(Pipeline):
    """Entities of a text: each token by itself, or words and spans grouped."""

    def __call__(
        self,
        inputs: Any,
        *,
        aggregation_strategy: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        batch_size: int = 8,
        truncation: bool = False,
        window: int | None = None,
        stride: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Finds entities.

        Args:
            inputs: A text, a list or an array of texts, or an iterable, read as its results are.
            aggregation_strategy: `"none"` gives tokens; `"simple"` groups neighbouring tokens of a class; `"first"`,
                `"average"` and `"max"` first decide the class of each whole word, by its first token, by the mean of
                its tokens' scores, or by its surest token.
            ignore_labels: Classes that are left out.
            batch_size: Texts, or windows of a long text, that go through the model at once.
            truncation: Reads the beginning alone of a text that is longer than the model, with a warning. Otherwise
                it is read in windows, and each token is classified in the one that shows most around it.
            window: Tokens of a window, special tokens included; the model's length by default.
            stride: Tokens that neighbouring windows share; a quarter of a window by default.
            progress: Shows a bar on standard error.

        Returns:
            For a text a list of `{"entity", "score", "index", "word", "start", "end"}`, or when grouped of
            `{"entity_group", "score", "word", "start", "end"}`; offsets are characters. For a list, a list
            each; for an iterable, an iterator.

        Raises:
            InputError: no text, or an unknown strategy.
        """
        strategy = check("aggregation_strategy", aggregation_strategy, one_of(*_STRATEGIES))
        ignored = set(check("ignore_labels", ignore_labels, sequence(STRING)))
        given, reading = read_inputs(inputs, read_text), Reading(truncation, window, stride)

        def answer(part: Sequence[str]) -> list[list[dict[str, Any]]]:
            encoded = self._encode(part, reading)
            scores = softmax(self._run(encoded, batch_size)["logits"])
            found = zip(part, rows_of(encoded), strict=True)
            return [self._entities(text, _pieces(encoded, scores, rows), strategy, ignored) for text, rows in found]

        return answered(given, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _entities(self, text: str, pieces: list[_Piece], strategy: str, ignored: set[str]) -> list[dict[str, Any]]:
        labels = self.info.labels
        if strategy == "none":
            return [
                {
                    "entity": labels[piece.label],
                    "score": float(piece.scores.max()),
                    "index": piece.index,
                    "word": text[piece.start : piece.end],
                    "start": piece.start,
                    "end": piece.end,
                }
                for piece in pieces
                if labels[piece.label] not in ignored
            ]
        if strategy != "simple":
            pieces = [_word(tokens, strategy) for tokens in _words(pieces)]
        entities = []
        for group in self._groups(pieces):
            label = _without_prefix(labels[group[0].label])[1]
            if label in ignored:
                continue
            score = float(np.mean([piece.scores.max() for piece in group]))
            start, end = group[0].start, group[-1].end
            entities.append(
                {"entity_group": label, "score": score, "word": text[start:end], "start": start, "end": end}
            )
        return entities

    def _groups(self, pieces: list[_Piece]) -> Iterator[list[_Piece]]:
        """Neighbours of one class; a `B-` begins a new entity."""
        group: list[_Piece] = []
        for piece in pieces:
            prefix, label = _without_prefix(self.info.labels[piece.label])
            if group and (prefix == "B" or label != _without_prefix(self.info.labels[group[-1].label])[1]):
                yield group
                group = []
            group.append(piece)
        if group:
            yield group


def _pieces(encoded: Encoding, scores: np.ndarray, rows: np.ndarray) -> list[_Piece]:
    """The tokens of a text, without special ones, each with its scores."""
    pieces = []
    for place in zip(*best_places(encoded, rows), strict=True):
        if encoded.special_tokens_mask[place] == 0:
            start, end = map(int, encoded.offsets[place])
            index, word = int(encoded.positions[place]), int(encoded.word_ids[place])
            pieces.append(_Piece(scores[place], start, end, index, word))
    return pieces


def _without_prefix(label: str) -> tuple[str, str]:
    """`("B", "PER")` of `"B-PER"`; other labels stand for their own inside."""
    return (label[0], label[2:]) if label[:2] in ("B-", "I-") else ("I", label)


def _words(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    word: list[_Piece] = []
    for piece in pieces:
        if word and piece.word != word[-1].word:
            yield word
            word = []
        word.append(piece)
    if word:
        yield word


def _word(tokens: list[_Piece], strategy: str) -> _Piece:
    """One piece of a word's tokens."""
    if strategy == "first":
        scores = tokens[0].scores
    elif strategy == "max":
        scores = max(tokens, key=lambda token: token.scores.max()).scores
    else:
        scores = np.mean([token.scores for token in tokens], axis=0)
    return _Piece(scores, tokens[0].start, tokens[-1].end, tokens[0].index, tokens[0].word)
