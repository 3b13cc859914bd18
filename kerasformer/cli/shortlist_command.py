"""`kerasformer shortlist`, which learns the tokens that a translation may contain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.arguments import check, integer, optional
from kerasformer.cli.console import Json, Source, Stages, Threads, open_pipeline, print_json, say, table
from kerasformer.errors import InputError


def shortlist(
    source: Source,
    destination: Annotated[Path, typer.Argument(help="File to write.")],
    texts: Annotated[
        list[Path],
        typer.Option(
            help="File of texts with their translations: TSV, CSV or JSONL; or of plain lines, which the model "
            "translates; may be repeated."
        ),
    ],
    text_column: Annotated[
        str | None, typer.Option(help="Column of the texts in --texts: a name, or a number starting at 1.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the translations in --texts: a name, or a number starting at 1.")
    ] = None,
    max_candidates: Annotated[int, typer.Option(help="Maximum number of candidates for a token of the source.")] = 100,
    num_frequent: Annotated[int, typer.Option(help="Number of candidates for all texts: the most frequent tokens.")] = (
        500
    ),
    prefix: Annotated[str | None, typer.Option(help="Task prefix to put before each text.")] = None,
    src_lang: Annotated[str | None, typer.Option(help="Language of the texts.")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="Language of the translations.")] = None,
    limit: Annotated[int | None, typer.Option(help="Number of texts to use, from the first.")] = None,
    task: Annotated[str | None, typer.Option(help="Task of the model; its own by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Learn a vocabulary shortlist: the tokens that each token of a text may be translated to.

    With kerasformer run --shortlist, a translation contains only the candidates for its text. The file can also be the
    vmap.txt of a model of CTranslate2.
    """
    if destination.is_dir() or not destination.absolute().parent.is_dir():
        raise InputError(f"The path of a file in an existing folder was expected. Received: {destination}")
    if destination.exists() and not overwrite:
        raise InputError(f"A new file was expected. Received: {destination}, which exists. Try --overwrite")
    pairs = _pairs(texts, text_column, label_column)[: check("limit", limit, optional(integer(1)))]
    with Stages(quiet=as_json) as stages:
        stages("load", 0, 0)
        pipe = open_pipeline(task, source, threads)
        if not hasattr(pipe, "learn_shortlist"):
            raise InputError(f"A model that writes one text from another was expected. Received: one for {pipe.task}")
        stages("learn", 0, 0)
        inputs, results = map(list, zip(*pairs, strict=True))
        languages = {"prefix": prefix, "src_lang": src_lang, "tgt_lang": tgt_lang}
        sizes = {"max_candidates": max_candidates, "num_frequent": num_frequent}
        learned = pipe.learn_shortlist(inputs, None if results[0] is None else results, **languages, **sizes)
        learned.write(destination)
    figures = {"texts": len(pairs), "source_tokens": len(learned), "vocabulary": pipe.tokenizer.vocab_size}
    if as_json:
        print_json({"file": str(destination), **figures})
        return
    table(str(destination), ["figure", "value"], [[key.replace("_", " "), f"{n:,}"] for key, n in figures.items()])
    say("Texts with other tokens than these source tokens are written with the whole vocabulary.")


def _pairs(files: list[Path], text_column: str | None, label_column: str | None) -> list[tuple[str, Any]]:
    """Returns the texts of all files, with their first translations or, if no text has any, with `None`."""
    from kerasformer.evaluation import read_examples

    pairs = []
    for example in (example for file in files for example in read_examples(file, text_column, label_column)):
        label = example.label[0] if isinstance(example.label, list | tuple) and example.label else example.label
        pairs.append((example.text, None if label is None else str(label)))
    missing = [text for text, label in pairs if label is None]
    if missing and len(missing) < len(pairs):
        raise InputError(
            f"All texts or none must have translations. Received: {len(missing)} of {len(pairs)} without, such as "
            f"{missing[0]!r:.80}"
        )
    return pairs
