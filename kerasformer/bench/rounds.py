"""The measuring loop: all subjects run in turns, so that other load on the machine affects them equally."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kerasformer.bench.question import Question
from kerasformer.bench.worker import Sample
from kerasformer.progress import StageProgress

PAUSE = 0.1
"""Seconds between two subjects, so that spinning threads of one do not slow down the next."""


class Answering(Protocol):
    """The part of `Worker` that the measuring loop uses."""

    def answer(self, question: Question) -> Sample:
        """Runs and measures a batch."""
        ...


@dataclass(frozen=True)
class Workload:
    """Batches that are measured together: a single one, or all texts of a file.

    Attributes:
        title: Title for tables.
        questions: Batches, run one after another.
    """

    title: str
    questions: tuple[Question, ...]


@dataclass
class Answers:
    """Measurements of a subject in a workload.

    Attributes:
        first: First run of each batch, which includes compilation and warm-up.
        rounds: Later runs, by round and batch.
        failure: Reason why the subject cannot run the workload; `None` if it can.
    """

    first: list[Sample]
    rounds: list[list[Sample]] = field(default_factory=list)
    failure: str | None = None


def first_answers(subject: Answering, works: Sequence[Workload]) -> list[Answers]:
    """Runs each batch once."""
    return [Answers([subject.answer(question) for question in work.questions]) for work in works]


def measure(
    subjects: Mapping[str, Answering],
    answers: Mapping[str, Sequence[Answers]],
    works: Sequence[Workload],
    rounds: int,
    progress: StageProgress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Measures all subjects in turns, each in the workloads that it can run.

    Args:
        subjects: Subjects by name.
        answers: Results of `first_answers` by name; the rounds are added to them.
        works: Workloads to run.
        rounds: Number of runs of each batch by each subject.
        progress: Called with the title of the workload and the number of completed rounds.
        pause: Function that waits between two subjects.
    """
    for index, work in enumerate(works):
        for number in range(rounds):
            if progress:
                progress(work.title, number, rounds)
            for name, subject in subjects.items():
                if answers[name][index].failure is not None:
                    continue
                answers[name][index].rounds.append([subject.answer(question) for question in work.questions])
                pause(PAUSE)
