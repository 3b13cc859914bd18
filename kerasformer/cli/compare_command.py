"""`kerasformer compare`: what several models cost and what they are worth, in one table and one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from kerasformer.cli.console import Json, Stages, open_pipeline, preset_names, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.command_options import EvaluationOptions
from kerasformer.errors import InputError, MissingExtraError, require
from kerasformer.options import checked
from kerasformer.tasks import of_prefix

if TYPE_CHECKING:
    from kerasformer.bench.speed_figures import SubjectFigures


@dataclass
class Compared:
    """A model in the table; `None` is what is not known, or not measured.

    Attributes:
        name: Source, as passed.
        parameters: Number of parameters.
        bytes: Bytes of the files with weights; of a configuration alone, those that its parameters need.
        macs_per_token: Multiply-adds in products with weights.
        cache_bytes_per_token: Bytes of the cache for each token; 0 for a model that does not generate.
        tokens_per_s: Tokens that are generated in a second, or read by a model that does not generate.
        memory_mb: Memory of the model while it answers, in 10^6 bytes.
        engine: What ran the model.
        quality: Figures on the texts, by metric.
    """

    name: str
    parameters: int | None = None
    bytes: int | None = None
    macs_per_token: int | None = None
    cache_bytes_per_token: int | None = None
    tokens_per_s: float | None = None
    memory_mb: float | None = None
    engine: str | None = None
    quality: dict[str, float] | None = None


_FIGURES: list[tuple[str, str, str, Callable[[Compared], float | None]]] = [
    ("parameters", "M", ",.2f", lambda one: _scaled(one.parameters, 1e6)),
    ("weights", "MB", ",.2f", lambda one: _scaled(one.bytes, 1e6)),
    ("multiply-adds", "M/token", ",.2f", lambda one: _scaled(one.macs_per_token, 1e6)),
    ("cache", "KB/token", ",.2f", lambda one: _scaled(one.cache_bytes_per_token or None, 1e3)),
    ("speed", "tokens/s", ",.0f", lambda one: one.tokens_per_s),
    ("memory", "MB", ",.0f", lambda one: one.memory_mb),
]
"""Name, unit and format of each figure but those of quality."""


@with_options(
    [EvaluationOptions],
    "task",
    "references",
    "text_column",
    "label_column",
    "glue",
    "skip_bad",
    "limit",
    "num_threads",
)
def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Bundles, checkpoint folders, presets, hub ids or files config.json, which need no weights.",
            autocompletion=preset_names,
        ),
    ],
    data: Annotated[Path | None, typer.Option(help="File of texts on which quality is measured, as for eval.")] = None,
    speed: Annotated[bool, typer.Option(help="Whether to measure speed and memory.")] = True,
    picture: Annotated[Path | None, typer.Option(help="Draw a bar chart to this file, .png or .svg.")] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compare models: parameters, bytes, multiply-adds, cache, speed, memory, and quality on your own texts.

    Parameters, multiply-adds and the cache of each token are computed from the configuration, without weights. Speed is
    that of kerasformer bench, and quality that of kerasformer eval.
    """
    from kerasformer.bench import bench
    from kerasformer.bench.picture import check_picture

    if picture is not None:
        check_picture(picture)
    chosen = cast(EvaluationOptions, checked(EvaluationOptions, passed(options), "an evaluation"))
    if len(set(sources)) < len(sources):
        raise InputError(f"Each source may be given only once. Received: {', '.join(sources)}")
    threads = chosen.get("num_threads")
    with Stages(quiet=as_json) as stages:
        rows = []
        for source in sources:
            stages(f"count {source}", 0, 0)
            rows.append(_counted(source))
        complete = [row.name for row in rows if _has_weights(row.name)]
        if data is not None and not complete:
            raise InputError("--data needs a model with weights. Received: configurations alone")
        if speed and complete:
            report = bench(complete, num_threads=threads, progress=stages)
            for figures in report.subjects:
                _measured(rows[sources.index(figures.name)], figures)
        if data is not None:
            _evaluate([row for row in rows if row.name in complete], data, chosen, stages)
    if picture is not None:
        _draw(rows, picture)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    _print(rows)
    if any(row.tokens_per_s is not None for row in rows):
        say("Speed: tokens that are generated, or read by a model that does not generate; see kerasformer bench.")


