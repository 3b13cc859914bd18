"""`kerasformer explain`, which writes a page that shows what happens inside of a model while it reads a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerasformer.cli.console import Source, Stages, one_of, say
from kerasformer.errors import require

VIEWS = ("heads", "model", "neurons", "alignment", "rollout", "statistics")
KINDS = ("encoder", "decoder", "cross")


def explain(
    source: Source,
    text: Annotated[str, typer.Argument(help="The text that the model reads.")],
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Second text of a pair; of a decoder, the continuation; of an encoder-decoder, what it writes, "
            "by default what it generates greedily.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="File: .html for a page, .png or .svg for a picture of one view.")] = Path(
        "view.html"
    ),
    view: Annotated[
        str | None,
        typer.Option(help=f"View that is shown first: {', '.join(VIEWS)}.", autocompletion=one_of(*VIEWS)),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer that is shown first, starting at 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head that is shown first, starting at 0; all by default.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help=f"Attention that is shown first: {', '.join(KINDS)}.", autocompletion=one_of(*KINDS)),
    ] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="Use dark colours in a picture; a page follows its reader.")
    ] = False,
) -> None:
    """Show the attention of a model while it reads a text or a pair of texts, as one page that opens from a file.

    A bundle shows its own attention if it was exported with --outputs attentions.
    """
    from kerasformer.files import sources
    from kerasformer.interpretability.attention import attention
    from kerasformer.viz.attention import check_view_path

    check_view_path(out)
    if sources.kind(sources.resolve(source)) == "checkpoint":
        require("keras", "tensorflow")
    with Stages() as stages:
        stages("read", 0, 0)
        computed = attention(source, text, second)
        written = computed.views(view, layer, head, kind).save(out, dark)
    say(f"{written}: {computed.summary}")
