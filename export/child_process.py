"""Export in a child process with the TensorFlow backend, since all formats are traced by TensorFlow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasformer import errors
from kerasformer.basics.arguments import Arguments
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError
from kerasformer.export.card.credits import Credits
from kerasformer.export.progress_report import read_line
from kerasformer.extras import require
from kerasformer.files.reading import local_path
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.pipelines.labelled_texts import Example

_REQUEST = "request.json"


def export_in_child(
    model: PretrainedModel | str | Path,
    destination: str | Path,
    format: str,
    recipe: Recipe,
    options: ExportOptions,
    report: StageProgress,
) -> Path:
    """Runs an export in another process; the model is passed as a checkpoint.

    Args:
        model: As for `export`.
        destination: As for `export`.
        format: Name of the format.
        recipe: How weights are stored.
        options: The caller's options, checked, with texts that were read.
        report: Called with each stage that the child process reports.

    Raises:
        ExportError: The model could not be passed to the child process.
        KerasformerError: The child process failed; its error is raised here with the same type and message.
    """
    require("tensorflow", "export")
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), model
        passed: Arguments = {**options, "progress": None}
        try:
            if isinstance(model, PretrainedModel):
                source = _checkpoint(model, folder)
                passed["task"] = options.get("task") or model.task
            for key in {"texts", "calibration"} & options.keys():
                passed[key] = _write_texts(passed[key], folder / key)
            request = {
                "source": str(source),
                "destination": str(local_path(destination)),
                "format": format,
                "quantize": recipe.to_dict(),
                "options": passed,
            }
            (folder / _REQUEST).write_text(json.dumps(request), encoding="utf-8")
        except OSError as error:
            raise ExportError(
                f"The model is passed to a TensorFlow process through {folder.parent}, but writing there failed: "
                f"{error}. Free some space there, or set the environment variable TMPDIR to another folder"
            ) from error
        command = [sys.executable, "-m", "kerasformer.export.child_program", str(folder / _REQUEST)]
        status, log = _run(command, {**os.environ, "KERAS_BACKEND": "tensorflow"}, report)
    if status:
        raise _child_error(log)
    return local_path(destination)


def _checkpoint(model: PretrainedModel, folder: Path) -> Path:
    """Saves the model as a checkpoint with the credits of the checkpoint that it was loaded from."""
    credits = Credits.of_model(model)
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


def _write_texts(texts: Sequence[Any], path: Path) -> str:
    """Writes texts to a file with one text per line, or one JSON object per line if the texts have labels."""
    labelled = isinstance(texts[0], Example)
    lines = [json.dumps(text.to_dict()) if labelled else text.replace("\n", " ") for text in texts]
    path = path.with_suffix(".jsonl" if labelled else ".txt")
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def _child_error(log: str) -> Exception:
    """Recreates the error that ended a child process, from the last line of its traceback."""
    matches = re.findall(r"^kerasformer\.errors\.(\w+): (.*)", log, re.MULTILINE)
    if not matches:
        return ExportError(f"The export in a TensorFlow process failed: {log.strip()[-2000:]}")
    name, message = matches[-1]
    return getattr(errors, name)(message)
