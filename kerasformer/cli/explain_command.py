"""`kerasformer explain`, which writes a page that shows what happens inside of a model while it reads a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.cli.console import Source, Stages, needs_keras, one_of, say
from kerasformer.errors import InputError
from kerasformer.tools.viz.attention_names import KINDS, VIEWS, view_options


def explain(
    source: Source,
    text: Annotated[str | None, typer.Argument(help="The text that the model reads; optional with --site.")] = None,
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Second text of a pair; of a decoder, the continuation; of an encoder-decoder, what it writes, "
            "by default what it generates greedily.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File: .html for a page, .png or .svg for a picture of one view; view.html by default."),
    ] = None,
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
    site: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with six panels to this folder or .html file: tokens, attention, layers, probabilities, "
            "beams, and the model in float32, int8 and int4."
        ),
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", help="Further text of the page of --site; may be given several times.")
    ] = None,
    bundles: Annotated[
        list[Path] | None,
        typer.Option(
            "--bundle",
            help="Bundle that --site compares, instead of those that it exports; may be given several times.",
        ),
    ] = None,
) -> None:
    """Show why a model answers as it does, and its attention, as one page that opens from a file.

    A bundle shows its own attention if it was exported with --outputs attentions. With --site, the page shows more than
    attention; texts are then sample texts of the model's task unless there are others.
    """
    if site is not None:
        _refuse("--site", out=out, view=view, layer=layer, head=head, kind=kind, dark=dark or None)
        _write_site(source, site, text, second, texts or [], bundles)
        return
    _refuse("a view of attention", text=texts, bundle=bundles)
    if text is None:
        raise InputError("A text was expected, or --site for a page with sample texts. Received: none")
    from kerasformer.tools.interpretability.attention_sources import KerasSource, open_attention
    from kerasformer.tools.viz.attention import check_view_path

    out = out or Path("view.html")
    check_view_path(out)
    view_options(view, layer, head, kind)
    needs_keras(source)
    with Stages() as stages:
        stages("read", 0, 0)
        reader = open_attention(source)
        computed = reader.read(text, second)
        views = computed.views(view, layer, head, kind)
        if isinstance(reader.source, KerasSource) and view is None and out.suffix.lower() == ".html":
            stages("find reasons", 0, 0)
            views = replace(views, reason=_reason(reader.source.model, text, second))
        views.save(out, dark)
    say(f"{out}: {computed.summary}")


def _reason(model: Any, text: str, second: str | None) -> str:
    """Returns what each word adds to the answer, as HTML; nothing where answers are no scores, or of two texts."""
    from kerasformer.tools.interpretability.attribution import attribute

    try:
        return attribute(model, text, second).html()
    except InputError:
        return ""


def _refuse(mode: str, **options: object) -> None:
    """Refuses options that would have no effect."""
    received = [f"--{name}" for name, value in options.items() if value is not None]
    if received:
        raise InputError(f"{', '.join(received)} cannot be used with {mode}. Received: {' '.join(received)}")


def _write_site(
    source: str, site: Path, text: str | None, second: str | None, others: list[str], bundles: list[Path] | None
) -> None:
    from kerasformer.tools.interpretability.explainer import write_site
    from kerasformer.tools.interpretability.explainer.precision import named

    needs_keras(source)
    first = [] if text is None else [text if second is None else (text, second)]
    with Stages() as stages:
        file = write_site(
            source,
            site,
            texts=[*first, *others] or None,
            bundles=None if bundles is None else named(bundles),
            progress=stages,
        )
    say(f"{file}: {file.stat().st_size / 1e6:.1f} MB. Open it in a browser: {file.absolute().as_uri()}")
