"""Figures as tables, for a terminal or a Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.bench.speed_figures import SubjectFigures, WorkFigures

if TYPE_CHECKING:
    from kerasformer.bench.run import BenchReport

Table = tuple[str, list[str], list[list[str]]]
"""A title, the heads of the columns, and the rows: a figure and its unit, then a column for each source."""


def tables(report: BenchReport) -> list[Table]:
    """One table for each work, and one for what opening and holding the models takes."""
    subjects = report.subjects
    titles = dict.fromkeys(own.work for one in subjects for own in one.works)
    return [*(work_table(title, subjects) for title in titles), sizes_table(subjects)]


def short_names(names: Sequence[str]) -> list[str]:
    """Names of folders instead of their paths; as many folders above them as tell them apart."""
    parts = [Path(name).resolve().parts for name in names]

    def shortest(own: tuple[str, ...]) -> str:
        depths = (n for n in range(1, len(own)) if sum(each[-n:] == own[-n:] for each in parts) == 1)
        return "/".join(own[-next(depths, len(own)) :])

    return [shortest(own) for own in parts]


def work_table(title: str, subjects: Sequence[SubjectFigures]) -> Table:
    """Speeds of all subjects at one work."""
    chosen = [(one, own) for one in subjects for own in one.works if own.work == title]
    works = [own for _, own in chosen]
    writes = any(own.first_token_ms or own.decode_tokens_s for own in works)
    rows = [["engine", "", *(one.engine for one, _ in chosen)]]
    for name, unit, figure in _WRITING if writes else _READING:
        rows.append([name, unit, *(_shown(figure(own), unit) for own in works)])
    if any(own.ratio for own in works):
        for name, ratio_of in _RATIOS:
            rows.append([name, "× the first", *(f"{ratio_of(own.ratio):.2f}" for own in works)])
    return title, _heads([one for one, _ in chosen]), rows


def sizes_table(subjects: Sequence[SubjectFigures]) -> Table:
    """Load times, memory and sizes."""
    rows = [[name, unit, *(f"{figure(one):{form}}" for one in subjects)] for name, unit, form, figure in _SIZES]
    return "opening, memory and size", _heads(subjects), rows


def _heads(subjects: Sequence[SubjectFigures]) -> list[str]:
    return ["figure", "unit", *short_names([one.name for one in subjects])]


def note(report: BenchReport) -> str:
    """What it was measured on, in a line."""
    host, settings = report.machine, report.settings
    threads = settings.get("threads") or "the runtimes' choice of"
    packages = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"{host['cpu']}, {host['cpus']} CPUs, {threads} threads, {settings['rounds']} rounds; {packages}"


def markdown(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, under a heading."""
    lines = [heads, ["---"] * len(heads), *rows]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


_BEST = ("answer, best", "ms", lambda own: 1000 * own.best_s)
_SPEED = ("speed", "tokens/s", lambda own: own.tokens_s)
_WRITING: list[tuple[str, str, Callable[[Any], float | None]]] = [
    _SPEED,
    ("reading", "tokens/s", lambda own: own.prefill_tokens_s),
    ("writing", "tokens/s", lambda own: own.decode_tokens_s),
    _BEST,
    ("answer, median", "ms", lambda own: 1000 * own.median_s),
    ("first token", "ms", lambda own: own.first_token_ms and own.first_token_ms.p50),
    ("next token, p50", "ms", lambda own: _of_tokens(own, "p50")),
    ("next token, p90", "ms", lambda own: _of_tokens(own, "p90")),
    ("next token, p99", "ms", lambda own: _of_tokens(own, "p99")),
]
_READING: list[tuple[str, str, Callable[[Any], float | None]]] = [
    _SPEED,
    _BEST,
    ("answer, p50", "ms", lambda own: own.latency_ms.p50),
    ("answer, p90", "ms", lambda own: own.latency_ms.p90),
    ("answer, p99", "ms", lambda own: own.latency_ms.p99),
]
_RATIOS: list[tuple[str, Callable[[Any], float]]] = [
    ("speed, best", lambda ratio: ratio.best),
    ("speed, median", lambda ratio: ratio.median),
]
_SIZES: list[tuple[str, str, str, Callable[[Any], float]]] = [
    ("import", "s", ".2f", lambda one: one.import_s),
    ("load", "s", ".2f", lambda one: one.load_s),
    ("load to first token", "s", ".2f", lambda one: one.first_token_s),
    ("first answer", "s", ".2f", lambda one: one.works[0].first_s),
    ("memory, peak", "MB", ".0f", lambda one: one.peak_mb),
    ("memory, runtime", "MB", ".0f", lambda one: one.runtime_mb),
    ("memory, model", "MB", ".0f", lambda one: one.model_mb),
    ("files", "MB", ".1f", lambda one: one.size_mb),
]


def _of_tokens(own: WorkFigures, percentile: str) -> float | None:
    """A latency of a further token; `None` where the library tells of whole answers alone."""
    return getattr(own.latency_ms, percentile) if own.latency_of == "token" else None


def _shown(figure: float | None, unit: str) -> str:
    if figure is None:
        return "–"
    return f"{figure:,.2f}" if unit == "ms" and figure < 10 else f"{figure:,.1f}"
