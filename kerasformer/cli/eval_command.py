"""`kerasformer eval`, which scores models on labelled texts, and summaries and translations beside baselines."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kerasformer import __version__
from kerasformer.cli.console import Json, Stages, open_pipeline, preset_names, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.command_options import EvaluationOptions
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError
from kerasformer.options import checked
from kerasformer.tasks import of_prefix

if TYPE_CHECKING:
    from kerasformer.evaluation import Evaluation


@with_options(
    [EvaluationOptions, GenerationConfig],
    "task",
    "references",
    "text_column",
    "label_column",
    "limit",
    "batch_size",
    "num_threads",
    "bleu_tokenizer",
)
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
    tldr: Annotated[
        list[str] | None,
        typer.Option(
            help='Decoder that continues each text after "TL;DR:", as a baseline of summarization; may be repeated.',
            autocompletion=preset_names,
        ),
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="Write the texts of all models and baselines to this file, as JSONL.")
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Score models on your own texts, with the metrics of their task.

    These are accuracy and F1 of labels, spans and entities, the perplexity of text generation, and for summaries and
    translations ROUGE, BLEU and chrF, beside baselines. The baseline of summarization is the first three sentences of
    each text (lead-3), that of translation the source.
    """
    from kerasformer.evaluation import TEXT_TASKS, TaskEvaluation, TextEvaluation, read_data, refuse_ignored

    settings = passed({"set_": options.pop("set_")})
    chosen = cast(EvaluationOptions, checked(EvaluationOptions, passed(options), "an evaluation"))
    threads, task = chosen.get("num_threads"), chosen.get("task")
    sources, tldr = sources or [], tldr or []
    if tldr and (task or "summarization") != "summarization":
        raise InputError(f"--tldr is a baseline of summarization. Received: --task {task}")
    if not (sources or task or tldr):
        raise InputError("A source, or --task … for the baselines alone, was expected. Received: none")
    if outputs is not None and (outputs.is_dir() or not outputs.absolute().parent.is_dir()):
        raise InputError(f"--outputs must be the path of a file in an existing folder. Received: {outputs}")
    if data is None:
        raise InputError("A file of texts with references was expected. Received: none. Pass --data …")
    examples = read_data(data, None, chosen)
    with Stages(quiet=as_json) as stages:
        first = None if task or tldr else open_pipeline(sources[0], num_threads=threads)
        task = task or ("summarization" if first is None else first.task)
        writes = of_prefix(task) in TEXT_TASKS
        if not writes:
            refuse_ignored(task, {**chosen, "settings": settings})
            if outputs is not None or not sources:
                lacks = "no texts for --outputs" if sources else "no baselines without a model"
                raise InputError(f"{task} has {lacks}. Expected: a source, and no --outputs. Received: --task {task}")
        batch_size = chosen["batch_size"]
        evaluation = (
            TextEvaluation(task, examples, chosen.get("bleu_tokenizer")) if writes else TaskEvaluation(task, examples)
        )
        for source in sources:
            stages("load", 0, 0)
            pipe, first = first or open_pipeline(source, task, num_threads=threads), None
            progress = partial(stages, source)
            evaluation.add_model(source, pipe, settings=settings, batch_size=batch_size, progress=progress)
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
