"""`kerasformer eval`, which scores models on labelled texts beside baselines, and shows what they get wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kerasformer import __version__
from kerasformer.basics.command_options import BaselineOptions, EvaluationOptions
from kerasformer.basics.options import checked, declared
from kerasformer.basics.tasks import without_languages
from kerasformer.cli.console import Json, Stages, open_pipeline, preset_names, print_json, print_warning, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.errors import InputError
from kerasformer.generation import GenerationConfig

if TYPE_CHECKING:
    from kerasformer.tools.evaluation import ClassScores, ConfusionMatrix, Evaluation, Example, System

_VECTORS = ("sentence-similarity", "feature-extraction")
_MOST_CLASSES = 20
"""Number of classes above which confusion matrices are only drawn and written."""


@with_options(
    [EvaluationOptions, BaselineOptions, GenerationConfig],
    "task",
    "references",
    "text_column",
    "label_column",
    "glue",
    "skip_bad",
    "limit",
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
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="Model that makes a baseline; may be repeated. A decoder summarizes by continuing each text after "
            '"TL;DR:". The vectors of an encoder classify by nearest neighbours and by logistic regression, which are '
            "trained on --set train=FILE.",
            autocompletion=preset_names,
        ),
    ] = None,
    errors: Annotated[
        int, typer.Option(min=0, help="Number of texts to print of each model, those of the highest loss first.")
    ] = 0,
    show: Annotated[
        int, typer.Option(min=0, help="Number of texts to print with the reference and the answers of all models.")
    ] = 0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the confusion matrices of classifiers to this file, .png or .svg.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="Write the answers of all models and baselines to this file, as JSONL.")
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Score models on your own texts, with the metrics of their task, beside baselines.

    These are accuracy, F1 and correlations of labels, spans, entities and scores; perplexity and bits per byte of text
    generation; and for summaries and translations ROUGE, BLEU and chrF. The baseline of a classification is the most
    frequent class, that of summarization the first three sentences of each text (lead-3), that of translation the
    source.
    """
    from kerasformer.tools.evaluation import Examples, read_data

    chosen, train, settings = _split(options)
    task = chosen.get("task")
    sources, baseline = sources or [], baseline or []
    if not (sources or task or baseline):
        raise InputError("A source, or --task … for the baselines alone, was expected. Received: none")
    if outputs is not None and (outputs.is_dir() or not outputs.absolute().parent.is_dir()):
        raise InputError(f"--outputs must be the path of a file in an existing folder. Received: {outputs}")
    if picture is not None:
        from kerasformer.tools.viz import check_picture

        check_picture(picture)
    if data is None:
        raise InputError("A file of texts with references was expected. Received: none. Pass --data …")
    examples = read_data(data, None, chosen)
    all_rows = chosen.copy()
    all_rows.pop("limit", None)
    of_train = Examples() if train is None else read_data(train, None, all_rows)
    with Stages(quiet=as_json) as stages:
        evaluation = _evaluated(sources, examples, chosen, settings, bool(baseline), stages)
        _add_baselines(evaluation, baseline, of_train, chosen, stages)
    if not evaluation.systems:
        raise InputError(f"{task} has no baselines without a model. Expected: a source. Received: --task {task}")
    if outputs is not None:
        lines = [json.dumps(row, ensure_ascii=False) for row in evaluation.rows()]
        outputs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if picture is not None:
        _draw(evaluation, picture)
    _print_skipped(examples, of_train)
    if as_json:
        wrong = {each.name: evaluation.errors(each, errors) for each in _models(evaluation)} if errors else {}
        report = {**evaluation.to_dict(), "data": str(data), "skipped": len(examples.skipped)}
        print_json({**report, **({"errors": wrong} if errors else {}), "kerasformer": __version__})
        return
    _print(evaluation, data)
    if errors:
        _print_errors(evaluation, errors)
    if show:
        _print_answers(evaluation, show)


def _split(options: dict[str, Any]) -> tuple[EvaluationOptions, str | Path | None, dict[str, Any]]:
    """Returns the options of the evaluation, the file of training texts, and the settings of the models."""
    settings = passed({"set_": options.pop("set_")})
    values = passed(options)
    values |= {name: settings.pop(name) for name in declared(EvaluationOptions) if name in settings}
    of_baselines = {name: settings.pop(name) for name in declared(BaselineOptions) if name in settings}
    chosen = checked(EvaluationOptions, values, "an evaluation")
    return chosen, checked(BaselineOptions, of_baselines, "baselines").get("train"), settings


