"""The command line: `kerasformer models | info | export | run | verify | bench | web | serve | cache | demo`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer import __version__, process
from kerasformer.cli.command import Command, examples
from kerasformer.cli.console import (
    Json,
    Source,
    Stages,
    Threads,
    open_pipeline,
    preset_names,
    print_json,
    print_warning,
    say,
    table,
)
from kerasformer.cli.export_command import export
from kerasformer.cli.run_command import run
from kerasformer.cli.web_commands import serve, web
from kerasformer.errors import BundleError, argument, require

app = typer.Typer(
    help="Transformers from Hugging Face checkpoints through Keras to LiteRT and ONNX bundles.",
    epilog=examples(
        "kerasformer demo",
        "kerasformer export sentiment-bert out --quantize int8",
        'kerasformer run out "A warm and funny film."',
        "kerasformer COMMAND --help",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(__version__)
        raise typer.Exit


_OWN_PROCESS = "a process of its own"


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Sets what holds for all commands."""
    if debug:
        os.environ["KERASFORMER_DEBUG"] = "1"
    elif context.obj == _OWN_PROCESS and not os.environ.get("KERASFORMER_DEBUG"):
        # What TensorFlow and LiteRT log would bury what the command says.
        process.silence_native_logs()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def command(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of `app`, with examples at the end of its help."""
    return app.command(cls=Command, epilog=examples(*lines))


@command("kerasformer models", "kerasformer models --json | jq .architectures.bert")
def models(as_json: Json = False) -> None:
    """List architectures with their tasks, and presets."""
    from kerasformer import architectures, sources

    found = architectures.models()
    presets = [_preset(name) for name in sources.presets()]
    if as_json:
        print_json({"architectures": found, "presets": presets})
        return
    table("Architectures", ["model_type", "tasks"], [[name, ", ".join(tasks)] for name, tasks in found.items()])
    table("Presets", ["name", "model_type", "MB"], [[*row.values()] for row in presets])


def _preset(name: str) -> dict[str, Any]:
    from kerasformer import sources

    folder = sources.resolve(name)
    size = (folder / "model.safetensors").stat().st_size / 1e6
    model_type = sources.read_json(folder / "config.json").get("model_type", "")
    return {"name": name, "model_type": model_type, "mb": round(size, 1)}


@command("kerasformer info sentiment-bert", "kerasformer info out --json | jq .fidelity")
def info(source: Source, as_json: Json = False) -> None:
    """Show what a checkpoint or bundle is; no weights are loaded."""
    from kerasformer import bundle, sources

    folder = sources.resolve(source)
    if sources.kind(folder) == "bundle":
        manifest = bundle.read(folder)
        content, rows = asdict(manifest), [[*row] for row in bundle.Bundle(folder).rows()]
    else:
        content = sources.read_json(folder / "config.json")
        rows = [[key, value if isinstance(value, str) else json.dumps(value)] for key, value in content.items()]
    if as_json:
        print_json(content)
        return
    table(str(folder), ["field", "value"], rows)


command(
    "kerasformer export sentiment-bert out --quantize int8",
    "kerasformer export story-gpt2 out --format onnx --quantize int4 --capacity 512 --overwrite",
    "kerasformer export ./my-model out --quantize auto --max-size 60 --texts labelled.tsv",
    "kerasformer export sentiment-bert phone --target mediapipe --quantize int8",
    "kerasformer export --list-targets",
)(export)
command(
    'kerasformer run sentiment-bert "A warm and funny film."',
    "cut -f1 reviews.tsv | kerasformer run out | cut -f2 | sort | uniq -c",
    "tail -f queue.txt | kerasformer run out --jsonl",
    'kerasformer run story-gpt2 "Once upon a time" --stream --top-p 0.9 --seed 1',
    'kerasformer run story-gpt2 "The weather: " --choice fair --choice foul --set do_sample=true',
    'kerasformer run qa-folder "A text that has the answer." --question "Where is it?"',
)(run)
command("kerasformer web story-gpt2 site", "kerasformer web Stories=story-out Reviews=out site --overwrite")(web)
command("kerasformer serve site", "kerasformer serve site --port 9000 --host 0.0.0.0")(serve)


@command(
    "kerasformer verify out",
    "kerasformer verify out --data reviews.tsv --text-column 2 --label-column label",
    "kerasformer verify sentiment-bert --data reviews.tsv",
    "kerasformer verify out --json | jq .faithful",
)
def verify(
    source: Annotated[
        str, typer.Argument(help="A bundle; with --data, any source that run takes.", autocompletion=preset_names)
    ],
    data: Annotated[
        Path | None, typer.Option(help="Measure it on these texts: lines, or TSV, CSV or JSONL with labels.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Of --data: its name, or its number from 1.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Of --data: its name, or its number from 1.")] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compare a bundle with Keras's answers, or measure a source on texts.

    The answers of the Keras model are in the bundle: to compare needs no Keras. Texts are for checkpoints too.
    """
    from kerasformer import bundle, sources

    folder = sources.resolve(source)
    if data is not None:
        _measure(source, folder, _read_data(data, text_column, label_column), threads, as_json)
        return
    if sources.kind(folder) == "checkpoint":
        raise BundleError(
            f"A bundle has answers of its Keras model to be compared with. Received a checkpoint: {folder}. "
            f"Give {argument('data', ...)} to measure it on texts"
        )
    from kerasformer.evaluation import QUALITY
    from kerasformer.runtime import open_engine
    from kerasformer.tokenization import load_tokenizer

    def opened(folder: Path, manifest: Any) -> tuple[Any, ...]:
        references = bundle.read_references(folder)
        tokenizer = load_tokenizer(folder) if QUALITY in references else None
        return manifest, open_engine(folder, manifest, threads), tokenizer, references

    with process.compact_loading():
        manifest, engine, tokenizer, references = bundle.load(folder, opened)
    _compare(folder, manifest, engine, tokenizer, references, as_json)


def _read_data(data: Path, text_column: str | None, label_column: str | None) -> Any:
    from kerasformer.evaluation import read_examples

    return read_examples(data, text_column, label_column)


def _measure(source: str, folder: Path, examples: Any, threads: int | None, as_json: bool) -> None:
    """Figures on texts of the user's own, of a bundle or a checkpoint."""
    from kerasformer.evaluation import evaluate
    from kerasformer.fidelity.figures import quality_text

    pipe = open_pipeline(None, source, threads)
    with Stages(quiet=as_json) as stages:
        figures = evaluate(pipe, examples, lambda done, total: stages(pipe.task, done, total))
    if as_json:
        print_json({"task": pipe.task, "texts": len(examples), **figures})
        return
    rows = [[name.replace("_", " "), quality_text(name, value)] for name, value in figures.items()]
    table(f"{folder}: {pipe.task} on {len(examples):,} texts", ["measure", "value"], rows)


def _compare(folder: Path, manifest: Any, engine: Any, tokenizer: Any, references: Any, as_json: bool) -> None:
    """Figures against the recorded answers of Keras; ends with status 1 where they break the recipe's promise."""
    from dataclasses import replace

    from kerasformer.evaluation import QUALITY, compare_quality, pipeline_of
    from kerasformer.fidelity.figures import figure_rows
    from kerasformer.fidelity.verification import verify as compared

    found = compared(engine, manifest, references)
    figures = found.fidelity
    if QUALITY in references:
        pipe = pipeline_of(engine, manifest.info, tokenizer)
        figures = replace(figures, quality=compare_quality(pipe, references))
    promise = manifest.promise
    failed = found.failed(*promise)
    if as_json:
        steps = {name: step.to_dict() for name, step in found.steps.items()}
        print_json({**figures.to_dict(), "steps": steps, "faithful": not failed})
    else:
        name = manifest.recipe.get("name", "")
        table(f"{folder}: {manifest.format} {name} against Keras", ["measure", "value"], figure_rows(figures.to_dict()))
        say(_verdict(failed, promise, found))
    if failed:
        raise typer.Exit(1)


def _verdict(failed: dict[str, Any], promise: tuple[float, float], found: Any) -> str:
    from kerasformer.fidelity.figures import divergence_text, near_ties_text

    expected = f"errors of at most {promise[0]:g} of the scale, agreement of at least {promise[1]:g}"
    if failed:
        worst = "; ".join(
            f"{name or 'the bundle'}: error {figures.max_error:.3g}, agreement {figures.agreement:.4f}"
            f"{near_ties_text(figures)}{divergence_text(figures)}"
            for name, figures in failed.items()
        )
        return f"NOT faithful. Expected of its recipe: {expected}. Received: {worst}"
    steps, figures = list(found.steps), found.fidelity
    if figures.agreement < promise[1]:
        expected += f" without near ties, which {figures.near_ties} of {figures.answers} answers are"
    kinds = f"each of {len(steps)} kinds of steps" if len(steps) > 1 else f"the signature {''.join(steps)}"
    also = f", by {kinds} too" if steps else ""
    return f"faithful{also}: {expected}"


@command(
    "kerasformer bench out",
    "kerasformer bench out-int8 out-int4 story-gpt2 --compare --rounds 20",
    "kerasformer bench out --lengths 16 --lengths 256 --threads 2",
    "kerasformer bench out --json figures.json --picture figures.png",
)
def bench(
    sources: Annotated[list[str], typer.Argument(help="Bundles, checkpoint folders, presets or hub ids.")],
    prompt_length: Annotated[int | None, typer.Option(help="Tokens of the prompt; 32 by default.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Tokens of each answer; 128 by default.")] = None,
    lengths: Annotated[
        list[int] | None, typer.Option(help="Tokens of an encoder's texts; may be repeated; 16 and 128 by default.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="A file of texts, one a line, instead of random tokens.")] = None,
    batch: Annotated[int, typer.Option(help="Inputs that are answered together.")] = 1,
    threads: Threads = None,
    rounds: Annotated[int, typer.Option(help="Answers to each question.")] = 5,
    compare: Annotated[
        bool, typer.Option("--compare", help="Measure all in turn, and print ratios to the first of them.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file; - prints them.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw bars into this file, .png or .svg.")] = None,
) -> None:
    """Measure speed, latency, load time, memory and size.

    Each source runs in a process of its own.
    """
    from kerasformer.bench import bench as measure
    from kerasformer.bench.picture import check_picture, draw, panels_of
    from kerasformer.bench.report import note, tables
    from kerasformer.errors import InputError

    if picture is not None:
        check_picture(picture)
    printed = json_file is not None and str(json_file) == "-"
    if texts is not None and not texts.is_file():
        raise InputError(f"A file of texts was expected. Received: {texts}")
    lines = None if texts is None else texts.read_text(encoding="utf-8").splitlines()
    with Stages(quiet=printed) as stages:
        report = measure(
            sources,
            prompt_length=prompt_length,
            new_tokens=new_tokens,
            lengths=lengths or None,
            texts=lines,
            batch=batch,
            threads=threads,
            rounds=rounds,
            compare=compare,
            progress=stages,
        )
    if picture is not None:
        draw("kerasformer bench", panels_of(report), picture, note(report))
    if json_file is not None and not printed:
        report.write(json_file)
    if printed:
        print(report.to_json(), end="")
        return
    for title, columns, rows in tables(report):
        table(title, columns, rows)
    say(note(report))


@command("kerasformer cache", "kerasformer cache --clear")
def cache(
    folder: Annotated[Path | None, typer.Option(help="Another one than the user's.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it.")] = False,
    as_json: Json = False,
) -> None:
    """Show or clear what runtimes keep for faster starts.

    Bundles that Python opens with cache_dir= leave their packed weights there.
    """
    from kerasformer.runtime import weight_cache

    place = folder or weight_cache.user_folder()
    if clear:
        freed = weight_cache.trim(place, 0)
        print_json({"folder": str(place), "freed": freed}) if as_json else say(f"{freed:,} bytes freed")
        return
    found = weight_cache.entries(place)
    if as_json:
        files = [{"file": entry.path.name, "bytes": entry.size, "used": entry.used} for entry in found]
        print_json({"folder": str(place), "max_bytes": weight_cache.MAX_BYTES, "files": files})
        return
    rows = [[e.path.name, f"{e.size:,}", f"{datetime.fromtimestamp(e.used):%Y-%m-%d %H:%M}"] for e in found]
    table(str(place), ["file", "bytes", "last used"], rows)


@command("kerasformer demo", "kerasformer demo --folder /tmp/bundles --json")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the bundles go.")] = Path("demo-bundles"),
    as_json: Json = False,
) -> None:
    """Take the presets through Keras, LiteRT and ONNX Runtime.

    Each is exported in int8; answers, sizes and speeds are compared.
    """
    from kerasformer import demo as shown

    require("keras", "all")
    with Stages(quiet=as_json) as stages:
        report = shown.run(folder, stages)
    if as_json:
        print_json([asdict(row) for row in report.rows])
        return
    for example in report.examples:
        table(
            f"{example.preset}: {example.text}", ["engine", "answer"], [list(pair) for pair in example.answers.items()]
        )
    rows = [
        [row.preset, row.engine, f"{row.megabytes:.2f}", row.speed, _share(row.agreement), _share(row.same_words)]
        for row in report.rows
    ]
    table("Kerasformer on this machine", ["preset", "engine", "MB", "speed", "agreement", "same words"], rows)
    say("Agreement: labels, or next tokens of a given text, that are those of Keras. Same words: of the above.")
    say(f"The bundles are in {report.folder}. Try: kerasformer run {report.folder / 'sentiment-bert-tflite'} TEXT")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def main() -> None:
    """The program `kerasformer`: runs a command in a process that is its own."""
    warnings.showwarning = _show_warning
    app(obj=_OWN_PROCESS)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
    """Warnings of ours in one line; those of other packages are for developers."""
    if category.__module__.startswith("kerasformer") or category is UserWarning:
        print_warning(str(message))
