"""Prepares missing files, opens each variant in its own process, and measures all in alternating rounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import quiet_environment
from benchmarks.peers import environments, genai, litert_lm_files
from benchmarks.peers.catalogue import LIBRARIES, OURS, library_of
from benchmarks.shapes import SHAPES, export_bundles, write_checkpoint
from kerasformer.bench.rounds import Answers, Workload, first_answers, measure
from kerasformer.bench.run import with_ratios
from kerasformer.bench.speed_figures import SubjectFigures, subject_figures
from kerasformer.bench.worker_process import Worker
from kerasformer.errors import KerasformerError

ROOT = Path(__file__).parents[2]
PREPARE_S = 600


@dataclass(frozen=True)
class Run:
    """Settings of a run.

    Attributes:
        folder: Folder of checkpoints, bundles and converted models, by shape and name.
        environments: Folder of the environments of the other libraries.
        rounds: Number of answers of each variant to each question.
        threads: Number of CPU threads.
        fresh: Whether to export our bundles again.
        clock: Clock that all times are measured with, one of `CLOCKS`.
    """

    folder: Path
    environments: Path
    rounds: int
    threads: int
    fresh: bool = False
    clock: str = "elapsed"


class UnsupportedError(Exception):
    """A variant does not support a model; the message contains the reason."""


def run(settings: Run, shape: str, names: list[str]) -> tuple[list[SubjectFigures], dict[str, str]]:
    """Measures variants on a shape.

    Returns:
        Figures of the variants that support it, with ratios to the first of them, and the reasons of the others.
    """
    works = SHAPES[shape].works
    models = settings.folder / shape
    write_checkpoint(SHAPES[shape], models / "checkpoint")
    workers: dict[str, Worker] = {}
    answers: dict[str, list[Answers]] = {}
    failures: dict[str, str] = {}
    try:
        for name in names:
            try:
                _log(f"{shape} {name}: prepare")
                command = _prepared(settings, shape, name)
                _log(f"{shape} {name}: open")
                workers[name] = Worker(name, command, _environment(name))
                answers[name] = _first_answers(workers[name], works)
            except (UnsupportedError, KerasformerError) as error:
                failures[name] = str(error)
                _log(f"{shape} {name}: {error}")
                if name in workers:
                    workers.pop(name).close()
        measure(workers, answers, works, settings.rounds, lambda work, done, of: _log(f"{work}: {done + 1} of {of}"))
        figures = [subject_figures(worker, works, answers[name]) for name, worker in workers.items()]
    finally:
        for worker in workers.values():
            worker.close()
    return with_ratios(figures) if figures else [], failures


def _first_answers(worker: Worker, works: Sequence[Workload]) -> list[Answers]:
    """Runs each batch once. A workload that the variant cannot run has a reason instead of answers.

    Raises:
        UnsupportedError: it cannot run any of them.
    """
    answers: list[Answers] = []
    for work in works:
        try:
            answers += first_answers(worker, [work])
        except KerasformerError as error:
            _log(f"{work.title}: {error}")
            answers.append(Answers([], failure=str(error)))
    if all(each.failure is not None for each in answers):
        raise UnsupportedError(answers[0].failure)
    return answers


def _prepared(settings: Run, shape: str, name: str) -> list[str]:
    """Prepares the files of a variant and returns the command of its worker process."""
    models = settings.folder / shape
    checkpoint, target = models / "checkpoint", models / name
    own = [sys.executable, "-m", "kerasformer.bench.worker"]
    if name in ("keras", "keras-whole"):
        whole = ["--whole"] if name == "keras-whole" else []
        return [*own, str(checkpoint), str(settings.threads), settings.clock, *whole]
    if name in OURS:
        _export(checkpoint, target, name, SHAPES[shape].long_lengths, settings.fresh)
        return [*own, str(target), str(settings.threads), settings.clock]
    library = library_of(name)
    threads = LIBRARIES[library].threads.get(name, settings.threads)
    target = models / LIBRARIES[library].files.get(name, name)
    python = environments.find(library, LIBRARIES[library], settings.environments)
    if python is None:
        raise UnsupportedError(f"no environment. Create it with: python -m benchmarks.peers setup {library}")
    if bundle := LIBRARIES[library].bundles.get(name):
        _export(checkpoint, models / bundle, bundle, SHAPES[shape].long_lengths, settings.fresh)
        target.mkdir(parents=True, exist_ok=True)
        write = genai.write_config if library == "genai" else litert_lm_files.write_file
        write(models / bundle, target)
        (target / "prepared").touch()
        checkpoint = models / bundle
    arguments = [name, shape, str(checkpoint), str(target)]
    worker = [str(python), "-m", "benchmarks.peers.worker"]
    marker = target / "prepared"
    if not marker.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _run_checked([*worker, "prepare", *arguments], name)
        marker.touch()
    return [*worker, "serve", *arguments, str(threads), settings.clock]


def _export(checkpoint: Path, target: Path, name: str, lengths: Sequence[int], fresh: bool) -> None:
    """Exports one of our bundles."""
    format, quantize = name.split("-")
    arguments: dict[str, Any] = {"format": format, "quantize": quantize}
    arguments |= {"lengths": list(lengths)} if lengths and format == "tflite" else {}
    try:
        export_bundles(checkpoint, target.parent, {name: arguments}, fresh=fresh)
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


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
