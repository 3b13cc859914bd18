"""Export in a child process with the TensorFlow backend, since all formats are traced by TensorFlow."""

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
    texts: Mapping[str, Sequence[Any] | None],
    report: StageProgress,
    fallback: bool = False,
) -> Path:
    """Runs an export through the command line; the model is passed as a checkpoint.

    Args:
        model: As for `export`.
        destination: As for `export`.
        options: The caller's options.
        target: Name of the target.
        recipe: One of `RECIPES`, or the limits of a search.
        overwrite: As for `export`.
        texts: Texts, by the name of the command-line option that they are passed to.
        report: Called with each stage that the child process reports.
        fallback: As for `Checks`.

    Raises:
        ExportError: The recipe is not one of `RECIPES`, or the model could not be passed to the child process.
        KerasformerError: The child process failed; its error is raised here with the same type and message.
    """
    require("tensorflow", "export")
    if isinstance(recipe, Recipe) and RECIPES.get(recipe.name) != recipe:
        raise ExportError(
            "With a custom recipe, Keras must run on its TensorFlow backend (KERAS_BACKEND=tensorflow). "
            f"Received: {recipe}"
        )
    flags: dict[str, Any] = {**_option_flags(options), "target": target, "fallback": fallback}
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), model
        flags |= _recipe_flags(recipe)
        try:
            if isinstance(model, PretrainedModel):
                source = _checkpoint(model, folder)
                flags["task"] = options.task or model.task
            flags |= {key: _write_texts(rows, folder / key) for key, rows in texts.items() if rows is not None}
        except OSError as error:
            raise ExportError(
                f"The model is passed to a TensorFlow process through {folder.parent}, but writing there failed: "
                f"{error}. Free some space there, or set the environment variable TMPDIR to another folder"
            ) from error
        # With --debug, the last line of stderr contains the type of the error.
        command = [sys.executable, "-m", "kerasformer.cli", "--debug", "export", str(source), str(destination)]
        command += [*_arguments(flags), *(["--overwrite"] if overwrite else [])]
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
        status, log = _run([*command, "--progress-lines"], environment, report)
    if status:
        raise _child_error(log)
    return local_path(destination)


def _checkpoint(model: PretrainedModel, folder: Path) -> Path:
    """Saves the model as a checkpoint with the credits of the checkpoint that it was loaded from."""
    credits = Credits.of(model.source)
    checkpoint: Path = model.save_pretrained(folder / (credits.name.split("/")[-1] or "checkpoint"))
    credits.write(checkpoint)
    return checkpoint


def _run(command: Sequence[str], environment: Mapping[str, str], report: StageProgress) -> tuple[int, str]:
    """Runs a process that prints its stages line by line; returns its exit status and its standard error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        with process:
            try:
                for line in process.stdout or ():
                    if stage := read_line(line):
                        report(*stage)
            except BaseException:
                process.kill()
                raise
        log.seek(0)
        return process.returncode, log.read()


def _option_flags(options: ExportOptions) -> dict[str, Any]:
    """Converts options to command-line options, where 0 means an empty list of signatures."""
    flags = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "signatures"}
    signatures = options.signatures or DecoderSignatures()
    sizes = {field.name: getattr(signatures, field.name) for field in fields(signatures)}
    if isinstance(targets := flags.get("lora_targets"), str):
        flags["lora_targets"] = (targets,)
    return flags | {name: value if value is None or value else (0,) for name, value in sizes.items()}


def _recipe_flags(recipe: Recipe | Auto) -> dict[str, Any]:
    return {"quantize": recipe.name} if isinstance(recipe, Recipe) else {"quantize": AUTO, **asdict(recipe)}


def _write_texts(texts: Sequence[Any], path: Path) -> Path:
    """Writes texts to a file with one text per line, or one JSON object per line if the texts have labels."""
    labelled = isinstance(texts[0], Example)
    rows = [json.dumps(t.to_dict()) if isinstance(t, Example) else t.replace("\n", " ") for t in texts]
    path = path.with_suffix(".jsonl" if labelled else ".txt")
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def _arguments(flags: Mapping[str, Any]) -> Iterable[str]:
    """Yields command-line arguments; an option with several values is repeated, a flag has none."""
    for name, value in flags.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None and item is not False:
                yield from (f"--{name.replace('_', '-')}", *([] if item is True else [str(item)]))


def _child_error(log: str) -> Exception:
    """Recreates the error that ended a child process."""
    matches = re.findall(r"^kerasformer\.errors\.(\w+): (.*)", log, re.MULTILINE)
    if not matches:
        return ExportError(f"The export in a TensorFlow process failed: {log.strip()[-2000:]}")
    name, message = matches[-1]
    return getattr(errors, name)(message)
