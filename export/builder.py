"""The model files of a bundle in the making: written, run and verified, again and again if a recipe is searched for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import __version__, bundle
from kerasformer.bundle import Manifest
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.registry import find_format
from kerasformer.export.graph.functions import Function
from kerasformer.export.latency import latency
from kerasformer.export.options import ExportJob
from kerasformer.export.progress_report import IN_BYTES
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.rounding_noise import measure_rounding
from kerasformer.export.targets import Target
from kerasformer.export.verify import verify
from kerasformer.fidelity.figures import Fidelity
from kerasformer.fidelity.rounding import Rounding
from kerasformer.progress import StageProgress
from kerasformer.runtime import open_engine


class BundleBuilder:
    """Model files in a folder, and what a manifest says of them.

    Args:
        job: What to write.
        target: The runtime that it is for.
        name: Of the recipe, for the names of the files.
        folder: Where to.
        tell: Is told each stage.
    """

    def __init__(self, job: ExportJob, target: Target, name: str, folder: Path, tell: StageProgress) -> None:
        self.job, self.target, self.folder, self.tell = job, target, folder, tell
        self.format = find_format(job.format)
        self._converted: dict[Any, Any] = {}
        self._files: dict[str, list[Function]] = {}
        for function in target.functions(job, self.format.functions(job)):
            self._files.setdefault(self.format.file(function, name), []).append(function)

    @property
    def functions(self) -> list[Function]:
        """All that the files compute."""
        return [function for functions in self._files.values() for function in functions]

    def manifest(self) -> Manifest:
        """Of the files, without recipe, fidelity and checksums."""
        return Manifest(
            format=self.job.format,  # type: ignore[arg-type]
            info=self.job.info,
            signatures={
                function.name: function.signature(file)
                for file, functions in self._files.items()
                for function in functions
            },
            capacity=self.job.capacity,
            encoder_capacity=self.job.encoder_capacity,
            profile=self.job.profile,
            versions=_versions(self.format),
        )

    def write(self, recipe: Recipe, calibration: Calibration | None = None) -> int:
        """Writes the model files; returns their bytes."""
        # Never written over: a runtime may still have the old files mapped.
        for path in self.format.written(self.folder):
            path.unlink()
        if not self._converted:
            self.tell("trace and convert", 0, 0)
        files = {self.folder / file: functions for file, functions in self._files.items()}
        self.format.write(self.job, files, recipe, calibration, self._weights_written, self._converted)
        return sum(path.stat().st_size for path in self.format.written(self.folder))

    def latency(self) -> float:
        """Milliseconds of a token, or of a text, in the runtime."""
        return latency(open_engine(self.folder, self.manifest()), bundle.read_references(self.folder))

    def verify(self, recipe: Recipe) -> Fidelity:
        """Compares the files in their runtime with the references in the folder; all answers count.

        Raises:
            ExportMismatchError: they are less faithful than the recipe promises.
        """
        self.tell("verify", 0, 0)
        return verify(self.folder, self.manifest(), recipe)

    def verify_decided(self, recipe: Recipe) -> Fidelity:
        """Likewise; where too few answers agree, near ties are told apart, and the others count.

        Raises:
            ExportMismatchError: they are less faithful than the recipe promises, or than its rounding explains.
        """
        self.tell("verify", 0, 0)
        return verify(self.folder, self.manifest(), recipe, rounding=partial(self._rounding, recipe))

    def _rounding(self, recipe: Recipe, references: Mapping[str, np.ndarray]) -> Rounding:
        self.tell("measure rounding", 0, 0)
        layout = self.format.layout(self.job.profile, self.job.opset)
        return measure_rounding(self.job.model, references, layout, recipe, self.functions[0].call)

    def _weights_written(self, done: int, total: int) -> None:
        self.tell(IN_BYTES, done, total)


def _versions(format: Format) -> dict[str, str]:
    """Of the packages that made the bundle."""
    found = {"kerasformer": __version__}
    for name in format.packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # tensorflow-cpu and other builds have names of their own
            continue
    return found
