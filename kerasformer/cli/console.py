"""Output of commands (tables, JSON, errors, progress), and options that several commands share."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kerasformer.extras import require

console = Console()
errors = Console(stderr=True)


def one_of(*choices: str) -> Callable[[str], list[str]]:
    """Returns a function for shell completion that selects the choices with a prefix."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def preset_names(incomplete: str) -> list[str]:
    """Completes the name of a preset or of a published model; if there is none, the shell completes file names."""
    from kerasformer.files import sources
    from kerasformer.files.named_models import MODELS

    return one_of(*sources.presets(), *MODELS)(incomplete)


def task_names(incomplete: str) -> list[str]:
    """Completes the name of a task."""
    from kerasformer.pipelines import PIPELINES

    return one_of(*PIPELINES)(incomplete)


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Source = Annotated[
    str,
    typer.Argument(
        help="A bundle, checkpoint folder, GGUF file, preset, published name or hub id.", autocompletion=preset_names
    ),
]
Checkpoint = Annotated[
    str, typer.Argument(help="A checkpoint folder, GGUF file, preset or hub id.", autocompletion=preset_names)
]
Task = Annotated[
    str | None,
    typer.Option(help="Hugging Face task name; the task of the model by default.", autocompletion=task_names),
]
Threads = Annotated[
    int | None, typer.Option("--num-threads", help="Number of CPU threads; the runtime's default otherwise.")
]


def needs_keras(source: str) -> bool:
    """Returns whether a source is a checkpoint, and not a bundle, after a check that Keras is installed for it."""
    from kerasformer.files import sources

    is_checkpoint = sources.kind(sources.resolve(source)) == "checkpoint"
    if is_checkpoint:
        require("keras", "tensorflow")
    return is_checkpoint


def open_pipeline(source: str, task: str | None = None, **options: Any) -> Any:
    """Opens the pipeline of a source, with settings of the process that suit a command."""
    from kerasformer import process
    from kerasformer.pipelines import pipeline

    with (
        nullcontext() if needs_keras(source) else process.compact_loading(),
        waiting(f"Loading {source}…"),
    ):
        return pipeline(source, task, **options)


def waiting(what: str) -> AbstractContextManager[object]:
    """Shows on a terminal what a command waits for, on standard error, until the end of the block."""
    return errors.status(escape(what)) if errors.is_terminal else nullcontext()


def lines_of_stdin() -> Iterator[bytes]:
    """Yields the lines of standard input as soon as they arrive, without their ends.

    They are bytes, so that a line that is not UTF-8 is an error of that line alone.
    """
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def print_json(content: object) -> None:
    """Prints indented JSON."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    """Converts NumPy values for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value that JSON supports was expected. Received: {type(value).__name__}")


def print_json_line(content: object) -> None:
    """Prints JSON in one line, unbuffered, since the reader may be waiting for it."""
    print(json.dumps(content, ensure_ascii=False, default=_plain), flush=True)


def say(text: str) -> None:
    """Prints text without wrapping or markup, since it may contain paths or be read by another program."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def print_error(message: str) -> None:
    """Prints an error, in one line."""
    errors.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True, highlight=False)


def print_warning(message: str) -> None:
    """Prints a warning, in one line."""
    errors.print(f"[yellow]Warning:[/] {escape(message)}", soft_wrap=True, highlight=False)


@contextmanager
def delayed_warnings() -> Iterator[None]:
    """Shows warnings at the end of the block, which prints a line piece by piece, and not in the middle of the line."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        warnings.showwarning(each.message, each.category, each.filename, each.lineno)


def on_terminal() -> bool:
    """Returns whether standard output is a terminal, rather than a file or a pipe."""
    return sys.stdout.isatty()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], compact: bool = False) -> None:
    """Prints a table: formatted on a terminal; otherwise one row per line, with tab-separated cells.

    Args:
        title: Heading.
        columns: Names of the columns.
        rows: Cells of each row.
        compact: Draw no lines between columns, for tables that are wide or one of several.
    """
    if not on_terminal():
        say(title)
        for row in [columns, *rows]:
            print_row(row)
        return
    console.print(f"[bold]{escape(title)}[/]")
    formatted = Table(box=SIMPLE_HEAD, padding=(0, 1)) if compact else Table()
    for column in columns:
        formatted.add_column(column, overflow="fold")
    for row in rows:
        formatted.add_row(*(escape(str(cell)) for cell in row))
    console.print(formatted)


def print_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table on a terminal, without the last columns if no row has them; otherwise rows alone, one by one."""
    if on_terminal():
        shown = list(rows)
        table(title, columns[: max(map(len, shown), default=0)], shown)
        return
    for row in rows:
        print_row(row)


def print_row(row: Sequence[object]) -> None:
    """Prints tab-separated cells, unbuffered; tabs and line ends within a cell become spaces."""
    print("\t".join(str(cell).translate(_ONE_CELL) for cell in row), flush=True)


_ONE_CELL = str.maketrans("\t\n\r", "   ")


class Stages:
    """Progress line that shows the current stage, and the completed share if it is known."""

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
