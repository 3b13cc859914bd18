"""`kerasformer sweep`: one text with several settings of decoding, in one table and one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerasformer.cli.console import Json, Source, Task, open_pipeline, print_json, say, table


def sweep(
    source: Source,
    text: Annotated[str, typer.Argument(help="The prompt, or the input of the encoder.")],
    task: Task = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting to compare: greedy, or name=value, with commas between several. May be repeated. By "
            "default: greedy search, beams, penalties, temperatures, top-k and top-p.",
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Maximum number of new tokens.", min=1)] = 40,
    samples: Annotated[int, typer.Option(help="Number of texts of each setting that samples.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first sample.", min=0)] = 0,
    picture: Annotated[Path | None, typer.Option(help="Draw the figures to this file, .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Compare settings of decoding: text, likelihood, repetition, diversity and time of each.

    The log-probability is that of the model itself, without rules and filters. rep-3 is the share of trigrams that
    occurred before; distinct-n is the number of distinct n-grams for each token. All count tokens of the model.
    """
    from kerasformer.evaluation.decoding_sweep import parsed
    from kerasformer.evaluation.decoding_sweep import sweep as compare
    from kerasformer.viz import check_picture

    if picture is not None:
        check_picture(picture)
    settings = [parsed(option) for option in set_] if set_ else None
    pipe = open_pipeline(source, task)
    swept = compare(pipe, text, settings, samples=samples, seed=seed, max_new_tokens=max_new_tokens)
    if picture is not None:
        swept.picture(picture, f"After “{text[:60]}”")
    if as_json:
        print_json(swept.to_dict())
        return
    columns, rows = swept.table()
    table(f"{source} on {swept.engine}", columns, rows)
    if any(len(row.texts) > 1 for row in swept.rows):
        say("Of several texts, the first one is shown; the figures are those of all.")
