"""`kerasformer shrink`, which cuts a model and distils it from the original after each cut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.basics.command_options import CutOptions, ShrinkOptions
from kerasformer.cli.console import Checkpoint, Json, Stages, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.extras import require
from kerasformer.process import keep_memory


@with_options(
    [ShrinkOptions, CutOptions],
    "to",
    "layers",
    "decoder_layers",
    "heads",
    "width",
    "neurons",
    "vocab",
    "quantize",
    "format",
    "epochs",
    "batch_size",
    "task",
)
def shrink(
    source: Checkpoint,
    destination: Annotated[Path, typer.Argument(help="Folder to write, which must be empty or not exist.")],
    data: Annotated[
        Path | None,
        typer.Option(help="File of texts, with or without labels: plain lines, TSV, CSV or JSONL. Optional for --to."),
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Make a model small: cut it step by step, and distil it from the original after each cut.

    The steps are, as far as options ask for them: vocabulary, layers, heads and width, neurons, and training with
    rounded weights. A run that was stopped continues where it was if it is started again; the folder DESTINATION.work
    keeps what it has done. With --to static, a model for embeddings becomes a table of token vectors in minutes.
    """
    require("keras", "tensorflow")
    from kerasformer.tools.training import shrink

    with keep_memory(), Stages(quiet=as_json) as stages:
        steps = shrink(source, destination, data, **passed(options), progress=stages)
    if as_json:
        print_json({"folder": str(destination), "steps": [step.to_dict() for step in steps]})
        return
    names = list(dict.fromkeys(name for step in steps for name in step.figures))
    rows = [
        [
            step.name,
            f"{step.parameters:,}",
            f"{step.int8_bytes / 1e6:.2f}",
            f"{step.milliseconds:.2f}",
            *(f"{step.figures[name]:.4f}" if name in step.figures else "" for name in names),
        ]
        for step in steps
    ]
    table(str(destination), ["step", "parameters", "MB in int8", "ms a text in Keras", *names], rows)
    rounded = steps[-1].name
    if rounded == "static":
        say(f"kerasformer export {destination} BUNDLE --format table --quantize int8")
    if rounded in ("int8", "int4"):
        format = f" --format {options['format']}" if options.get("format") else ""
        say(f"kerasformer export {destination} BUNDLE{format} --quantize {rounded}_trained")
