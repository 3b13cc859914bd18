"""`kerasformer bench`: opens sources, selects the workloads and measures them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Unpack

from kerasformer.basics.command_options import BenchOptions
from kerasformer.basics.options import checked, documented
from kerasformer.errors import CapacityError, InputError
from kerasformer.files import sources as source_folders
from kerasformer.files.publishing import replacing
from kerasformer.files.reading import local_path, read_text
from kerasformer.tools.bench.machine import machine, versions
from kerasformer.tools.bench.other_engines import ENGINES, engines_of
from kerasformer.tools.bench.question import Facts, Question, Workload
from kerasformer.tools.bench.rounds import compared
from kerasformer.tools.bench.speed_figures import SubjectFigures, with_ratios
from kerasformer.tools.bench.worker import Worker

PROMPT_LENGTH, NEW_TOKENS = 32, 128
LENGTHS = (16, 128)
TEXT = (
    "The road went down to the harbour, where the boats lay side by side in the evening light. An old man sat on the "
    "wall, and told the children how he had sailed"
)
"""Prompt for a comparison of engines, some of which read texts only."""
_RECORDED = ("batch_size", "prompt_length", "new_tokens", "num_threads", "rounds", "compare")
"""Options that a report names."""
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class BenchReport:
    """Figures of a measurement.

    Attributes:
        machine: Processor and system.
        versions: Versions of packages.
        settings: Arguments of `bench`.
        subjects: Figures of each source, or of each engine that runs it.
        not_measured: Reasons why engines were not measured, by their names.
    """

    machine: dict[str, object]
    versions: dict[str, str]
    settings: dict[str, object]
    subjects: list[SubjectFigures]
    not_measured: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the report as JSON."""
        return json.dumps({"format_version": 1, **asdict(self)}, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Writes the report as JSON, atomically."""
        with replacing(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")


@documented(BenchOptions)
def bench(sources: Sequence[str | Path], **options: Unpack[BenchOptions]) -> BenchReport:
    """Measures bundles, checkpoints and presets, each in a separate process.

    Args:
        sources: Bundles, checkpoint folders, presets or hub ids.
        options: See `BenchOptions`.

    Raises:
        InputError: an option is unknown or not accepted, there is no source, or models that generate are mixed with
            others.
        CapacityError: the number of tokens exceeds the capacity of a source.
        SourceError: a source was not found.
        MissingExtraError: the runtime of a source is not installed.
    """
    chosen = checked(BenchOptions, options, "bench")
    texts, engines, progress = _texts(chosen.get("texts")), chosen["engines"], chosen.get("progress")
    _check(sources, texts)
    names = [str(source) for source in sources]
    for name in names:  # report all wrong names before any measurement
        source_folders.kind(source_folders.resolve(name))
    subjects = [_Subject(name, name) for name in names]
    if engines:
        subjects += _other_engines(names)
        if texts is None and any(subject.engine == "litert-lm" for subject in subjects):
            texts = [TEXT]
    groups = [subjects] if chosen["compare"] or engines else [[subject] for subject in subjects]
    measured: list[SubjectFigures] = []
    failures: dict[str, str] = {}
    for group in groups:
        figures, failed = compared(
            {subject.name: partial(subject.open, chosen.get("num_threads")) for subject in group},
            lambda facts: _works(facts, chosen, texts),
            chosen["rounds"],
            progress,
            required=names,
        )
        measured += figures
        failures |= failed
    return BenchReport(
        machine(),
        versions(),
        {name: chosen.get(name) for name in _RECORDED} | {"texts": len(texts) if texts else None},
        with_ratios(measured) if chosen["compare"] or engines else measured,
        {ENGINES[one.engine].title: failures[one.name] for one in subjects if one.engine and one.name in failures},
    )


@dataclass(frozen=True)
class _Subject:
    """A source in an engine, by default that of this package."""

    name: str
    source: str
    engine: str | None = None

    def open(self, threads: int | None) -> Worker:
        command = [sys.executable, "-m", "kerasformer.tools.bench.worker", self.source]
        command += [] if threads is None else [str(threads)]
        command += [] if self.engine is None else ["--engine", self.engine]
        return Worker(self.name, command, _QUIET)


def _other_engines(names: Sequence[str]) -> list[_Subject]:
    """Returns the other engines of the only source.

    Raises:
        InputError: there are several sources, or it is not a bundle.
    """
    folders = [source_folders.resolve(name) for name in names]
    if len(names) > 1 or source_folders.kind(folders[0]) != "bundle":
        raise InputError(f"engines are compared with the files of one bundle. Received: {', '.join(names)}")
    return [_Subject(f"{names[0]} ({engine})", names[0], engine) for engine in engines_of(folders[0])]


def _texts(texts: str | Path | Sequence[str] | None) -> Sequence[str] | None:
    """Returns the texts of a file, one per line, or of a list."""
    if not isinstance(texts, str | Path):
        return texts
    if not Path(texts).is_file():
        raise InputError(f"A file of texts was expected. Received: {texts}")
    return read_text(local_path(texts)).splitlines()


def _check(sources: Sequence[str | Path], texts: Sequence[str] | None) -> None:
    if not sources:
        raise InputError("Sources to measure were expected: bundles, checkpoints or presets. Received: none")
    if len({str(source) for source in sources}) < len(sources):
        raise InputError(f"Each source may be given only once. Received: {[str(source) for source in sources]}")
    if texts is not None and not any(text.strip() for text in texts):
        raise InputError("texts must contain at least one text that is not blank. Received: none")


def _works(facts: Sequence[Facts], options: BenchOptions, texts: Sequence[str] | None) -> list[Workload]:
    """Returns the workloads for all of these models.

    Raises:
        InputError: some models generate and others do not.
        CapacityError: the number of tokens exceeds the capacity of a model.
    """
    if len({model.generates for model in facts}) > 1:
        tasks = ", ".join(model.task for model in facts)
        raise InputError(f"Models that generate cannot be compared with models that do not. Received: {tasks}")
    batch = options["batch_size"]
    if not facts[0].generates:
        return _forward_works(facts, options.get("lengths"), texts, batch)
    read, write = _generation_lengths(facts, options.get("prompt_length"), options.get("new_tokens"))
    if texts:
        return [_of_texts(texts, batch, write)]
    question = Question(read, write, batch)
    return [Workload(question.title, (question,))]


def _forward_works(
    facts: Sequence[Facts], lengths: Sequence[int] | None, texts: Sequence[str] | None, batch: int
) -> list[Workload]:
    if texts:
        return [_of_texts(texts, batch, 0)]
    limit = min((model.longest for model in facts if model.longest is not None), default=None)
    if lengths and limit is not None and max(lengths) > limit:
        raise CapacityError(f"Texts may have at most {limit} tokens. Received: lengths={list(lengths)!r}")
    lengths = lengths or sorted({min(length, limit or length) for length in LENGTHS})
    questions = [Question(length, 0, batch) for length in lengths]
    return [Workload(question.title, (question,)) for question in questions]


def _generation_lengths(facts: Sequence[Facts], prompt: int | None, new: int | None) -> tuple[int, int]:
    """Returns the number of prompt tokens and of new tokens, within the capacity of all models."""
    read, write = prompt or PROMPT_LENGTH, new or NEW_TOKENS
    for model in facts:
        if model.longest is None:
            continue
        max_read = model.longest - 1 if model.longest_answer is None else model.longest
        read = read if prompt else min(read, max(1, max_read // 2 if model.longest_answer is None else max_read))
        max_write = model.longest - read if model.longest_answer is None else model.longest_answer - 1
        write = write if new else max(1, min(write, max_write))
        if read > max_read or write > max_write:
            raise CapacityError(
                f"A model has a capacity of {model.longest} tokens"
                + (
                    f" and generates at most {model.longest_answer}"
                    if model.longest_answer
                    else ", including the prompt"
                )
                + f". Received: prompt_length={read!r}, new_tokens={write!r}. "
                "Request fewer tokens, or export with a larger capacity"
            )
    return read, write


def _of_texts(texts: Sequence[str], batch: int, write: int) -> Workload:
    lines = [text for text in texts if text.strip()]
    parts = [tuple(lines[start : start + batch]) for start in range(0, len(lines), batch)]
    title = (
        ("1 text" if len(lines) == 1 else f"{len(lines)} texts")
        + (f", {write} tokens out" if write else "")
        + (f", batch {batch}" if batch > 1 else "")
    )
    return Workload(title, tuple(Question(0, write, len(part), part) for part in parts))
