"""Token classification, such as named entity recognition, with offsets in the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import STRING, check, one_of, sequence
from kerasformer.errors import InputError
from kerasformer.pipelines.answers import Entity
from kerasformer.pipelines.base import LengthOptions, Pipeline, softmax
from kerasformer.pipelines.chunks import best_locations, rows_of
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.pipelines.tags import places, tag_of
from kerasformer.tokenization import Encoding

_STRATEGIES = ("none", "simple", "first", "average", "max")


@dataclass(frozen=True)
class _Piece:
    """A token or a word, with its class scores `(C,)`, character offsets, token position and word index."""

    scores: np.ndarray
    start: int
    end: int
    index: int
    word: int

    @property
    def label(self) -> int:
        return int(self.scores.argmax())


class TokenClassificationPipeline(Pipeline):
    """Finds entities in texts, as single tokens or grouped to words and spans."""

    def __call__(
        self,
        inputs: object,
        *,
        aggregation_strategy: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        batch_size: int = 8,
        truncation: bool = False,
        chunk_length: int | None = None,
        stride: int | None = None,
        combine: Literal["tokens", "entities"] = "tokens",
        progress: bool = False,
    ) -> Any:
        """Finds entities.

        Args:
            inputs: A text, a list or an array of texts, or another iterable, which is read lazily.
            aggregation_strategy: `"none"` returns tokens; `"simple"` groups neighbouring tokens of the same class,
                as their labels mark entities (IOB, BIOES, BMES or BILOU);
                `"first"`, `"average"` and `"max"` first determine the class of each word, by its first token, by the
                mean of its tokens' scores, or by its token with the highest score. Words are those of the tokenizer;
                for tokenizers without words (LLaMA 2, Gemma, ByT5), spaces separate them.
            ignore_labels: Classes to omit.
            batch_size: Number of texts, or chunks of long texts, in one call of the model.
            truncation: Whether to truncate a text that exceeds the model's maximum length, with a warning. Otherwise it
                is split into chunks, whose results are combined.
            chunk_length: Length of a chunk in tokens, including special tokens; the model's maximum length by default.
            stride: Overlap of neighbouring chunks in tokens; a quarter of a chunk by default.
            combine: `"tokens"` takes the scores of each token from the chunk with the most context around it, and then
                groups tokens as in a short text. `"entities"` groups the tokens of each chunk by itself; of entities
                that overlap, the longest one is returned or, among equally long ones, the one with the highest score.
                That is the result of `transformers` with `stride`; it needs an aggregation strategy.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text, a list of `{"entity", "score", "index", "word", "start", "end"}` or, with aggregation, of
            `{"entity_group", "score", "word", "start", "end"}`; `start` and `end` are character offsets. For a list of
            texts, a list of such lists; for another iterable, an iterator.

        Raises:
            InputError: the input is not a text, or an argument is unknown or does not fit the others.
        """
        strategy = check("aggregation_strategy", aggregation_strategy, one_of(*_STRATEGIES))
        ignored = set(check("ignore_labels", ignore_labels, sequence(STRING)))
        by_entities = check("combine", combine, one_of("tokens", "entities")) == "entities"
        if by_entities and strategy == "none":
            raise InputError(
                "combine='entities' needs an aggregation strategy other than 'none', which returns "
                f"tokens. Received: aggregation_strategy={strategy!r}"
            )
        checked, options = read_inputs(inputs, read_text), LengthOptions(truncation, chunk_length, stride)

        def answer(part: Sequence[str]) -> list[list[Entity]]:
            encoded = self._encode(part, options)
            scores = softmax(self._run(encoded, batch_size)["logits"])
            results = []
            for text, rows in zip(part, rows_of(encoded), strict=True):
                parts = rows[:, None] if by_entities else [rows]
                entities = [self._entities(text, _pieces(encoded, scores, each), strategy, ignored) for each in parts]
                results.append(entities[0] if len(entities) == 1 else _without_overlaps(chain(*entities)))
            return results

        return map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)

    def _entities(self, text: str, pieces: list[_Piece], strategy: str, ignored: set[str]) -> list[Entity]:
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
        entities: list[Entity] = []
        letters = places(labels)
        for group in self._groups(pieces):
            label = tag_of(labels[group[0].label], letters).kind
            if label in ignored:
                continue
            score = float(np.mean([piece.scores.max() for piece in group]))
            start, end = group[0].start, group[-1].end
            entities.append(
                {"entity_group": label, "score": score, "word": text[start:end], "start": start, "end": end}
            )
        return entities

    def _groups(self, pieces: list[_Piece]) -> Iterator[list[_Piece]]:
        """Groups neighbours of the same entity, see `Tag.continues`."""
        letters = places(self.info.labels)
        tags = [tag_of(self.info.labels[piece.label], letters) for piece in pieces]
        group: list[_Piece] = []
        for index, piece in enumerate(pieces):
            if group and not tags[index].continues(tags[index - 1]):
                yield group
                group = []
            group.append(piece)
        if group:
            yield group


def _pieces(encoded: Encoding, scores: np.ndarray, rows: np.ndarray) -> list[_Piece]:
    """Returns the tokens of a text with their scores, without special tokens."""
    pieces = []
    for location in zip(*best_locations(encoded, rows), strict=True):
        if encoded.special_tokens_mask[location] == 0:
            start, end = map(int, encoded.offsets[location])
            index, word = int(encoded.positions[location]), int(encoded.word_ids[location])
            pieces.append(_Piece(scores[location], start, end, index, word))
    return pieces


def _without_overlaps(entities: Iterable[Entity]) -> list[Entity]:
    """Returns the longest of overlapping entities; of equally long ones, that with the highest score."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda entity: entity["start"]):
        if not kept or entity["start"] >= kept[-1]["end"]:
            kept.append(entity)
        elif _rank(entity) > _rank(kept[-1]):
            kept[-1] = entity
    return kept


def _rank(entity: Entity) -> tuple[int, float]:
    return entity["end"] - entity["start"], entity["score"]


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
    if strategy == "first":
        scores = tokens[0].scores
    elif strategy == "max":
        scores = max(tokens, key=lambda token: token.scores.max()).scores
    else:
        scores = np.mean([token.scores for token in tokens], axis=0)
    return _Piece(scores, tokens[0].start, tokens[-1].end, tokens[0].index, tokens[0].word)
