"""Prepares what is missing, opens every variant in its process, asks all in turn."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.export import export_apart
from benchmarks.peers import environments
from benchmarks.peers.catalogue import LIBRARIES, OURS, library_of
from benchmarks.quiet import quiet_environment
from benchmarks.shapes import SHAPES, write_checkpoint
from kerasformer.bench.rounds import Answers, first_answers, measure
from kerasformer.bench.run import with_ratios
from kerasformer.bench.speed_figures import SubjectFigures, subject_figures
from kerasformer.bench.worker_process import Worker
from kerasformer.errors import KerasformerError

ROOT = Path(__file__).parents[2]
PREPARE_S = 600


@dataclass(frozen=True)
class Run:
    """What holds for all of a run.

    Attributes:
        folder: Keeps checkpoints, bundles and what the peers convert, by shape and name.
        environments: Of the peers.
        rounds: Answers of each variant to each question.
        threads: CPU threads.
        fresh: Makes our bundles again.
    """

    folder: Path
    environments: Path
    rounds: int
    threads: int
    fresh: bool = False


class CannotError(Exception):
    """A variant cannot do a model; the message says why."""


def run(settings: Run, shape: str, names: list[str]) -> tuple[list[SubjectFigures], dict[str, str]]:
    """Figures of those that could, with ratios to the first of them; and why the others could not."""
    works = SHAPES[shape].works
    place = settings.folder / shape
    if not (place / "checkpoint").exists():
        write_checkpoint(SHAPES[shape], place / "checkpoint")
    workers: dict[str, Worker] = {}
    answers: dict[str, list[Answers]] = {}
    failures: dict[str, str] = {}
    try:
        for name in names:
            try:
                _say(f"{shape} {name}: prepare")
                command = _prepared(settings, shape, name)
                _say(f"{shape} {name}: open")
                workers[name] = Worker(name, command, _environment())
                answers[name] = first_answers(workers[name], works)
            except (CannotError, KerasformerError) as error:
                failures[name] = str(error)
                _say(f"{shape} {name}: {error}")
                if name in workers:
                    workers.pop(name).close()
        measure(workers, answers, works, settings.rounds, lambda work, done, of: _say(f"{work}: {done + 1} of {of}"))
        figures = [subject_figures(worker, works, answers[name]) for name, worker in workers.items()]
    finally:
        for worker in workers.values():
            worker.close()
    return with_ratios(figures) if figures else [], failures


def _prepared(settings: Run, shape: str, name: str) -> list[str]:
    """The command that serves this variant, all files of which are there."""
    place = settings.folder / shape
    checkpoint, target = place / "checkpoint", place / name
    if name == "keras":
        return [sys.executable, "-m", "kerasformer.bench.worker", str(checkpoint), str(settings.threads)]
    if name in OURS:
        _export(checkpoint, target, name, settings.fresh)
        return [sys.executable, "-m", "kerasformer.bench.worker", str(target), str(settings.threads)]
    library = library_of(name)
    python = environments.find(library, LIBRARIES[library], settings.environments)
    if python is None:
        raise CannotError(f"no environment. Make it with: python -m benchmarks.peers setup {library}")
    arguments = [name, shape, str(checkpoint), str(target), str(settings.threads)]
    worker = [str(python), "-m", "benchmarks.peers.worker"]
    done = target / "prepared"
    if not done.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _check_done([*worker, "prepare", *arguments])
        done.touch()
    return [*worker, "serve", *arguments]


def _export(checkpoint: Path, target: Path, name: str, fresh: bool) -> None:
    """One of our bundles, with the figures of its export beside it."""
    figures = target.with_name(f"{name}.json")
    if figures.exists() and not fresh:
        return
    try:
        figures.write_text(json.dumps(export_apart(checkpoint, target, *name.split("-"))))
    except subprocess.CalledProcessError as error:
        raise CannotError(f"the export failed with status {error.returncode}") from error


def _check_done(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment(), timeout=PREPARE_S
        )
    except subprocess.TimeoutExpired as error:
        raise CannotError(f"its preparation took more than {PREPARE_S} s") from error
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        raise CannotError(lines[-1] if lines else f"its preparation ended with status {done.returncode}")


def _environment() -> dict[str, str]:
    """That of this process, and this repository for the environments of the peers."""
    return {**quiet_environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
