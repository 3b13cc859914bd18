"""`kerasformer bench`: opens sources, decides what to ask them, measures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kerasformer import sources as source_folders
from kerasformer.bench.machine import machine, versions
from kerasformer.bench.question import Facts, Question
from kerasformer.bench.rounds import Answers, Workload, check_rounds, first_answers, measure
from kerasformer.bench.speed_figures import SubjectFigures, ratio, subject_figures
from kerasformer.bench.worker_process import Worker
from kerasformer.errors import CapacityError, InputError, argument
from kerasformer.progress import StageProgress

PROMPT_LENGTH, NEW_TOKENS = 32, 128
LENGTHS = (16, 128)
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class BenchReport:
    """All figures of one run; `to_json` has the names that files of figures have."""

    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    subjects: list[SubjectFigures]

    def to_json(self) -> str:
        """All of it."""
        return json.dumps({"format_version": 1, **asdict(self)}, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Writes the JSON, aside first."""
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(self.to_json(), encoding="utf-8")
        os.replace(temporary, path)


def bench(
    sources: Sequence[str | Path],
    *,
    prompt_length: int | None = None,
    new_tokens: int | None = None,
    lengths: Sequence[int] | None = None,
    texts: Sequence[str] | None = None,
    batch: int = 1,
    threads: int | None = None,
    rounds: int = 5,
    compare: bool = False,
    progress: StageProgress | None = None,
) -> BenchReport:
    """Measures bundles, checkpoints and presets, each in a process of its own.

    Args:
        sources: What to measure.
        prompt_length: Tokens of the prompt, for models that generate; 32, or less where the model holds less.
        new_tokens: Tokens of each answer, for models that generate; 128, or less.
        lengths: Tokens of the texts, for models that answer at once; 16 and 128, or less.
        texts: Texts in the place of random tokens; each batch of them is a question.
        batch: Inputs that are answered together.
        threads: CPU threads; each runtime's own choice if `None`.
        rounds: Answers to each question, after a first one that is counted apart.
        compare: All sources answer in turn in each round, and all but the first get ratios to the first; all of them
            are in memory together. Otherwise they are measured one after another.
        progress: Is told what is done.

    Raises:
        InputError: a number below 1, no source, or sources that generate compared with sources that do not.
        CapacityError: a source cannot hold so many tokens.
        SourceError: nothing was found there.
        MissingExtraError: the runtime of a source is not installed.
    """
    check_rounds(rounds)
    asked = {"batch": batch, "prompt_length": prompt_length, "new_tokens": new_tokens, "threads": threads}
    _check(asked, lengths, sources, texts)
    names = [str(source) for source in sources]
    for name in names:  # all errors of names before the first minute of measuring
        source_folders.kind(source_folders.resolve(name))
    groups = [names] if compare else [[name] for name in names]
    subjects: list[SubjectFigures] = []
    for group in groups:
        workers: dict[str, Worker] = {}
        try:
            for name in group:
                if progress:
                    progress(f"open {name}", 0, 0)
                workers[name] = Worker(name, _command(name, threads), _QUIET)
            works = _works(
                [worker.facts for worker in workers.values()], prompt_length, new_tokens, lengths, texts, batch
            )
            subjects += _measured(workers, works, rounds, progress)
        finally:
            for worker in workers.values():
                worker.close()
    settings = {**asked, "rounds": rounds, "compare": compare, "texts": len(texts) if texts else None}
    return BenchReport(machine(), versions(), settings, with_ratios(subjects) if compare else subjects)


def with_ratios(subjects: Sequence[SubjectFigures]) -> list[SubjectFigures]:
    """The same figures with ratios to the first of them."""
    base = subjects[0].works
    return [
        replace(one, works=[replace(own, ratio=ratio(of, own)) for of, own in zip(base, one.works, strict=True)])
        for one in subjects
    ]


def _measured(
    workers: dict[str, Worker], works: Sequence[Workload], rounds: int, progress: StageProgress | None
) -> list[SubjectFigures]:
    answers: dict[str, list[Answers]] = {}
    for name, worker in workers.items():
        if progress:
            progress(f"first answer of {name}", 0, 0)
        answers[name] = first_answers(worker, works)
    measure(workers, answers, works, rounds, progress)
    return [subject_figures(worker, works, answers[name]) for name, worker in workers.items()]


