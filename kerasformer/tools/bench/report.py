"""Tables of figures, for a terminal or a Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.tools.bench.speed_figures import SubjectFigures, WorkFigures

if TYPE_CHECKING:
    from kerasformer.tools.bench.run import BenchReport

Table = tuple[str, list[str], list[list[str]]]
"""Title, column heads and rows, where a row has the name of a figure, its unit, and a value for each source."""


def tables(report: BenchReport) -> list[Table]:
    """Returns a table for each workload, and one for load time, memory and size."""
    subjects = report.subjects
    titles = dict.fromkeys(work.work for one in subjects for work in one.works)
    return [*(work_table(title, subjects) for title in titles), sizes_table(subjects)]


def short_names(names: Sequence[str]) -> list[str]:
    """Returns the names of folders, with as many parent folders as are needed to distinguish them."""
    parts = [Path(name).resolve().parts for name in names]

    def shortest(path: tuple[str, ...]) -> str:
        depths = (n for n in range(1, len(path)) if sum(each[-n:] == path[-n:] for each in parts) == 1)
        return "/".join(path[-next(depths, len(path)) :])

    return [shortest(path) for path in parts]


def work_table(title: str, subjects: Sequence[SubjectFigures]) -> Table:
    """Returns a table of the speeds of all subjects in a workload."""
    measured = [(one, work) for one in subjects for work in one.works if work.work == title]
    works = [work for _, work in measured]
    generates = any(work.first_token_ms or work.decode_tokens_s for work in works)
    rows = [["engine", "", *(one.engine for one, _ in measured)]]
    for name, unit, figure in _GENERATION if generates else _FORWARD:
        rows.append([name, unit, *(_formatted(figure(work), unit) for work in works)])
    if any(work.ratio for work in works):
        for name, ratio_of in _RATIOS:
            rows.append([name, "× the first", *(f"{ratio_of(work.ratio):.2f}" for work in works)])
    return title, _heads([one for one, _ in measured]), rows


def sizes_table(subjects: Sequence[SubjectFigures]) -> Table:
    """Returns a table of load times, memory and sizes."""
    rows = [[name, unit, *(f"{figure(one):{form}}" for one in subjects)] for name, unit, form, figure in _SIZES]
    return "load time, memory and size", _heads(subjects), rows


def _heads(subjects: Sequence[SubjectFigures]) -> list[str]:
    return ["figure", "unit", *short_names([one.name for one in subjects])]


def note(report: BenchReport) -> str:
    """Returns the machine, settings and versions in one line."""
    host, settings = report.machine, report.settings
    threads = settings["num_threads"] or "default number of"
    packages = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"{host['cpu']}, {host['cpus']} CPUs, {threads} threads, {settings['rounds']} rounds; {packages}"


def markdown(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Formats a table in Markdown, with a heading."""
    lines = [heads, ["---"] * len(heads), *rows]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


_BEST = ("answer, best", "ms", lambda work: 1000 * work.best_s)
_SPEED = ("speed", "tokens/s", lambda work: work.tokens_s)
_GENERATION: list[tuple[str, str, Callable[[WorkFigures], float | None]]] = [
    _SPEED,
    ("prefill", "tokens/s", lambda work: work.prefill_tokens_s),
    ("decode", "tokens/s", lambda work: work.decode_tokens_s),
    _BEST,
    ("answer, median", "ms", lambda work: 1000 * work.median_s),
    ("first token", "ms", lambda work: work.first_token_ms.p50 if work.first_token_ms else None),
    ("next token, p50", "ms", lambda work: _of_tokens(work, "p50")),
    ("next token, p90", "ms", lambda work: _of_tokens(work, "p90")),
    ("next token, p99", "ms", lambda work: _of_tokens(work, "p99")),
]
_FORWARD: list[tuple[str, str, Callable[[WorkFigures], float | None]]] = [
    _SPEED,
    _BEST,
    ("answer, p50", "ms", lambda work: work.latency_ms.p50),
    ("answer, p90", "ms", lambda work: work.latency_ms.p90),
    ("answer, p99", "ms", lambda work: work.latency_ms.p99),
]
_RATIOS: list[tuple[str, Callable[[Any], float]]] = [
    ("speed, best", lambda ratio: ratio.best),
    ("speed, median", lambda ratio: ratio.median),
]
_SIZES: list[tuple[str, str, str, Callable[[SubjectFigures], float]]] = [
    ("import", "s", ".2f", lambda one: one.import_s),
    ("load", "s", ".2f", lambda one: one.load_s),
    ("load to first token", "s", ".2f", lambda one: one.first_token_s),
    ("first answer", "s", ".2f", lambda one: one.works[0].first_s),
    ("memory, peak", "MB", ".0f", lambda one: one.peak_mb),
    ("memory, runtime", "MB", ".0f", lambda one: one.runtime_mb),
    ("memory, model", "MB", ".0f", lambda one: one.model_mb),
    ("files", "MB", ".1f", lambda one: one.size_mb),
]


def _of_tokens(work: WorkFigures, percentile: str) -> float | None:
    """Returns a latency per token after the first; `None` if the library reports only complete answers."""
    return getattr(work.latency_ms, percentile) if work.latency_of == "token" else None


def _formatted(figure: float | None, unit: str) -> str:
    if figure is None:
        return "–"
    return f"{figure:,.2f}" if unit == "ms" and figure < 10 else f"{figure:,.1f}"
