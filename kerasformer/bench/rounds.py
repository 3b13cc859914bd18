"""The measuring loop: every subject answers once in each round; a busy moment of the machine meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kerasformer.bench.question import Question
from kerasformer.bench.worker import Sample
from kerasformer.errors import InputError, argument
from kerasformer.progress import StageProgress

PAUSE = 0.1
"""Seconds between two subjects: threads that still spin would take time from the next one."""


class Answering(Protocol):
    """A `Worker`, as far as the loop knows it."""

    def answer(self, question: Question) -> Sample:
        """One answer."""
        ...


@dataclass(frozen=True)
class Workload:
    """Questions that belong to one figure: one question, or all texts of a file.

    Attributes:
        title: As it stands in tables.
        questions: Asked one after another.
    """

    title: str
    questions: tuple[Question, ...]


@dataclass
class Answers:
    """What one subject has answered to one work.

    Attributes:
        first: The very first answer to each question, which also compiles and warms up.
        rounds: Its answers after that, by round and question.
    """

    first: list[Sample]
    rounds: list[list[Sample]] = field(default_factory=list)


def first_answers(subject: Answering, works: Sequence[Workload]) -> list[Answers]:
    """Asks each question once."""
    return [Answers([subject.answer(question) for question in work.questions]) for work in works]


def measure(
    subjects: Mapping[str, Answering],
    answers: Mapping[str, Sequence[Answers]],
    works: Sequence[Workload],
    rounds: int,
    progress: StageProgress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Asks all subjects in turn.

    Args:
        subjects: By name.
        answers: What `first_answers` gave for each of them; the rounds are added to it.
        works: What to ask.
        rounds: Answers of each subject to each question.
        progress: Is told the work, and how many of its rounds are done.
        pause: Waits between two subjects.

    Raises:
        InputError: less than one round.
    """
    check_rounds(rounds)
    for index, work in enumerate(works):
        for number in range(rounds):
            if progress:
                progress(work.title, number, rounds)
            for name, subject in subjects.items():
                answers[name][index].rounds.append([subject.answer(question) for question in work.questions])
                pause(PAUSE)


def check_rounds(rounds: int) -> None:
    """A number of rounds.

    Raises:
        InputError: below 1.
    """
    if rounds < 1:
        raise InputError(
            f"rounds must be at least 1: without an answer there is no time. Received: {argument('rounds', rounds)}"
        )
