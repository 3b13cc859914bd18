"""Times and memory of two folders of bundles, each of which its own Python opens and asks, in turn.

Times of different hours do not compare: what else runs on the machine meets both alike only if both take part in every
round. A figure is worse if both the best time and three quarters of all rounds are slower by more than `SLOWER`, in
each of `RUNS` runs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.inventory import MANIFEST, Finding
from benchmarks.quiet import quiet_environment
from benchmarks.shapes import described
from kerasformer.bench.question import Question
from kerasformer.bench.rounds import PAUSE
from kerasformer.bench.worker_process import Worker

READS, WRITES = (Question(32), Question(12)), (Question(16, 24),)
"""What models that answer at once are asked, and those that generate."""
SLOWER = 0.02
"""Share of a time, or of memory."""
RUNS = 3
"""A figure is worse if it is in so many runs; further ones are made only where the first one was."""

Measured = dict[str, list[float]]
"""Seconds or 10^6 bytes of each round, by what was measured."""


class Side(NamedTuple):
    """The Python that opens bundles, and their folder, or one of them."""

    python: str
    folder: Path


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        openings: Fresh processes of each bundle, which give one answer.
        rounds: Further answers of the last process to each question, after one that does not count.
        threads: CPU threads of the runtimes.
    """

    openings: int
    rounds: int
    threads: int


def own_package() -> dict[str, str]:
    """Variables of a process whose Python finds the kerasformer that is installed for it, wherever it runs."""
    return {**quiet_environment(), "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}


def times(sides: Mapping[str, Side], effort: Effort) -> dict[str, Measured]:
    """Figures of bundles by their names: all are opened, then asked, in turn."""
    found: dict[str, Measured] = {name: {"load, s": [], "first answer, s": [], "memory, MB": []} for name in sides}
    workers: dict[str, Worker] = {}
    try:
        for turn in range(effort.openings):
            print(f"{', '.join(sides)}: opening {turn + 1} of {effort.openings}", file=sys.stderr, flush=True)
            for name in list(sides)[:: 1 if turn % 2 else -1]:  # being first has its price
                python, folder = sides[name]
                if name in workers:
                    workers[name].close()
                command = [python, "-m", "kerasformer.bench.worker", str(folder), str(effort.threads)]
                workers[name] = worker = Worker(name, command, own_package())
                first = worker.answer((WRITES if worker.facts.generates else READS)[0])
                found[name]["load, s"].append(worker.load_s)
                found[name]["first answer, s"].append(first.seconds)
                found[name]["memory, MB"].append(worker.peak_mb - worker.runtime_mb)
        questions = WRITES if next(iter(workers.values())).facts.generates else READS
        for question in questions:
            key = f"{described(question)}, s"
            for turn in range(effort.rounds + 1):
                for name, worker in workers.items():
                    seconds = worker.answer(question).seconds
                    if turn:
                        found[name].setdefault(key, []).append(seconds)
                    time.sleep(PAUSE)
    finally:
        for worker in workers.values():
            worker.close()
    return found


def in_turn(before: Side, after: Side, subjects: list[str], effort: Effort) -> Iterator[Finding]:
    """Findings for the bundles that two folders have in common; of all subjects, or of some first folders of names."""
    names = {str(path.parent.relative_to(before.folder)) for path in before.folder.rglob(MANIFEST)}
    for name in sorted(name for name in names if (after.folder / name / MANIFEST).exists()):
        if subjects and name.split("/")[0] not in subjects:
            continue
        sides = {"before": Side(before.python, before.folder / name), "after": Side(after.python, after.folder / name)}
        found = _compared(name, times(sides, effort))
        for _ in range(RUNS - 1):
            if any(finding.verdict == "worse" for finding in found):
                again = _compared(name, times(sides, effort))
                found = [b if a.verdict == "worse" else a for a, b in zip(found, again, strict=True)]
        yield from found


def _compared(name: str, found: dict[str, Measured]) -> list[Finding]:
    """A finding for each figure: seconds or 10^6 bytes, the least of all rounds."""
    findings = []
    for what, old in found["before"].items():
        new = found["after"][what]
        low, _, high = statistics.quantiles([b / a for a, b in zip(old, new, strict=True)], n=4, method="inclusive")
        best = min(new) / min(old)
        judged = "worse" if min(low, best) > 1 + SLOWER else "better" if max(high, best) < 1 - SLOWER else "same"
        findings.append(Finding(name, what, f"{min(old):.4g}", f"{min(new):.4g} ({low:.2f}–{high:.2f} ×)", judged))
    return findings
