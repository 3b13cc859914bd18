"""What commands print: tables, JSON, errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kerasformer.errors import require

console = Console()
errors = Console(stderr=True)


def one_of(*choices: str) -> Callable[[str], list[str]]:
    """Completes a word in the shell with what begins like it."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def preset_names(incomplete: str) -> list[str]:
    """Completes the name of a preset; where none fits, the shell goes on with files."""
    from kerasformer import sources

    return one_of(*sources.presets())(incomplete)


def task_names(incomplete: str) -> list[str]:
    """Completes the name of a task."""
    from kerasformer.pipelines import PIPELINES

    return one_of(*PIPELINES)(incomplete)


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Source = Annotated[
    str, typer.Argument(help="A checkpoint folder, a preset, a hub id or a bundle.", autocompletion=preset_names)
]
Task = Annotated[
    str | None,
    typer.Option(help="Hugging Face's task name; the source's own by default.", autocompletion=task_names),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads; the runtime's own choice by default.")]


def open_pipeline(task: str | None, source: str, threads: int | None) -> Any:
    """The pipeline of a source, opened with settings that suit a process with nothing else in it."""
    from kerasformer import process, sources
    from kerasformer.pipelines import pipeline

    if sources.kind(sources.resolve(source)) == "checkpoint":
        require("keras", "tensorflow")
        return pipeline(task, source, num_threads=threads)
    with process.compact_loading():
        return pipeline(task, source, num_threads=threads)


def print_json(content: Any) -> None:
    """Prints JSON that other programs can read."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """NumPy values as JSON knows them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"not JSON: {type(value).__name__}")


def print_json_line(content: Any) -> None:
    """Prints JSON in one line, at once: who reads it may be waiting."""
    print(json.dumps(content, ensure_ascii=False, default=_plain), flush=True)


def say(text: str) -> None:
    """Prints a sentence as it is; nothing is wrapped, for a line may be a path or go to another program."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def print_error(message: str) -> None:
    """Prints an error, in one line."""
    errors.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True, highlight=False)


def print_warning(message: str) -> None:
    """Prints a warning, in one line."""
    errors.print(f"[yellow]Warning:[/] {escape(message)}", soft_wrap=True, highlight=False)


def on_terminal() -> bool:
    """Whether a person reads what is printed; otherwise it goes to a file or another program."""
    return sys.stdout.isatty()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table: drawn and folded on a terminal; elsewhere a row a line, with tabs between its cells."""
    if not on_terminal():
        say(title)
        for row in [columns, *rows]:
            print_row(row)
        return
    console.print(f"[bold]{escape(title)}[/]")
    shown = Table()
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    console.print(shown)


def print_row(row: Sequence[Any]) -> None:
    """Prints cells with tabs between them, at once; a tab or the end of a line within a cell becomes a space."""
    print("\t".join(str(cell).translate(_ONE_CELL) for cell in row), flush=True)


_ONE_CELL = str.maketrans("\t\n\r", "   ")


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
