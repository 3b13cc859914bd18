"""Prepares missing files, opens each variant in its own process, and measures all in alternating rounds."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import quiet_environment
from benchmarks.peers import environments
from benchmarks.peers.catalogue import LIBRARIES, OURS, library_of, title_of
from benchmarks.peers.our_files import WRITE
from benchmarks.shapes import SHAPES, export_bundles, write_checkpoint
from kerasformer.errors import KerasformerError
from kerasformer.tools.bench import BenchReport
from kerasformer.tools.bench.machine import machine, versions
from kerasformer.tools.bench.rounds import compared
from kerasformer.tools.bench.speed_figures import with_ratios
from kerasformer.tools.bench.worker import Worker

ROOT = Path(__file__).parents[2]
PREPARE_S = 600


class UnsupportedError(KerasformerError):
    """A variant does not support a model; the message contains the reason."""


def run(options: argparse.Namespace, shape: str, names: Sequence[str]) -> BenchReport:
    """Measures variants on a shape.

    Args:
        options: Options of the command line.
        shape: Name of the shape.
        names: Names of the variants; ratios are those to the first of them that supports the shape.
    """
    write_checkpoint(SHAPES[shape], options.folder / shape / "checkpoint")
    candidates = {name: partial(opened, options, shape, name) for name in names}
    figures, failures = compared(candidates, lambda _: SHAPES[shape].works, options.rounds, _log)
    pins = {name: library.requirements for name, library in LIBRARIES.items()}
    settings = {"num_threads": options.threads, "rounds": options.rounds, "clock": options.clock, "peers": pins}
    return BenchReport(
        machine(),
        versions(),
        settings,
        [replace(subject, name=title_of(subject.name)) for subject in with_ratios(figures)],
        {title_of(name): reason for name, reason in failures.items()},
    )


def opened(options: argparse.Namespace, shape: str, name: str) -> Worker:
    """Prepares the files of a variant and opens it in its own process.

    Raises:
        UnsupportedError: the variant does not support the shape, or has no environment.
        KerasformerError: it cannot be opened.
    """
    checkpoint = options.folder / shape / "checkpoint"
    settings = [str(options.threads), options.clock]
    if name in OURS:
        source = checkpoint if name == "keras" else _exported(options, shape, name)
        own = [sys.executable, "-m", "kerasformer.tools.bench.worker", str(source)]
        return Worker(name, [*own, *settings], _environment(name))
    library = library_of(name)
    python = environments.find(library, LIBRARIES[library], options.envs)
    if python is None:
        raise UnsupportedError(f"no environment. Create it with: python -m benchmarks.peers setup {library}")
    worker, target = [str(python), "-m", "benchmarks.peers.worker"], options.folder / shape / name
    if library in WRITE:
        checkpoint = _exported(options, shape, LIBRARIES[library].bundles[name])
        WRITE[library](checkpoint)
    elif not (target / "prepared").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _run_checked([*worker, "prepare", name, shape, str(checkpoint), str(target)], name)
        (target / "prepared").touch()
    return Worker(name, [*worker, "serve", name, shape, str(checkpoint), str(target), *settings], _environment(name))


def _exported(options: argparse.Namespace, shape: str, name: str) -> Path:
    format, quantize = name.split("-")
    arguments: dict[str, Any] = {"format": format, "quantize": quantize}
    arguments |= {"lengths": SHAPES[shape].long_lengths} if format == "tflite" and SHAPES[shape].long_lengths else {}
    models = options.folder / shape
    try:
        return export_bundles(models / "checkpoint", models, {name: arguments}, fresh=options.fresh)[0]
    except subprocess.CalledProcessError as error:
        raise UnsupportedError(f"the export failed with status {error.returncode}") from error


def _run_checked(command: list[str], name: str) -> None:
    outputs: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        process = subprocess.run(command, **outputs, env=_environment(name), timeout=PREPARE_S)
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(f"the preparation took more than {PREPARE_S} s") from error
    if process.returncode:
        lines = [line.strip() for line in process.stdout.splitlines() if line.strip()]
        raise UnsupportedError(lines[-1] if lines else f"the preparation ended with status {process.returncode}")


def _environment(name: str) -> dict[str, str]:
    """Returns the environment variables of the worker of a variant, with this repository on the Python path."""
    own = {} if name in OURS else LIBRARIES[library_of(name)].environment
    return {**own, **quiet_environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def _log(stage: str, done: int, total: int) -> None:
    print(f"{stage}: {done + 1} of {total}" if total else stage, file=sys.stderr, flush=True)
