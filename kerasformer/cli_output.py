"""What commands print: tables, JSON, errors; and not what other libraries say while they are imported."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()
errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Source = Annotated[str, typer.Argument(help="A checkpoint folder, a preset, a hub id or a bundle.")]
Task = Annotated[str | None, typer.Option(help="Hugging Face's task name; the source's own by default.")]


def import_keras(extra: str) -> None:
    """Imports Keras and its backend, without the messages that TensorFlow's libraries write before any setting."""
    from kerasformer.errors import require

    if os.environ.get("KERASFORMER_DEBUG"):
        require("keras", extra)
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            require("keras", extra)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def print_json(content: Any) -> None:
    """Prints JSON that other programs can read."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """NumPy values as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"not JSON: {type(value).__name__}")


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Prints a table; long cells are folded."""
    console.print(f"[bold]{escape(title)}[/]")
    shown = Table()
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    console.print(shown)


class Stages:
    """A progress line for what takes a while: the stage, and how much of it is done where that is known."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
        self._row = self._progress.add_task("load", total=None)

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Shows a stage."""
        self._progress.update(self._row, description=stage, completed=done, total=total or None)
