"""Writes, runs and verifies the model files of a bundle.

Called by `api`, for a recipe and those that it falls back to.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from kerasformer import __version__, bundle
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle import Fidelity, GpuFinding, Manifest, Rounding, Signature
from kerasformer.bundle.export_options import GPU
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.engines.fidelity.comparison import record_rounding
from kerasformer.engines.litert.float_weights import computing_on_cpu
from kerasformer.errors import ExportError
from kerasformer.export.formats.base import Converted, Format, InPlace
from kerasformer.export.formats.registry import find_format
from kerasformer.export.graph.adapters import with_adapters
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.export.progress_report import WRITE_WEIGHTS
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.simulation import Simulation
from kerasformer.export.targets import Target
from kerasformer.export.verify import first_look, verify


class BundleBuilder:
    """Writer of a bundle's model files and of their description in the manifest.

    Args:
        job: The model and its resolved export options.
        target: The runtime that the bundle is for.
        folder: Folder that the files are written to.
        report: Called with each stage.

    Attributes:
        functions: The functions of all files, without inputs for adapters.
    """

    def __init__(self, job: ExportJob, target: Target, folder: Path, report: StageProgress) -> None:
        self.job, self.target, self.folder, self.report = job, target, folder, report
        self.format = find_format(job.format)
        self._converted: Converted = {}
        self._in_place: InPlace = {}
        self.functions = target.functions(job, self.format.functions(job))
        self._files = self._files_of(job.recipe.name)

    def _files_of(self, name: str) -> dict[str, list[Function]]:
        """Returns the functions of each file for a recipe of that name."""
        files: dict[str, list[Function]] = {}
        for function in map(self._exported, self.functions):
            files.setdefault(self.format.file(function, name), []).append(function)
        return files

    def _exported(self, function: Function) -> Function:
        """Returns a function as it is written, with inputs for adapters if there are any."""
        if self.job.lora_rank is None:
            return function
        return with_adapters(function, self.job.model, self.format.rank_first, self.format.dotted)

    def manifest(self) -> Manifest:
        """Returns the manifest of the files, without recipe, fidelity and checksums."""
        return Manifest(
            format=self.job.format,  # type: ignore[arg-type]
            info=self.job.info,
            signatures={
                function.name: self._signature(function, file)
                for file, functions in self._files.items()
                for function in functions
            },
            capacity=self.job.capacity,
            encoder_capacity=self.job.encoder_capacity,
            profile=self.job.profile,
            accelerator=self.job.accelerator,  # type: ignore[arg-type]
            versions=_versions(self.format),
        )

    @property
    def layout(self) -> Layout:
        """How the format stores matrices."""
        return self.format.layout(self.job.profile, self.job.opset)

    def write(self, recipe: Recipe) -> int:
        """Writes the model files and returns their total size in bytes."""
        # Files are deleted and not overwritten, since a runtime may still have the old ones mapped.
        for path in self.format.model_files(self.folder):
            path.unlink()
        self._files = self._files_of(recipe.name)
        if not self._converted:
            self.report("trace and convert", 0, 0)
        files = {self.folder / file: functions for file, functions in self._files.items()}
        job = replace(self.job, recipe=recipe)
        self._in_place = self.format.write(job, files, self._report_weights, self._converted)
        return sum(path.stat().st_size for path in self.format.model_files(self.folder))

    def gpu_findings(self) -> tuple[GpuFinding, ...] | None:
        """Returns what a phone's GPU is known to compute wrongly or to leave to the CPU, of the files just written.

        Raises:
            ExportError: There is something, and the files are for a GPU.
        """
        findings = self.format.gpu_findings(self._converted)
        if findings and self.job.accelerator == GPU:
            listed = "; ".join(f"{finding.example}: {finding.what} ({finding.source})" for finding in findings)
            raise ExportError(
                f"With accelerator={GPU!r}, the file must have no operator that LiteRT's GPU delegate is "
                f"known to compute wrongly or to leave to the CPU. Received: {listed}. Export without "
                f"accelerator={GPU!r}, and run the model on the CPU"
            )
        return findings

    def verify(self, recipe: Recipe) -> Fidelity:
        """Runs the files in their runtime and compares all answers with the references in the folder.

        If too few answers agree, near ties are excluded, and only the others count.

        Raises:
            ExportMismatchError: They are less faithful than the recipe promises, or than its rounding explains.
        """
        self.report("verify", 0, 0)
        rounding = None if self.job.model.generates else partial(self._rounding, recipe)
        with computing_on_cpu(self.folder, self.manifest()) as folder:
            return verify(folder, self.manifest(), self._limits(recipe), rounding=rounding)

    def look(self, recipe: Recipe) -> str:
        """Checks the files at a first look at a few texts or, if the recipe has none for this model, completely.

        Returns:
            What was passed and the figures, to follow "passed".

        Raises:
            ExportMismatchError: They are less faithful than the recipe promises.
        """
        self.report("verify", 0, 0)
        with computing_on_cpu(self.folder, self.manifest()) as folder:
            figures = first_look(folder, self.manifest(), self._limits(recipe))
        passed = "a comparison" if figures is None else "a first look"
        return f"{passed} ({bundle.figure_line((figures or self.verify(recipe)).to_dict())})"

    def supports(self, recipe: Recipe) -> bool:
        """Returns whether the target runs files of a recipe."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.target.check(replace(self.job, recipe=recipe))
        except ExportError:
            return False
        return True

    def _limits(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with the limits that apply to the files: int8 caches round as much as int8 weights."""
        return recipe if self.job.cache_scales is None else recipe.no_stricter_than(RECIPES["int8"])

    def _signature(self, function: Function, file: str) -> Signature:
        """Returns the description of a function; it includes the buffers that are shared once the files are written."""
        signature = function.signature(file)
        written = function.name in self._in_place
        return signature.with_in_place(self._in_place[function.name]) if written else signature

    def _rounding(self, recipe: Recipe, references: Mapping[str, np.ndarray]) -> Rounding:
        """Measures the effect of a recipe's rounding alone, by which near ties are distinguished from defects.

        The files are not used, so that a defect in them, such as a wrong scale, cannot raise its own tolerance: Keras
        computes with the values that correct files contain, and with inputs rounded as the runtimes round them. Static
        activations are simulated as dynamic ones, whose rounding is finer, so that the result is a lower bound.
        """
        self.report("measure rounding", 0, 0)
        model = self.job.model
        simulation = Simulation(model, matrices(model, self.job.ranges), self.layout, self.functions[0].call)
        simulation.store(replace(recipe, activations="float" if recipe.activations == "float" else "dynamic"))
        return record_rounding(simulation, references)

    def _report_weights(self, done: int, total: int) -> None:
        self.report(WRITE_WEIGHTS, done, total)


def _versions(format: Format) -> dict[str, str]:
    """Returns the versions of the packages that made the bundle."""
    versions = {"kerasformer": __version__}
    for name in format.packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # other builds have other names, such as tensorflow-cpu
            continue
    return versions