def _counted(source: str) -> Compared:
    """Returns what is known of a model without running it."""
    from kerasformer import bundle
    from kerasformer.bench.own_models import size_mb
    from kerasformer.files import sources

    if not _has_weights(source):
        require("keras", "tensorflow")
        return _of_config(source)
    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        require("keras", "tensorflow")
        row = _of_config(source)
    else:
        manifest = bundle.read(folder)
        try:
            require("keras", "tensorflow")
            row = _of_config(source)
        except MissingExtraError:  # a bundle runs without Keras, which counts the rest
            row = Compared(source)
        if row.cache_bytes_per_token and manifest.cache_dtype:
            row.cache_bytes_per_token = row.cache_bytes_per_token * np.dtype(manifest.cache_dtype).itemsize // 4
    row.bytes = round(1e6 * size_mb(folder))
    return row


def _of_config(source: str) -> Compared:
    from kerasformer.models.costs import costs

    found = costs(source)
    return Compared(source, found.parameters, found.parameter_bytes, found.macs, found.cache_bytes)


def _has_weights(source: str) -> bool:
    """Returns whether a source is more than a configuration."""
    from kerasformer.bench.own_models import size_mb

    path = Path(source)
    return not (path.suffix == ".json" and path.is_file()) and not (path.is_dir() and size_mb(path) == 0)


def _measured(row: Compared, figures: SubjectFigures) -> None:
    """Adds the speed of the longest texts, and the memory."""
    row.engine, row.memory_mb = figures.engine, figures.model_mb
    row.tokens_per_s = figures.works[-1].best_tokens_s


def _evaluate(rows: Sequence[Compared], data: Path, options: EvaluationOptions, stages: Stages) -> None:
    """Adds the quality of each model.

    Raises:
        InputError: the models are for different tasks.
    """
    from kerasformer.evaluation import evaluate, read_data

    examples, first = read_data(data, None, options), None
    for row in rows:
        stages("load", 0, 0)
        pipe = open_pipeline(row.name, options.get("task"), num_threads=options.get("num_threads"))
        first = first or of_prefix(pipe.task)
        if of_prefix(pipe.task) != first:
            raise InputError(f"Models of one task were expected. Received: {first} and {pipe.task} ({row.name})")
        given = {**options, "progress": partial(stages, row.name)}
        row.quality, row.engine = evaluate(pipe, examples, **given), pipe.engine  # type: ignore[arg-type]
        del pipe  # before the next one is loaded


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _print(rows: Sequence[Compared]) -> None:
    """Prints a row for each model, without the figures that no model has."""
    from kerasformer.bench.report import short_names
    from kerasformer.bundle import quality_text

    shown = [figure for figure in _FIGURES if any(figure[3](row) is not None for row in rows)]
    metrics = _metrics(rows)
    cells = []
    for name, row in zip(_names(rows, short_names), rows, strict=True):
        values = [(figure(row), form) for _, _, form, figure in shown]
        line = ["–" if value is None else f"{value:{form}}" for value, form in values]
        line += [quality_text(metric, row.quality[metric]) if row.quality else "–" for metric in metrics]
        cells.append([name, row.engine or "–", *line])
    heads = [f"{name} ({unit})" for name, unit, _, _ in shown]
    table("Comparison", ["model", "engine", *heads, *metrics], cells)


def _metrics(rows: Sequence[Compared]) -> list[str]:
    return list(next((row.quality for row in rows if row.quality), {}))


def _names(rows: Sequence[Compared], short: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """Returns short names, for presets and hub ids the names themselves."""
    paths = [Path(row.name) for row in rows]
    names = short([str(path.parent if path.name == "config.json" else path) for path in paths])
    return [name if path.exists() else row.name for name, path, row in zip(names, paths, rows, strict=True)]


def _draw(rows: Sequence[Compared], path: Path) -> None:
    """Draws a panel of bars for each figure that a model has."""
    from kerasformer.bench.picture import Bar, Panel, draw
    from kerasformer.bench.report import short_names
    from kerasformer.bundle import quality_text

    names, panels = _names(rows, short_names), []
    for title, unit, form, figure in _FIGURES:
        known = [(name, value) for name, row in zip(names, rows, strict=True) if (value := figure(row)) is not None]
        if known:
            panels.append(Panel(title, unit, tuple(Bar(name, value, f"{value:{form}}") for name, value in known)))
    for metric in _metrics(rows):
        scores = [(name, row.quality[metric]) for name, row in zip(names, rows, strict=True) if row.quality]
        bars = tuple(Bar(name, max(score, 0.0), quality_text(metric, score)) for name, score in scores)
        panels.append(Panel(metric, "", bars))
    draw("kerasformer compare", panels, path, columns=2)
