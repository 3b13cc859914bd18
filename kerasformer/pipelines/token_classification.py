"""Classes of words, such as names of persons and places, with their offsets in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.arguments import STRING, check, one_of, sequence
from kerasformer.pipelines._base import Pipeline, batches, listed, softmax

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


class TokenClassification(Pipeline):
    """Entities of a text: each token by itself, or words and spans grouped."""

    def __call__(
        self,
        inputs: str | Sequence[str],
        *,
        aggregation_strategy: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        batch_size: int = 8,
        truncation: bool = False,
    ) -> list[Any]:
        """Finds entities.

        Args:
            inputs: A text or a list.
            aggregation_strategy: `"none"` gives tokens; `"simple"` groups neighbouring tokens of a class; `"first"`,
                `"average"` and `"max"` first decide the class of each whole word, by its first token, by the mean of
                its tokens' scores, or by its surest token.
            ignore_labels: Classes that are left out.
            batch_size: Texts that go through the model at once.
            truncation: Cuts texts that are too long, with a warning, where otherwise there is an error.

        Returns:
            For a text a list of `{"entity", "score", "index", "word", "start", "end"}`, or when grouped of
            `{"entity_group", "score", "word", "start", "end"}`; offsets are characters. For a list, a list each.

        Raises:
            CapacityError: a text is too long.
            InputError: no text, or an unknown strategy.
        """
        strategy = check("aggregation_strategy", aggregation_strategy, one_of(*_STRATEGIES))
        ignored = set(check("ignore_labels", ignore_labels, sequence(STRING)))
        texts, single = listed(inputs)
        results: list[list[dict[str, Any]]] = []
        for part in batches(texts, batch_size):
            encoded = self._encode(part, truncation)
            scores = softmax(self._run(encoded)["logits"])
            for row, text in enumerate(part):
                text_tokens = np.flatnonzero(encoded.special_tokens_mask[row] == 0)
                pieces = [
                    _Piece(scores[row, token], int(start), int(end), int(token), int(encoded.word_ids[row, token]))
                    for token, (start, end) in zip(text_tokens, encoded.offsets[row, text_tokens], strict=True)
                ]
                results.append(self._entities(text, pieces, strategy, ignored))
        return results[0] if single else results

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
