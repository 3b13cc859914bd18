"""`kerasformer verify`, which compares a bundle with its Keras model, or a TFLite file on a GPU with the CPU."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.cli.console import Json, Threads, one_of, print_json, say, table
from kerasformer.errors import BundleError, InputError

_LIMIT = 1800.0
"""Seconds after which the check on a GPU ends; a driver in software takes minutes for 135 million parameters."""


def verify(
    source: Annotated[str, typer.Argument(help="A bundle; with --accelerator gpu also any TFLite file.")],
    accelerator: Annotated[
        str | None,
        typer.Option(
            help="gpu: compare LiteRT's GPU delegate with the CPU; without a GPU, on a driver in software.",
            autocompletion=one_of("gpu"),
        ),
    ] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compare a bundle with its Keras model, or a TFLite file on a GPU with the CPU.

    The answers of the Keras model are recorded in the bundle, so that Keras is not needed. A bundle for a GPU is
    compared with float copies of its weights, since a GPU rounds no activations, as the CPU's kernels do.
    """
    if accelerator is not None:
        return _verify_on_gpu(source, accelerator, as_json)
    from kerasformer import bundle, process
    from kerasformer.files import sources

    folder = sources.resolve(source)
    if sources.kind(folder) == "checkpoint":
        raise BundleError(
            f"A bundle was expected, which has recorded answers of its Keras model. Received: the checkpoint {folder}. "
            "To evaluate it on texts: kerasformer eval SOURCE --data FILE"
        )
    from kerasformer.bundle import figure_rows
    from kerasformer.engines import computing_on_cpu, open_engine
    from kerasformer.engines import verify as compare
    from kerasformer.pipelines import QUALITY, compare_quality, pipeline_of
    from kerasformer.tokenization import Tokenizer

    def opened(folder: Path, manifest: Any) -> tuple[Any, ...]:
        references = bundle.read_references(folder)
        tokenizer = Tokenizer.load(folder) if QUALITY in references else None
        files = copies.enter_context(computing_on_cpu(folder, manifest))
        return manifest, open_engine(files, manifest, threads), tokenizer, references

    with ExitStack() as copies:
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
        name += " for a GPU, with float copies of its weights," if manifest.accelerator == bundle.GPU else ""
        table(f"{folder}: {manifest.format} {name} against Keras", ["measure", "value"], figure_rows(figures.to_dict()))
        say(verification.verdict(limits))
    if failed:
        raise typer.Exit(1)


def _verify_on_gpu(source: str, accelerator: str, as_json: bool) -> None:
    from kerasformer.files import sources
    from kerasformer.tools.gpu import check_gpu

    if accelerator != "gpu":
        raise InputError(f"--accelerator must be gpu. Received: {accelerator!r}")
    path = Path(source)
    report = check_gpu(path if path.is_file() else sources.resolve(source), timeout=_LIMIT)
    if as_json:
        print_json({**report.to_dict(), "right": report.is_right()})
    else:
        rows = [
            [worst.signature, worst.output, f"{worst.error:.1e}", str(worst.not_finite), str(worst.choices)]
            for worst in report.worst_outputs()
        ]
        columns = ["signature", "least equal output", "largest error / largest value", "not finite", "other choices"]
        table(f"{report.path}: {report.adapter or 'no GPU'} against the CPU, in {report.seconds:.0f} s", columns, rows)
        if report.findings:
            found = [[each.rule, each.effect, str(each.operators), each.what] for each in report.findings]
            table("Known of LiteRT's GPU delegate", ["rule", "effect", "operators", "what it does"], found)
        for reason in report.refused:
            say(f"refused: {reason}")
        say(f"{report.on_cpu} operators were left to the CPU")
        say(report.verdict())
    if not report.is_right():
        raise typer.Exit(1)
