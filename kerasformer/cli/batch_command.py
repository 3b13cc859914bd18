"""`kerasformer batch`, which runs a model on files that are larger than memory, on several processes or machines."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kerasformer.cli.console import Json, Source, Stages, Task, Threads, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.decoding import GenerationConfig


@with_options([GenerationConfig], "max_new_tokens", shows_defaults=False)
def batch(
    source: Source,
    inputs: Annotated[
        str, typer.Argument(metavar="INPUT", help="File or folder of JSON lines, also compressed as .gz, or Parquet.")
    ],
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Folder of the results; that of a run that was stopped continues.")
    ],
    task: Task = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column of the texts [default: text]; repeated for the second text of pairs and contexts."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of the names of new columns.")] = "result",
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, each of which opens the model.")] = 1,
    address: Annotated[
        str | None,
        typer.Option(help="Address of a cluster of Ray, such as auto; by default, Ray is started on this machine."),
    ] = None,
    block_rows: Annotated[
        int, typer.Option(min=1, help="Rows of a block, which is done again if its worker is killed.")
    ] = 1000,
    num_threads: Threads = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Run a model on files of rows that are larger than memory, on several processes or a cluster.

    OUTPUT has a file for each block of rows, with all columns of the input and those of the results, in the order of
    the input. Rows that fail are kept aside in OUTPUT/_run/errors.jsonl. The same command continues a run that was
    stopped. Needs the extra ray.
    """
    from kerasformer.integrations.batch import batch as run
    from kerasformer.integrations.ray import ColumnModel, on_ray

    settings = passed({**options, "num_threads": num_threads})
    model = ColumnModel(source, task, columns=column or None, prefix=prefix, **settings)
    # Ray prints notices, such as that of a killed worker, where the command prints its report.
    with redirect_stdout(sys.stderr), Stages(quiet=as_json) as stages:
        report = run(model, inputs, output, on_ray(workers, address), block_rows=block_rows, progress=stages)
    rate = report.new.rows / report.seconds
    if as_json:
        figures = {**asdict(report.total), "blocks": report.blocks, "new_rows": report.new.rows}
        errors = None if report.errors is None else str(report.errors)
        print_json({**figures, "seconds": report.seconds, "rows_per_second": rate, "errors": errors})
        return
    rows = [
        ["rows", f"{report.total.rows:,}"],
        ["failed", f"{report.total.failed:,}"],
        ["tokens", f"{report.total.tokens:,}"],
        ["core seconds", f"{report.total.core_seconds:,.1f}"],
        ["rows of this run", f"{report.new.rows:,}"],
        ["seconds of this run", f"{report.seconds:,.1f}"],
        ["rows per second", f"{rate:,.1f}"],
    ]
    table(output, ["measure", "value"], rows)
    if report.errors is not None:
        say(f"{report.total.failed:,} rows failed and are in {report.errors}")
