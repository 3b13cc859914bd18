"""Reports as Markdown, JSON and bar charts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import LIBRARIES, OURS, title_of
from benchmarks.shapes import SHAPES
from kerasformer.bench.machine import machine, versions
from kerasformer.bench.picture import Bar, Panel, draw
from kerasformer.bench.report import markdown
from kerasformer.bench.speed_figures import SubjectFigures, WorkFigures
from kerasformer.errors import MissingExtraError


class Results:
    """All results of a run so far.

    Args:
        rounds: Number of answers of each variant to each question.
        threads: Number of CPU threads.
        clock: Clock of all times: `"elapsed"` or `"processor"`.
    """

    def __init__(self, rounds: int, threads: int, clock: str = "elapsed") -> None:
        self._head: dict[str, Any] = {
            "machine": machine(),
            "versions": versions(),
            "rounds": rounds,
            "threads": threads,
            "clock": clock,
        }
        self._figures: dict[str, list[SubjectFigures]] = {}
        self._failures: dict[str, dict[str, str]] = {}

    def add(self, shape: str, figures: list[SubjectFigures], failures: dict[str, str]) -> None:
        """Adds the results of `running.run` for a shape."""
        self._figures[shape], self._failures[shape] = figures, failures

    def write(self, folder: Path) -> None:
        """Writes `peers.json`, `peers.md` and, if matplotlib is installed, `peers.png` and `peers.svg`."""
        shapes = {
            shape: {"subjects": [asdict(one) for one in figures], "failures": self._failures[shape]}
            for shape, figures in self._figures.items()
        }
        content = {"format_version": 1, **self._head, "peers": _requirements(), "shapes": shapes}
        (folder / "peers.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        (folder / "peers.md").write_text(self._markdown(), encoding="utf-8")
        panels = self._panels()
        try:
            for ending in (".png", ".svg"):
                if panels:
                    draw("Comparison with other libraries", panels, folder / f"peers{ending}", self._note())
        except MissingExtraError as error:
            (folder / "no-picture.txt").write_text(f"{error}\n", encoding="utf-8")

    def _note(self) -> str:
        host = self._head["machine"]
        return (
            f"{host['cpu']}, {self._head['threads']} threads, random weights, greedy search, best of "
            f"{self._head['rounds']} alternating rounds{self._clock()}"
        )

    def _clock(self) -> str:
        return ", processor time of all threads" if self._head["clock"] == "processor" else ""

    def _markdown(self) -> str:
        host = self._head["machine"]
        ours = ", ".join(f"{name} {version}" for name, version in self._head["versions"].items())
        theirs = "; ".join(f"{name}: {', '.join(packages)}" for name, packages in _requirements().items())
        rounds = f"{self._head['threads']} threads, {self._head['rounds']} rounds{self._clock()}"
        parts = [f"{host['cpu']}, {rounds}, {host['system']}; {ours}. Peers: {theirs}.\n"]
        for shape, figures in self._figures.items():
            for title in (work.title for work in SHAPES[shape].works):
                measured = [(one, work) for one in figures for work in one.works if work.work == title]
                rows = [_speeds(one, work, SHAPES[shape].generates) for one, work in measured]
                parts.append(markdown(title, _speed_heads([one for one, _ in measured], SHAPES[shape].generates), rows))
                missing = {one.name: one.failures[title] for one in figures if title in one.failures}
                parts += [f"- {title_of(name)} is missing: {reason}\n" for name, reason in missing.items()]
            parts.append(
                markdown(f"{SHAPES[shape].title}, opening, memory and size", _SIZE_HEADS, map(_sizes, figures))
            )
            for name, reason in self._failures[shape].items():
                parts.append(f"- {title_of(name)} is not supported: {reason}\n")
            parts.append("")
        return "\n".join(parts)

    def _panels(self) -> list[Panel]:
        """Returns a panel for the first workload of each shape."""
        panels = []
        for shape, figures in self._figures.items():
            writes = SHAPES[shape].generates
            title = SHAPES[shape].works[0].title
            measured = [(one.name, work) for one in figures for work in one.works if work.work == title]
            bars = [
                Bar(title_of(name), value, f"{value:,.0f}  ({_best(work)}×)", name in OURS)
                for name, work in measured
                for value in [work.best_tokens_s if writes else 1000 * work.best_s]
            ]
            bars.sort(key=lambda bar: -bar.value if writes else bar.value)
            unit = "new tokens/s, prompt included (more is better)" if writes else "ms (less is better)"
            if bars:
                unit += f"\nin brackets: × {title_of(measured[0][0])}"
                panels.append(Panel(title, unit, tuple(bars)))
        return panels


_SIZE_HEADS = ["", "import s", "load s", "load to first token s", "peak MB", "peak beyond the import MB", "file MB"]


def _speed_heads(figures: list[SubjectFigures], writes: bool) -> list[str]:
    base = title_of(figures[0].name) if figures else ""
    ratios = [f"× {base}, best", "median"]
    if writes:
        decode = [
            "prefill tokens/s, best",
            "median",
            "decode tokens/s, best",
            "median",
            "first token ms",
            "token ms, p50",
            "p90",
            "p99",
        ]
        return ["", "tokens/s, best", "median", *ratios, *decode]
    return ["", "ms, best", "median", *ratios, "ms, p50", "p90", "p99"]


def _speeds(one: SubjectFigures, own: WorkFigures, writes: bool) -> list[str]:
    ratios = ["–", "–"] if own.ratio is None else [f"{own.ratio.best:.2f}", f"{own.ratio.median:.2f}"]
    latency = [f"{ms:.1f}" for ms in (own.latency_ms.p50, own.latency_ms.p90, own.latency_ms.p99)]
    if not writes:
        return [title_of(one.name), f"{1000 * own.best_s:.1f}", f"{1000 * own.median_s:.1f}", *ratios, *latency]
    speeds = [f"{own.best_tokens_s:.1f}", f"{own.tokens_s:.1f}"]
    rates = [own.best_prefill_tokens_s, own.prefill_tokens_s, own.best_decode_tokens_s, own.decode_tokens_s]
    first = "–" if own.first_token_ms is None else f"{own.first_token_ms.p50:.0f}"
    return [
        title_of(one.name),
        *speeds,
        *ratios,
        *("–" if rate is None else f"{rate:.1f}" for rate in rates),
        first,
        *(latency if own.latency_of == "token" else ["–"] * 3),
    ]


def _sizes(one: SubjectFigures) -> list[str]:
    times = [f"{seconds:.2f}" for seconds in (one.import_s, one.load_s, one.first_token_s)]
    return [title_of(one.name), *times, f"{one.peak_mb:.0f}", f"{one.model_mb:.0f}", f"{one.size_mb:.0f}"]


def _best(own: WorkFigures) -> str:
    return "–" if own.ratio is None else f"{own.ratio.best:.1f}"


def _requirements() -> dict[str, Any]:
    return {name: library.requirements for name, library in LIBRARIES.items()}
