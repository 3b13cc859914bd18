"""Progress of an export: stages that are passed to a function, or a progress bar on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
        progress: A function; `False` for no report; `None` or `True` for a progress bar on standard error if it is a
            terminal.
    """
    if callable(progress):
        yield progress
        return
    if progress is False or not _is_terminal(sys.stderr):
        yield _ignored
        return
    with _bar() as bar:
        yield bar


class Share:
    """Share of the work that is done; it never decreases."""

    def __init__(self) -> None:
        self.value = 0.0

    def after(self, stage: str, done: int, total: int) -> float:
        """Updates and returns the share, given how much of a stage is done."""
        start, end = _SHARES.get(stage, (self.value, self.value))
        self.value = max(self.value, start + (end - start) * (min(done / total, 1.0) if total else 0.0))
        return self.value


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
    with Rows(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as rows:
        row = rows.add_task("load", total=1.0, sizes="")

        def report(stage: str, done: int, total: int) -> None:
            completed = share.after(stage, done, total)
            rows.update(row, description=stage, completed=completed, sizes=sizes(stage, done, total))

        yield report


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # the stream is closed
        return False


def _ignored(stage: str, done: int, total: int) -> None:
    """Does nothing."""
