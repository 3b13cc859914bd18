"""Comparison of time and memory of two folders of bundles, each opened by its own Python, in alternating rounds.

Measurements at different times are not comparable; alternating rounds expose both sides to the same load of the
machine. A figure is worse if both the best time and three quarters of all rounds are slower by more than `SLOWER` in
each of `RUNS` runs.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import installed_package
from benchmarks.inventory import MANIFEST, Finding
from benchmarks.shapes import described
from kerasformer.bench.question import Question
from kerasformer.bench.rounds import in_turns
from kerasformer.bench.worker import Worker

READS, WRITES = (Question(32), Question(12)), (Question(16, 24),)
"""Workloads of models that compute their output in one call, and of generative models."""
SLOWER = 0.02
"""Relative increase of time or memory above which a figure counts as worse."""
RUNS = 3
"""Number of runs in which a figure must be worse; the others are skipped if it is not worse in the first run."""

Measured = dict[str, list[float]]
"""Seconds or 10^6 bytes of each round, by figure."""


class Side(NamedTuple):
    """A Python interpreter, and a bundle or a folder of bundles that it opens."""

    python: str
    folder: Path


@dataclass(frozen=True)
class Effort:
    """Number of measurements.

    Attributes:
        openings: Number of new processes for each bundle, which answer one question each.
        rounds: Number of further answers of the last process to each question, after a warm-up.
        threads: Number of CPU threads of the runtimes.
    """

    openings: int
    rounds: int
    threads: int


def times(sides: Mapping[str, Side], effort: Effort) -> dict[str, Measured]:
    """Measures bundles in alternating rounds and returns their figures by name."""
    workers: dict[str, Worker] = {}

    def opened(name: str) -> dict[str, float]:
        python, folder = sides[name]
        if name in workers:
            workers.pop(name).close()
        command = [python, "-m", "kerasformer.bench.worker", str(folder), str(effort.threads)]
        workers[name] = worker = Worker(name, command, installed_package())
        first = worker.answer((WRITES if worker.facts.generates else READS)[0])
        memory = worker.peak_mb - worker.runtime_mb
        return {"load, s": worker.load_s, "first answer, s": first.seconds, "memory, MB": memory}

    try:
        print(", ".join(sides), file=sys.stderr, flush=True)
        openings = in_turns({name: partial(opened, name) for name in sides}, effort.openings)
        measured = {name: {what: [one[what] for one in all_] for what in all_[0]} for name, all_ in openings.items()}
        for question in WRITES if next(iter(workers.values())).facts.generates else READS:
            runs = {name: partial(worker.answer, question) for name, worker in workers.items()}
            for name, (_, *samples) in in_turns(runs, effort.rounds + 1).items():
                measured[name][f"{described(question)}, s"] = [sample.seconds for sample in samples]
    finally:
        for worker in workers.values():
            worker.close()
    return measured


def in_turn(before: Side, after: Side, subjects: list[str], effort: Effort) -> Iterator[Finding]:
    """Yields the findings for all bundles that both folders contain.

    Args:
        before: Python and folder of the old bundles.
        after: Python and folder of the new bundles.
        subjects: First folders of the names of bundles to compare; empty for all.
        effort: Number of measurements.
    """
    names = {str(path.parent.relative_to(before.folder)) for path in before.folder.rglob(MANIFEST)}
    for name in sorted(name for name in names if (after.folder / name / MANIFEST).exists()):
        if subjects and name.split("/")[0] not in subjects:
            continue
        sides = {"before": Side(before.python, before.folder / name), "after": Side(after.python, after.folder / name)}
        findings = _compared(name, times(sides, effort))
        for _ in range(RUNS - 1):
            if any(finding.verdict == "worse" for finding in findings):
                again = _compared(name, times(sides, effort))
                findings = [b if a.verdict == "worse" else a for a, b in zip(findings, again, strict=True)]
        yield from findings


def _compared(name: str, measured: dict[str, Measured]) -> list[Finding]:
    """Returns a finding for each figure: the minimum of all rounds, in seconds or 10^6 bytes."""
    findings = []
    for what, old in measured["before"].items():
        new = measured["after"][what]
        low, _, high = statistics.quantiles([b / a for a, b in zip(old, new, strict=True)], n=4, method="inclusive")
        best = min(new) / min(old)
        verdict = "worse" if min(low, best) > 1 + SLOWER else "better" if max(high, best) < 1 - SLOWER else "same"
        findings.append(Finding(name, what, f"{min(old):.4g}", f"{min(new):.4g} ({low:.2f}–{high:.2f} ×)", verdict))
    return findings
