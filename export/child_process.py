"""The export in a process of its own, under TensorFlow, whose tracing all formats need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kerasformer import errors
from kerasformer.errors import ExportError, require
from kerasformer.evaluation import Example
from kerasformer.export.card.credits import Credits
from kerasformer.export.formats.tflite.signatures import DecoderSignatures
from kerasformer.export.options import ExportOptions
from kerasformer.export.progress_report import read_line
from kerasformer.export.quantization.auto import NAME as AUTO
from kerasformer.export.quantization.recipes import RECIPES, Recipe
from kerasformer.export.quantization.search import Auto
from kerasformer.files import local_path
from kerasformer.progress import StageProgress
from kerasformer.zoo import PretrainedModel


def export_in_child(
    model: Any,
    destination: str | Path,
    options: ExportOptions,
    target: str | None,
    recipe: Recipe | Auto,
    overwrite: bool,
    given: Mapping[str, Sequence[Any] | None],
    tell: StageProgress,
) -> Path:
    """Does what `export` does, by the command line; the model goes there as a checkpoint.

    Args:
        model: As for `export`.
        destination: Likewise.
        options: What the caller asked for.
        target: Name of the runtime.
        recipe: A named one, or the limits of one that is to be found.
        overwrite: As for `export`.
        given: Texts, by the name of the option that takes them.
        tell: Is told each stage, as the child tells it.

    Raises:
        ExportError: a recipe without a name, or whatever went wrong there, which is raised as if it had been here.
    """
    require("tensorflow", "export")
    if isinstance(recipe, Recipe) and RECIPES.get(recipe.name) != recipe:
        raise ExportError(
            f"A recipe of your own needs the TensorFlow backend of Keras (KERAS_BACKEND=tensorflow). Received: {recipe}"
        )
    flags: dict[str, Any] = {**_of_options(options), "target": target}
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), model
        flags |= _of_recipe(recipe)
        try:
            if isinstance(model, PretrainedModel):
                source = _checkpoint(model, folder)
                flags["task"] = options.task or model.task
            flags |= {key: _written(texts, folder / key) for key, texts in given.items() if texts is not None}
        except OSError as error:
            raise ExportError(
                f"The model goes to a TensorFlow process through {folder.parent}, which cannot be written: {error}. "
                "Make room there, or name another place in the environment variable TMPDIR"
            ) from error
        # --debug, for then the last line of stderr names the error's type.
        command = [sys.executable, "-m", "kerasformer.cli", "--debug", "export", str(source), str(destination)]
        command += [*_arguments(flags), *(["--overwrite"] if overwrite else [])]
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
        status, log = _run([*command, "--progress-lines"], environment, tell)
    if status:
        raise _error_of(log)
    return local_path(destination)


def _checkpoint(model: PretrainedModel, folder: Path) -> Path:
    """The model as a checkpoint with the credits of the one that it came from."""
    credits = Credits.of(model.source)
    checkpoint: Path = model.save_pretrained(folder / (credits.name.split("/")[-1] or "checkpoint"))
    credits.write(checkpoint)
    return checkpoint


def _run(command: Sequence[str], environment: Mapping[str, str], tell: StageProgress) -> tuple[int, str]:
    """Runs a process that tells its stages line by line: its status, and what it wrote to the standard error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        with process:
            try:
                for line in process.stdout or ():
                    if stage := read_line(line):
                        tell(*stage)
            except BaseException:
                process.kill()
                raise
        log.seek(0)
        return process.returncode, log.read()


def _of_options(options: ExportOptions) -> dict[str, Any]:
    """Options of the command line; there, 0 stands for an empty list of signatures."""
    flags = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "signatures"}
    signatures = options.signatures or DecoderSignatures()
    sizes = {field.name: getattr(signatures, field.name) for field in fields(signatures)}
    return flags | {name: value if value is None or value else (0,) for name, value in sizes.items()}


def _of_recipe(recipe: Recipe | Auto) -> dict[str, Any]:
    return {"quantize": recipe.name} if isinstance(recipe, Recipe) else {"quantize": AUTO, **asdict(recipe)}


def _written(texts: Sequence[Any], path: Path) -> Path:
    """A file with the texts: a line each, or an object each where they have labels."""
    labelled = isinstance(texts[0], Example)
    rows = [json.dumps(t.to_dict()) if isinstance(t, Example) else t.replace("\n", " ") for t in texts]
    path = path.with_suffix(".jsonl" if labelled else ".txt")
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def _arguments(flags: Mapping[str, Any]) -> Iterable[str]:
    """Of the command line; an option with several values is repeated."""
    for name, value in flags.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                yield from (f"--{name.replace('_', '-')}", str(each))


def _error_of(log: str) -> Exception:
    """The error that ended a child process, as it would have been raised here."""
    found = re.findall(r"^kerasformer\.errors\.(\w+): (.*)", log, re.MULTILINE)
    if not found:
        return ExportError(f"The export in a TensorFlow process failed: {log.strip()[-2000:]}")
    name, message = found[-1]
    return getattr(errors, name)(message)
