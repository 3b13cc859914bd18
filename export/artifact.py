"""The model files of a bundle in the making: written, run and verified, again and again if a recipe is searched for."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerasformer import __version__, bundle
from kerasformer.bundle import Manifest, Signature
from kerasformer.export.calibration import Calibration
from kerasformer.export.functions import Function
from kerasformer.export.latency import latency
from kerasformer.export.recipes import Recipe
from kerasformer.export.targets import Target
from kerasformer.export.to_onnx.signatures import onnx_functions
from kerasformer.export.to_tflite.signatures import tflite_functions
from kerasformer.export.verify import verify
from kerasformer.export.wish import Job
from kerasformer.runtime import open_engine
from kerasformer.runtime.fidelity import Fidelity

PROFILES = ("ort", "portable")

Progress = Callable[[str, int, int], None]
"""Is told a stage, how much of it is done and how much there is; 0 of 0 where nobody knows."""

_TFLITE = "model.tflite"
_ONNX = "onnx"
# File names say the recipe, as runtimes that choose among files in one folder expect.
_SUFFIX = {"none": "", "fp16": "_fp16", "int8": "_quantized", "int4": "_q4", "auto": "_quantized"}


class Artifact:
    """Model files in a folder, and what a manifest says of them.

    Args:
        job: What to write.
        target: The runtime that it is for.
        name: Of the recipe, for the names of the files.
        folder: Where to.
        tell: Is told each stage.
    """

    def __init__(self, job: Job, target: Target, name: str, folder: Path, tell: Progress) -> None:
        self.job, self.folder, self.tell = job, folder, tell
        self._converted: dict[Any, Any] = {}
        if job.format == "tflite":
            plain = tflite_functions(job.model, job.capacity, job.encoder_capacity, job.lengths)
            self._functions = target.functions(job, plain)
            self._files = dict.fromkeys((function.name for function in self._functions), _TFLITE)
        else:
            self._functions = target.functions(job, onnx_functions(job.model))
            suffix = _SUFFIX.get(name, f"_{name}")
            self._files = {function.name: f"{_ONNX}/{function.name}{suffix}.onnx" for function in self._functions}

    def manifest(self) -> Manifest:
        """Of the files, without recipe, fidelity and checksums."""
        return Manifest(
            format=self.job.format,  # type: ignore[arg-type]
            info=self.job.info,
            signatures={function.name: self._signature(function) for function in self._functions},
            capacity=self.job.capacity,
            encoder_capacity=self.job.encoder_capacity,
            profile=self.job.profile,
            versions=_versions(self.job.format),
        )

    def _signature(self, function: Function) -> Signature:
        return Signature(self._files[function.name], function.inputs, function.outputs)

    def write(self, recipe: Recipe, calibration: Calibration | None = None) -> int:
        """Writes the model files; returns their bytes."""
        self._remove()
        if not self._converted:
            self.tell("trace and convert", 0, 0)
        if self.job.format == "tflite":
            self._write_tflite(recipe, calibration)
        else:
            self._write_onnx(recipe, calibration)
        return sum(path.stat().st_size for path in self._written())

    def latency(self) -> float:
        """Milliseconds of a token, or of a text, in the runtime."""
        return latency(open_engine(self.folder, self.manifest()), bundle.read_references(self.folder))

    def verify(self, recipe: Recipe) -> Fidelity:
        """Compares the files in their runtime with the references in the folder.

        Raises:
            ExportMismatchError: they are less faithful than the recipe promises.
        """
        self.tell("verify", 0, 0)
        return verify(self.folder, self.manifest(), recipe)

    def _written(self) -> list[Path]:
        """The model files that are there."""
        if self.job.format == "tflite":
            return [path for path in (self.folder / _TFLITE,) if path.exists()]
        return sorted((self.folder / _ONNX).glob("*"))

    def _remove(self) -> None:
        # Never written over: a runtime may still have the old files mapped.
        for path in self._written():
            path.unlink()
        shutil.rmtree(self.folder / _ONNX, ignore_errors=True)

    def _write_tflite(self, recipe: Recipe, calibration: Calibration | None) -> None:
        from kerasformer.export.to_tflite.convert import write_tflite

        write_tflite(
            self._functions,
            self.job.model.variables,
            recipe,
            self.folder / _TFLITE,
            calibration,
            self._weights_written,
            self._converted,
        )

    def _write_onnx(self, recipe: Recipe, calibration: Calibration | None) -> None:
        from kerasformer.export.to_onnx.convert import write_onnx

        (self.folder / _ONNX).mkdir()
        write_onnx(
            {self.folder / self._files[function.name]: function for function in self._functions},
            self.job.model.variables,
            recipe,
            profile=self.job.profile or PROFILES[0],
            opset=self.job.opset,
            calibration=calibration,
            progress=self._weights_written,
            converted=self._converted,
        )

    def _weights_written(self, done: int, total: int) -> None:
        self.tell("write weights", done, total)


def _versions(format: str) -> dict[str, str]:
    """Of the packages that made the bundle."""
    names = ["keras", "tensorflow", *(["tf2onnx", "onnxruntime"] if format == "onnx" else ["ai-edge-litert"])]
    found = {"kerasformer": __version__}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # tensorflow-cpu and other builds have names of their own
            continue
    return found
