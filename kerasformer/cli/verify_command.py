"""`kerasformer verify`, which compares a bundle with its Keras model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.cli.console import Json, Threads, print_json, say, table
from kerasformer.errors import BundleError


def verify(
    source: Annotated[str, typer.Argument(help="A bundle.")], threads: Threads = None, as_json: Json = False
) -> None:
    """Compare a bundle with its Keras model.

    The answers of the Keras model are recorded in the bundle, so that Keras is not needed.
    """
    from kerasformer import bundle, process
    from kerasformer.files import sources

    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        raise BundleError(
            f"A bundle was expected, which has recorded answers of its Keras model. Received: the checkpoint {folder}. "
            "To evaluate it on texts: kerasformer eval SOURCE --data FILE"
        )
    from kerasformer.bundle import figure_rows
    from kerasformer.engines import open_engine
    from kerasformer.engines import verify as compare
    from kerasformer.pipelines import QUALITY, compare_quality, pipeline_of
    from kerasformer.tokenization import Tokenizer

    def opened(folder: Path, manifest: Any) -> tuple[Any, ...]:
        references = bundle.read_references(folder)
        tokenizer = Tokenizer.load(folder) if QUALITY in references else None
        return manifest, open_engine(folder, manifest, threads), tokenizer, references

    with process.compact_loading():
        manifest, engine, tokenizer, references = bundle.load(folder, opened)
    limits, verification = manifest.promise, compare(engine, manifest, references)
    figures, failed = verification.fidelity, verification.failed(limits)
    if QUALITY in references:
        pipe = pipeline_of(engine, manifest.info, tokenizer)
        figures = replace(figures, quality=compare_quality(pipe, references))
    if as_json:
        steps = {name: step.to_dict() for name, step in verification.steps.items()}
        print_json({**figures.to_dict(), "steps": steps, "faithful": not failed})
    else:
        name = manifest.recipe.get("name", "")
        table(f"{folder}: {manifest.format} {name} against Keras", ["measure", "value"], figure_rows(figures.to_dict()))
        say(verification.verdict(limits))
    if failed:
        raise typer.Exit(1)
