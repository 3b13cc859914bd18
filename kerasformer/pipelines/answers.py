"""Keys of the answers of pipelines, those of `transformers`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Label(TypedDict):
    """A class of a text."""

    label: str
    score: float


class Ranking(TypedDict):
    """A text with classes in the order of their scores."""

    sequence: str
    labels: list[str]
    scores: list[float]


class Entity(TypedDict):
    """An entity, or a token with its class (`entity` and `index`); `start` and `end` are positions in the text."""

    entity_group: NotRequired[str]
    entity: NotRequired[str]
    index: NotRequired[int]
    score: float
    word: str
    start: int
    end: int


class Answer(TypedDict):
    """An answer to a question: a part of the context, at the positions `start` to `end`."""

    score: float
    start: int
    end: int
    answer: str


class Filling(TypedDict):
    """A token for a masked one, and the whole text with it."""

    score: float
    token: int
    token_str: str
    sequence: str


class FilledText(TypedDict):
    """A text whose mask tokens were filled together.

    `score` is the geometric mean of the probabilities of the tokens, and `steps` has the text after each iteration.
    """

    sequence: str
    score: float
    tokens: list[int]
    steps: list[str]


class Hit(TypedDict):
    """A text that was found for a query, and its index in the corpus."""

    corpus_id: int
    score: float
    text: NotRequired[str]
