"""`kerasformer anatomy`: what a model is made of, as a table and as a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerasformer.cli.console import Json, Task, preset_names, print_json, say, table


def anatomy(
    source: Annotated[
        str,
        typer.Argument(
            help="A checkpoint folder, preset, hub id, bundle, GGUF file or file config.json, which needs no weights.",
            autocompletion=preset_names,
        ),
    ],
    task: Task = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the drawing (.svg), the table (.txt) or all values (.json).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a model is made of: its blocks with shapes, parameters and multiply-adds.

    Everything is computed from the configuration, without weights: bytes with each recipe, multiply-adds, and the cache
    of each token. --out draws the blocks as a textbook does.
    """
    from kerasformer.interpretability.anatomy import anatomy as describe
    from kerasformer.interpretability.anatomy import check_file

    if out is not None:
        check_file(out)
    described = describe(source, task)
    if out is not None:
        described.save(out)
    if as_json:
        print_json(described.to_dict())
        return
    columns = ["part", "block", "output", "parameters", "multiply-adds / token"]
    table(f"{described.name}: {described.architecture}, {described.task}", columns, described.rows())
    table("Whole model", ["figure", "value"], [list(fact) for fact in described.facts()])
    say("Multiply-adds of attention grow with the number of tokens that a token attends to.")
