"""Figures as tables, for a terminal or a Markdown file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kerasformer.bench.figures import Percentiles, SubjectFigures, WorkFigures

if TYPE_CHECKING:
    from kerasformer.bench.run import Report

Table = tuple[str, list[str], list[list[str]]]
"""A title, the heads of the columns, and the rows."""


def tables(report: Report) -> list[Table]:
    """One table for each work, and one for what opening and holding the models takes."""
    subjects = report.subjects
    titles = dict.fromkeys(own.work for one in subjects for own in one.works)
    return [*(work_table(title, subjects) for title in titles), sizes_table(subjects)]


def upright(table: Table) -> Table:
    """The same table with a column for each source: a terminal is higher than wide."""
    title, heads, rows = table
    columns = list(zip(*rows, strict=True))
    return title, ["", *columns[0]], [[head, *cells] for head, cells in zip(heads[1:], columns[1:], strict=True)]


def work_table(title: str, subjects: Sequence[SubjectFigures]) -> Table:
    """Speeds of all subjects at one work."""
    rows = [(one, own) for one in subjects for own in one.works if own.work == title]
    writes = any(own.first_token_ms or own.decode_tokens_s for _, own in rows)
    heads = ["source", "engine", "ms, best", "ms, median", *(_WRITING if writes else _READING)]
    if any(own.ratio for _, own in rows):
        heads += ["× the first, best", "× the first, median"]
    return title, heads, [[one.name, one.engine, *_speeds(own, writes)] for one, own in rows]


def sizes_table(subjects: Sequence[SubjectFigures]) -> Table:
    """Load times, memory and sizes."""
    heads = ["source", "import s", "load s", "load to first token s", "first answer s"]
    heads += ["peak MB", "runtime MB", "model MB", "file MB"]
    rows = []
    for one in subjects:
        times = [one.import_s, one.load_s, one.first_token_s, one.works[0].first_s]
        sizes = [one.peak_mb, one.runtime_mb, one.model_mb]
        rows.append([one.name, *(f"{s:.2f}" for s in times), *(f"{mb:.0f}" for mb in sizes), f"{one.size_mb:.1f}"])
    return "opening, memory and size", heads, rows


def note(report: Report) -> str:
    """What it was measured on, in a line."""
    host, settings = report.machine, report.settings
    threads = settings.get("threads") or "the runtimes' choice of"
    packages = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"{host['cpu']}, {host['cpus']} CPUs, {threads} threads, {settings['rounds']} rounds; {packages}"


def markdown(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, under a heading."""
    lines = [heads, ["---"] * len(heads), *rows]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


_WRITING = ["tokens/s", "prefill tokens/s", "decode tokens/s", "first token ms"]
_WRITING += ["token ms, p50", "p90", "p99"]
_READING = ["tokens/s", "ms, p50", "p90", "p99"]


def _speeds(own: WorkFigures, writes: bool) -> list[str]:
    cells = [_ms(1000 * own.best_s), _ms(1000 * own.median_s), f"{own.tokens_s:,.1f}"]
    if writes:
        cells += ["–" if rate is None else f"{rate:,.1f}" for rate in (own.prefill_tokens_s, own.decode_tokens_s)]
        cells.append("–" if own.first_token_ms is None else _ms(own.first_token_ms.p50))
        cells += ["–"] * 3 if own.latency_of == "answer" else _three(own.latency_ms)
    else:
        cells += _three(own.latency_ms)
    return cells if own.ratio is None else [*cells, f"{own.ratio.best:.2f}", f"{own.ratio.median:.2f}"]


def _three(latency: Percentiles) -> list[str]:
    return [_ms(latency.p50), _ms(latency.p90), _ms(latency.p99)]


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.2f}" if milliseconds < 10 else f"{milliseconds:,.1f}"
