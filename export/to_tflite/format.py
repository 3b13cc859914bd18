"""TFLite as a format of bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasformer.bundle import Signature
from kerasformer.export.calibration import Calibration
from kerasformer.export.format import Format, Progress
from kerasformer.export.functions import Function
from kerasformer.export.layouts import Layout
from kerasformer.export.recipes import Recipe
from kerasformer.export.to_saved_model import tf_text
from kerasformer.export.to_tflite.layout import TfliteLayout
from kerasformer.export.to_tflite.signatures import tflite_functions
from kerasformer.export.wish import Job


class TfliteFormat(Format):
    """One file with several signatures, for LiteRT."""

    name = "tflite"
    requires = ("ai_edge_litert", "flatbuffers")
    packages = ("keras", "tensorflow", "ai-edge-litert")
    places = ("model.tflite",)
    static = True
    in_graph = True

    def functions(self, job: Job) -> list[Function]:
        """See `Format.functions`."""
        return tflite_functions(job.model, job.capacity, job.encoder_capacity, job.lengths)

    def write(
        self,
        job: Job,
        files: Mapping[Path, Sequence[Function]],
        recipe: Recipe,
        calibration: Calibration | None,
        progress: Progress,
        converted: dict[Any, Any],
    ) -> None:
        """See `Format.write`."""
        from kerasformer.export.to_tflite.convert import write_tflite

        for path, functions in files.items():
            write_tflite(functions, job.model.variables, recipe, path, calibration, progress, converted)

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """See `Format.layout`."""
        return TfliteLayout()

    def add_tokenizer(self, job: Job, folder: Path) -> dict[str, Signature]:
        """As a file of its own: `model.tflite` stays free of custom operators."""
        names, path = job.model.input_names, folder / tf_text.FILE
        return {tf_text.TOKENIZE: tf_text.write_tokenizer(job.model.tokenizer, names, max(job.lengths), path)}
