"""The measuring loop: all candidates run in turns, so that other load on the machine affects them equally."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TypeVar

from kerasformer.basics.progress import StageProgress
from kerasformer.errors import KerasformerError
from kerasformer.tools.bench.question import Facts, Workload
from kerasformer.tools.bench.speed_figures import Answers, SubjectFigures, subject_figures
from kerasformer.tools.bench.worker import Sample, Worker

PAUSE = 0.1
"""Seconds between two candidates, so that spinning threads of one do not slow down the next."""

Result = TypeVar("Result")


def in_turns(
    candidates: Mapping[str, Callable[[], Result]], rounds: int, stage: str = "", progress: StageProgress | None = None
) -> dict[str, list[Result]]:
    """Calls each candidate once in every round; returns the results of each.

    Every second round goes backwards, because the first call of a round may be slower.

    Args:
        candidates: Functions by name, such as an answer that is timed.
        rounds: Number of rounds.
        stage: What is measured.
        progress: Called with it and the number of completed rounds.
    """
    results: dict[str, list[Result]] = {name: [] for name in candidates}
    for number in range(rounds):
        if progress:
            progress(stage, number, rounds)
        for name in list(candidates)[:: -1 if number % 2 else 1]:
            results[name].append(candidates[name]())
            time.sleep(PAUSE)
    return results


def compared(
    candidates: Mapping[str, Callable[[], Worker]],
    works: Callable[[Sequence[Facts]], Sequence[Workload]],
    rounds: int,
    progress: StageProgress | None = None,
    required: Container[str] = (),
) -> tuple[list[SubjectFigures], dict[str, str]]:
    """Opens subjects, each in its own process, and measures them in turns, each in the workloads that it can run.

    Args:
        candidates: Functions that open a subject, by its name.
        works: Returns the workloads for the properties of all subjects that were opened.
        rounds: Number of runs of each batch by each subject, after a first one.
        progress: Called with the step and the number of completed rounds.
        required: Names of the subjects whose errors are raised.

    Returns:
        Figures of the subjects that can run at least one workload, without ratios, and the reasons of the others.

    Raises:
        KerasformerError: a required subject cannot be opened, or not run a workload.
    """
    workers: dict[str, Worker] = {}
    answers: dict[str, list[Answers]] = {}
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        for name, opened in candidates.items():
            if progress:
                progress(f"open {name}", 0, 0)
            try:
                workers[name] = stack.enter_context(closing(opened()))
            except KerasformerError as error:
                if name in required:
                    raise
                failures[name] = str(error)
        chosen = works([worker.facts for worker in workers.values()])
        for name, worker in workers.items():
            if progress:
                progress(f"first answer of {name}", 0, 0)
            answers[name] = [_first(worker, work, name in required) for work in chosen]
            if all(found.failure is not None for found in answers[name]):
                failures[name] = str(answers.pop(name)[0].failure)
        for index, work in enumerate(chosen):
            able = [name for name in answers if answers[name][index].failure is None]
            runs = {name: partial(_answered, workers[name], work) for name in able}
            for name, samples in in_turns(runs, rounds, work.title, progress).items():
                answers[name][index].rounds = samples
        return [subject_figures(workers[name], chosen, found) for name, found in answers.items()], failures


def _answered(worker: Worker, work: Workload) -> list[Sample]:
    return [worker.answer(question) for question in work.questions]


def _first(worker: Worker, work: Workload, required: bool) -> Answers:
    try:
        return Answers(_answered(worker, work))
    except KerasformerError as error:
        if required:
            raise
        return Answers([], failure=str(error))
