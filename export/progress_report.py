"""Progress of an export: stages that are passed to a function, a progress bar on a terminal, or lines elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from kerasformer.basics.progress import StageProgress
from kerasformer.files.reading import parse_json

WRITE_WEIGHTS = "write weights"
"""The stage whose progress is counted in bytes."""
# Start and end of each stage as a share of the work, as measured on small encoders and decoders.
_SHARES = {
    "load": (0.0, 0.05),
    "measure Keras": (0.05, 0.1),
    "answer with Keras": (0.05, 0.3),
    "calibrate": (0.3, 0.4),
    "choose bits": (0.36, 0.4),
    "find levels": (0.3, 0.4),
    "try each part": (0.3, 0.6),
    "trace and convert": (0.4, 0.7),
    "try mixes": (0.6, 0.7),
    WRITE_WEIGHTS: (0.7, 0.8),
    "measure latency": (0.8, 0.85),
    "verify": (0.85, 0.94),
    "measure rounding": (0.94, 0.97),
    "tokenizer": (0.97, 1.0),
}


@contextmanager
def progress_reporter(progress: StageProgress | bool | None) -> Iterator[StageProgress]:
    """Yields the function that an export calls with each stage.

    Args:
        progress: A function; `False` for no report; `None` for a progress bar on standard error if it is a terminal;
            `True` for this bar, or a line for each stage if it is not.
    """
    if callable(progress):
        yield progress
        return
    terminal = _is_terminal(sys.stderr)
    if progress is False or not (progress or terminal):
        yield _ignored
        return
    with _bar() if terminal else _lines() as report:
        yield report


class Share:
    """Share of the work that is done; it never decreases."""

    def __init__(self) -> None:
        self.value, self._start = 0.0, monotonic()

    def after(self, stage: str, done: int, total: int) -> float:
        """Updates and returns the share, given how much of a stage is done."""
        start, end = _SHARES.get(stage, (self.value, self.value))
        self.value = max(self.value, start + (end - start) * (min(done / total, 1.0) if total else 0.0))
        return self.value

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._start

    def left(self) -> str:
        """Says about how many seconds the rest takes if it is as fast as what is done."""
        return f"about {self.seconds * (1 / self.value - 1):.0f} s left" if self.value else ""


def sizes(stage: str, done: int, total: int) -> str:
    """Formats how much of a stage is done: MB of weights, or a count."""
    if not total:
        return ""
    return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if stage == WRITE_WEIGHTS else f"{done} of {total}"


def write_line(stage: str, done: int, total: int) -> None:
    """Prints a stage as a line of standard output, from which another process reads it with `read_line`."""
    print(json.dumps({"stage": stage, "done": done, "total": total}), flush=True)


def read_line(line: str) -> tuple[str, int, int] | None:
    """Parses a line that `write_line` printed; returns `None` for any other line."""
    try:
        content = parse_json(line, "a line of progress")
        return str(content["stage"]), int(content["done"]), int(content["total"])
    except (ValueError, TypeError, KeyError):
        return None


@contextmanager
def _bar() -> Iterator[StageProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Rows

    share = Share()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[sizes]}"))
    times = TimeElapsedColumn(), TextColumn("{task.fields[left]}")
    with Rows(*columns, *times, console=Console(stderr=True), transient=True) as rows:
        row = rows.add_task("load", total=1.0, sizes="", left="")

        def report(stage: str, done: int, total: int) -> None:
            completed = share.after(stage, done, total)
            rows.update(row, description=stage, completed=completed, sizes=sizes(stage, done, total), left=share.left())

        yield report


@contextmanager
def _lines() -> Iterator[StageProgress]:
    """Writes the seconds of each stage when it ends, and what follows it, to standard error."""
    share, current, start = Share(), "load", 0.0

    def ended(following: str) -> None:
        nonlocal start
        print(f"{current}: {share.seconds - start:.1f} s; {following}", file=sys.stderr, flush=True)
        start = share.seconds

    def report(stage: str, done: int, total: int) -> None:
        nonlocal current
        share.after(stage, done, total)
        if stage != current:
            ended(", ".join(filter(None, (f"next: {stage}", share.left()))))
            current = stage

    yield report
    ended(f"{share.seconds:.1f} s in all")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # the stream is closed
        return False


def _ignored(stage: str, done: int, total: int) -> None:
    """Does nothing."""
