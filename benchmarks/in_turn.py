"""Comparison of time and memory of two folders of bundles, each opened by its own Python, in alternating rounds.

Measurements at different times are not comparable; alternating rounds expose both sides to the same load of the
machine. A figure is worse if both the best time and three quarters of all rounds are slower by more than `SLOWER` in
each of `RUNS` runs.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import installed_package
from benchmarks.inventory import MANIFEST, Finding
from kerasformer.tools.bench.question import Facts, Question, Workload
from kerasformer.tools.bench.rounds import compared
from kerasformer.tools.bench.worker import Worker

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
        openings: Number of new processes for each bundle.
        rounds: Number of answers of each process to each question, after a first one.
        threads: Number of CPU threads of the runtimes.
    """

    openings: int
    rounds: int
    threads: int


def times(sides: Mapping[str, Side], effort: Effort) -> dict[str, Measured]:
    """Measures bundles in alternating rounds and returns their figures by name."""

    def opened(name: str) -> Worker:
        python, folder = sides[name]
        command = [python, "-m", "kerasformer.tools.bench.worker", str(folder), str(effort.threads)]
        return Worker(name, command, installed_package())

    def works(facts: Sequence[Facts]) -> list[Workload]:
        questions = WRITES if facts[0].generates else READS
        return [Workload(f"{question.title}, s", (question,)) for question in questions]

    measured: dict[str, Measured] = {name: defaultdict(list) for name in sides}
    for turn in range(effort.openings):
        print(f"{', '.join(sides)}: opening {turn + 1} of {effort.openings}", file=sys.stderr, flush=True)
        names = list(sides)[:: 1 if turn % 2 else -1]  # alternating, because the first one is slower
        figures, _ = compared({name: partial(opened, name) for name in names}, works, effort.rounds, required=names)
        for subject in figures:
            own = measured[subject.name]
            own["load, s"].append(subject.load_s)
            own["first answer, s"].append(subject.works[0].first_s)
            own["memory, MB"].append(subject.model_mb)
            for work in subject.works:
                own[work.work] += work.seconds
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
