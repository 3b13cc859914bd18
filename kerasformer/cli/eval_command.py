"""`kerasformer eval`, which scores models on labelled texts, and summaries and translations beside baselines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerasformer import __version__
from kerasformer.arguments import check, integer, optional
from kerasformer.cli.console import Json, Stages, Threads, one_of, open_pipeline, preset_names, print_json, say, table
from kerasformer.cli.declared_options import setting_of
from kerasformer.errors import InputError
from kerasformer.tasks import of_prefix

if TYPE_CHECKING:
    from kerasformer.evaluation import Evaluation, Example


def eval(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Bundles, checkpoint folders, presets or hub ids.", autocompletion=preset_names),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="File of texts with labels or references: TSV, CSV or JSONL; or plain lines, for text generation or "
            "with --references."
        ),
    ] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(help="File with the reference of each line of --data; may be repeated."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Such as summarization or translation; the task of the model by default.",
            autocompletion=one_of("summarization", "translation"),
        ),
    ] = None,
    tldr: Annotated[
        list[str] | None,
        typer.Option(
            help='Decoder that continues each text after "TL;DR:", as a baseline of summarization; may be repeated.',
            autocompletion=preset_names,
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the texts in --data: a name, or a number starting at 1.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the labels or references: a name, or a number starting at 1.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Number of texts to use, from the first.")] = None,
    batch_size: Annotated[int, typer.Option(help="Number of texts in one batch, for generated texts.")] = 8,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting of generation as name=value, such as num_beams=4; may be repeated."),
    ] = None,
    bleu_tokenizer: Annotated[
        str | None,
        typer.Option(help="Tokenizer of BLEU, such as zh or ja-mecab; by default suitable for the script."),
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="Write the texts of all models and baselines to this file, as JSONL.")
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Score models on your own texts, with the metrics of their task.

    These are accuracy and F1 of labels, spans and entities, the perplexity of text generation, and for summaries and
    translations ROUGE, BLEU and chrF, beside baselines. The baseline of summarization is the first three sentences of
    each text (lead-3), that of translation the source.
    """
    from kerasformer.evaluation import TEXT_TASKS, TaskEvaluation, TextEvaluation

    check("batch_size", batch_size, integer(1))
    sources, tldr = sources or [], tldr or []
    if tldr and (task or "summarization") != "summarization":
        raise InputError(f"--tldr is a baseline of summarization. Received: --task {task}")
    if not (sources or task or tldr):
        raise InputError("A source, or --task … for the baselines alone, was expected. Received: none")
    if outputs is not None and (outputs.is_dir() or not outputs.absolute().parent.is_dir()):
        raise InputError(f"--outputs must be the path of a file in an existing folder. Received: {outputs}")
    settings = dict(map(setting_of, set_ or ()))
    examples = _read(data, references, text_column, label_column)[: check("limit", limit, optional(integer(1)))]
    with Stages(quiet=as_json) as stages:
        first = None if task or tldr else open_pipeline(sources[0], num_threads=threads)
        task = task or ("summarization" if first is None else first.task)
        writes = of_prefix(task) in TEXT_TASKS
        options: dict[str, Any] = {"settings": settings, "batch_size": batch_size} if writes else {}
        if not writes:
            _refuse(task, sources, set_=set_, references=references, bleu_tokenizer=bleu_tokenizer, outputs=outputs)
        evaluation = TextEvaluation(task, examples, bleu_tokenizer) if writes else TaskEvaluation(task, examples)
        for source in sources:
            stages("load", 0, 0)
            pipe, first = first or open_pipeline(source, task, num_threads=threads), None
            evaluation.add_model(source, pipe, progress=partial(stages, source), **options)
            del pipe  # before the next one is loaded
        if isinstance(evaluation, TextEvaluation):
            evaluation.add_baselines()
            for decoder in tldr:
                stages("load", 0, 0)
                pipe = open_pipeline(decoder, "text-generation", num_threads=threads)
                evaluation.add_tldr(decoder, pipe, batch_size=batch_size, progress=partial(stages, decoder))
                del pipe
            if outputs is not None:
                lines = [json.dumps(row, ensure_ascii=False) for row in evaluation.rows()]
                outputs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if as_json:
        print_json({**evaluation.to_dict(), "data": str(data), "kerasformer": __version__})
    else:
        _print(evaluation, data)


def _read(
    data: Path | None, references: Sequence[str] | None, text_column: str | None, label_column: str | None
) -> list[Example]:
    from kerasformer.evaluation import read_examples, read_parallel

    if data is None:
        raise InputError("A file of texts with references was expected. Received: none. Pass --data …")
    if not references:
        return read_examples(data, text_column, label_column)
    if text_column is not None or label_column is not None:
        raise InputError(
            "The files of --references are plain lines, without columns. Received: --text-column or --label-column"
        )
    return read_parallel(data, references)


def _refuse(task: str, sources: Sequence[str], **options: Any) -> None:
    """Refuses what only summarization and translation have: baselines without a model, and these options."""
    unused = [f"--{name.strip('_').replace('_', '-')}" for name, value in options.items() if value]
    if unused:
        raise InputError(f"{', '.join(unused)}: only for summarization and translation. Received: the task {task}")
    if not sources:
        raise InputError(
            "A source was expected, since only summarization and translation have baselines without a model. "
            f"Received: --task {task} alone"
        )


def _print(evaluation: Evaluation, data: Path | None) -> None:
    """Prints a row for each model and baseline, then the settings of the metrics."""
    from kerasformer.bundle import quality_text

    names = list(evaluation.systems[0].figures)
    rows = [
        [
            f"{each.name} (baseline)" if each.is_baseline else each.name,
            *(quality_text(name, each.figures[name]) for name in names),
        ]
        for each in evaluation.systems
    ]
    table(f"{evaluation.task} on {len(evaluation.examples):,} texts of {data}", ["model", *names], rows)
    for name, signature in evaluation.signatures.items():
        say(f"{name}: {signature}")