def _evaluated(
    sources: Sequence[str],
    examples: Sequence[Example],
    options: EvaluationOptions,
    settings: dict[str, Any],
    with_baselines: bool,
    stages: Stages,
) -> Evaluation:
    """Returns the evaluation of all models.

    Models of baselines follow if `with_baselines`; of the tasks from text to text, only summarization has them.
    """
    from kerasformer.tools.evaluation import TEXT_TASKS, TaskEvaluation, TextEvaluation, is_classified, refuse_ignored

    threads, task = options.get("num_threads"), options.get("task")
    first = open_pipeline(sources[0], task, num_threads=threads) if sources else None
    if task is None and with_baselines and (first is None or first.task == "text2text-generation"):
        task = "summarization"
        first = open_pipeline(sources[0], task, num_threads=threads) if sources else None
    task = task or str(first.task if first else "")
    refuse_ignored(task, {**options, "settings": settings})
    evaluation = (
        TextEvaluation(task, examples, options.get("bleu_tokenizer"))
        if without_languages(task) in TEXT_TASKS and not is_classified(task, examples, options)
        else TaskEvaluation(task, examples, options)
    )
    for source in sources:
        stages("load", 0, 0)
        pipe, first = first or open_pipeline(source, task, num_threads=threads), None
        given: dict[str, Any] = {"batch_size": options["batch_size"], "progress": partial(stages, source)}
        if settings:
            given["settings"] = settings
        evaluation.add_model(source, pipe, **given)
        del pipe  # before the next one is loaded
    return evaluation


def _add_baselines(
    evaluation: Evaluation,
    sources: Sequence[str],
    train: Sequence[Example],
    options: EvaluationOptions,
    stages: Stages,
) -> None:
    """Adds the baselines without a model, and those of the models in `sources`."""
    from kerasformer.tools.evaluation import TaskEvaluation, TextEvaluation

    threads = options.get("num_threads")
    if isinstance(evaluation, TextEvaluation):
        evaluation.add_baselines()
    elif isinstance(evaluation, TaskEvaluation):
        evaluation.add_baselines(train)
    for source in sources:
        stages("load", 0, 0)
        given: dict[str, Any] = {"batch_size": options["batch_size"], "progress": partial(stages, source)}
        if isinstance(evaluation, TextEvaluation):
            evaluation.add_tldr(source, open_pipeline(source, "text-generation", num_threads=threads), **given)
        elif isinstance(evaluation, TaskEvaluation):
            evaluation.add_probes(source, _open_vectors(source, threads), train, **given)


def _open_vectors(source: str, threads: int | None) -> Any:
    """Returns the pipeline of an encoder's embeddings; of its hidden states, if it is for another task."""
    pipe = open_pipeline(source, num_threads=threads)
    return pipe if pipe.task in _VECTORS else open_pipeline(source, "feature-extraction", num_threads=threads)


def _models(evaluation: Evaluation) -> list[System]:
    return [each for each in evaluation.systems if not each.is_baseline]


def _draw(evaluation: Evaluation, picture: Path) -> None:
    """Draws the confusion matrices of all models.

    Raises:
        InputError: there is none.
    """
    from kerasformer.tools.viz import draw_confusion

    found = [(each.name, each.confusion) for each in _models(evaluation)]
    matrices = [(name, matrix.labels, matrix.counts) for name, matrix in found if matrix is not None]
    if not matrices:
        raise InputError(
            "--picture draws the confusion matrices of classifiers with one class for each text. "
            f"Received: no such model, the task {evaluation.task}"
        )
    draw_confusion(matrices, picture)


def _print_skipped(*files: Any) -> None:
    for examples in files:
        if examples.skipped:
            count, (first, *_) = len(examples.skipped), examples.skipped
            print_warning(f"{count} of {count + len(examples):,} rows were skipped. The first: {first}")


def _print(evaluation: Evaluation, data: Path | None) -> None:
    """Prints a row for each model and baseline, then the scores of the classes and the settings of the metrics."""
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
    for each in _models(evaluation):
        if each.classes:
            _print_classes(each.name, each.classes)
        if each.confusion is not None and len(each.confusion.labels) <= _MOST_CLASSES:
            _print_confusion(each.name, each.confusion)
    for name, signature in evaluation.signatures.items():
        say(f"{name}: {signature}")


def _print_classes(name: str, classes: tuple[ClassScores, ...]) -> None:
    rows = [
        [one.label, *(f"{share:.2%}" for share in (one.precision, one.recall, one.f1)), f"{one.support:,}"]
        for one in classes
    ]
    table(f"Classes of {name}", ["class", "precision", "recall", "f1", "support"], rows)


def _print_confusion(name: str, confusion: ConfusionMatrix) -> None:
    rows = [[label, *counts] for label, counts in zip(confusion.labels, confusion.counts.tolist(), strict=True)]
    table(f"Confusion of {name}: rows are expected, columns received", ["expected", *confusion.labels], rows)


def _print_errors(evaluation: Evaluation, count: int) -> None:
    for system in _models(evaluation):
        columns = ["expected", "received", "text"]
        rows = [[f"{row['loss']:.3f}", *map(row.get, columns)] for row in evaluation.errors(system, count)]
        table(f"Highest losses of {system.name}", ["loss", *columns], rows)


def _print_answers(evaluation: Evaluation, count: int) -> None:
    for row in evaluation.rows()[:count]:
        answers = cast(dict[str, str], row["generated"])
        expected = cast(list[str], row["references"])
        rows = [["reference", text] for text in expected] + [[name, text] for name, text in answers.items()]
        table(str(row["text"]), ["by", "text"], rows)