def _command(source: str, threads: int | None) -> list[str]:
    command = [sys.executable, "-m", "kerasformer.bench.worker", source]
    return command if threads is None else [*command, str(threads)]


def _check(
    numbers: dict[str, int | None],
    lengths: Sequence[int] | None,
    sources: Sequence[str | Path],
    texts: Sequence[str] | None,
) -> None:
    if not sources:
        raise InputError("Sources to measure were expected: bundles, checkpoints or presets. Received: none")
    if len({str(source) for source in sources}) < len(sources):
        raise InputError(f"Each source may be given once. Received: {[str(source) for source in sources]}")
    if texts is not None and not any(text.strip() for text in texts):
        raise InputError("texts must hold a text. Received: none")
    for name, number in [*numbers.items(), *(("lengths", length) for length in lengths or ())]:
        if number is not None and number < 1:
            raise InputError(f"{argument(name)} must be at least 1. Received: {argument(name, number)}")


def _works(
    facts: Sequence[Facts],
    prompt_length: int | None,
    new_tokens: int | None,
    lengths: Sequence[int] | None,
    texts: Sequence[str] | None,
    batch: int,
) -> list[Workload]:
    """What all of these models are asked.

    Raises:
        InputError: some of them generate, others do not.
        CapacityError: so many tokens do not fit into one of them.
    """
    if len({of.generates for of in facts}) > 1:
        tasks = ", ".join(of.task for of in facts)
        raise InputError(f"Models that generate cannot be compared with models that do not. Received: {tasks}")
    if not facts[0].generates:
        return _reading(facts, lengths, texts, batch)
    read, write = _generation_lengths(facts, prompt_length, new_tokens)
    if texts:
        return [_of_texts(texts, batch, write)]
    title = f"{read} tokens in, {write} out" + (f", batch {batch}" if batch > 1 else "")
    return [Workload(title, (Question(read, write, batch),))]


def _reading(
    facts: Sequence[Facts], lengths: Sequence[int] | None, texts: Sequence[str] | None, batch: int
) -> list[Workload]:
    if texts:
        return [_of_texts(texts, batch, 0)]
    most = min((of.longest for of in facts if of.longest is not None), default=None)
    if lengths and most is not None and max(lengths) > most:
        raise CapacityError(f"Texts have at most {most} tokens here. Received: {argument('lengths', list(lengths))}")
    chosen = lengths or sorted({min(length, most or length) for length in LENGTHS})
    suffix = f", batch {batch}" if batch > 1 else ""
    return [Workload(f"{length} tokens{suffix}", (Question(length, 0, batch),)) for length in chosen]


def _generation_lengths(facts: Sequence[Facts], prompt: int | None, new: int | None) -> tuple[int, int]:
    """Tokens to read and to write, which fit into each of the models."""
    read, write = prompt or PROMPT_LENGTH, new or NEW_TOKENS
    for of in facts:
        if of.longest is None:
            continue
        room = of.longest - 1 if of.longest_answer is None else of.longest
        read = read if prompt else min(read, max(1, room // 2 if of.longest_answer is None else room))
        left = of.longest - read if of.longest_answer is None else of.longest_answer - 1
        write = write if new else max(1, min(write, left))
        if read > room or write > left:
            raise CapacityError(
                f"One of the models holds {of.longest} tokens"
                + (f" and writes {of.longest_answer}" if of.longest_answer else ", prompt and answer together")
                + f". Received: {argument('prompt_length', read)}, {argument('new_tokens', write)}. "
                "Ask for less, or export with a larger capacity"
            )
    return read, write


def _of_texts(texts: Sequence[str], batch: int, write: int) -> Workload:
    lines = [text for text in texts if text.strip()]
    parts = [tuple(lines[start : start + batch]) for start in range(0, len(lines), batch)]
    title = (
        f"{len(lines)} texts" + (f", {write} tokens out" if write else "") + (f", batch {batch}" if batch > 1 else "")
    )
    return Workload(title, tuple(Question(0, write, len(part), part) for part in parts))
