"""`kerasformer bench`, which measures models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.basics.command_options import BenchOptions
from kerasformer.cli.console import Stages, say, table
from kerasformer.cli.declared_options import passed, with_options


@with_options([BenchOptions])
def bench(
    sources: Annotated[list[str], typer.Argument(help="Bundles, checkpoint folders, presets or hub ids.")],
    card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Measure a bundle in every engine that it has files for, also onnxruntime-genai or LiteRT-LM if they "
            "are installed, and write the figures and the fastest into its card, README.md.",
        ),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file as JSON, or print them with -.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw a bar chart to this file, .png or .svg.")] = None,
    **options: Any,
) -> None:
    """Measure speed, latency, load time, memory and size.

    Each source runs in a separate process.
    """
    from kerasformer.files.sources import resolve
    from kerasformer.tools.bench import bench as measure
    from kerasformer.tools.bench.card import write_speed
    from kerasformer.tools.bench.picture import check_picture, draw, panels_of
    from kerasformer.tools.bench.report import note, tables

    if picture is not None:
        check_picture(picture)
    to_stdout = json_file is not None and str(json_file) == "-"
    with Stages(quiet=to_stdout) as stages:
        report = measure(sources, **passed(options), engines=card, progress=stages)
    if card:
        write_speed(resolve(sources[0]), report)
    if picture is not None:
        draw("kerasformer bench", panels_of(report), picture, note(report))
    if json_file is not None and not to_stdout:
        report.write(json_file)
    if to_stdout:
        print(report.to_json(), end="")
        return
    for title, columns, rows in tables(report):
        table(title, columns, rows)
    for engine, reason in report.not_measured.items():
        say(f"{engine} was not measured: {reason}")
    say(note(report))
