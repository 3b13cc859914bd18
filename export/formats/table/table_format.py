"""The format of static embeddings: a table of token vectors, which needs no runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.bundle.interface import MODEL, TABLE_SKIPPED
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.errors import ExportError, InputError
from kerasformer.export.formats.base import Converted, Files, Format, InPlace
from kerasformer.export.formats.table.layout import TableLayout, stored
from kerasformer.export.graph.functions import Function, forward
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.job import ExportJob
from kerasformer.export.quantization.layouts import Layout
from kerasformer.files.tensors import save_tensors

_NAMES = ("none", "int8", "int4")


class TableFormat(Format):
    """A table of token vectors in a safetensors file: a text is read by a lookup and a mean."""

    name = "table"
    requires = ("safetensors",)
    packages = ("keras",)
    model_paths = ("table.safetensors",)

    def check(self, options: ExportOptions, quantize: str) -> None:
        """See `Format.check`."""
        super().check(options, quantize)
        if quantize in RECIPES and quantize not in _NAMES:
            raise ExportError(
                f"format={self.name!r} supports quantize={', '.join(map(repr, _NAMES))}. Received: {quantize!r}"
            )
        if "calibration" in options:
            raise InputError(
                f"calibration is for matrices of products, and format={self.name!r} has none. Remove calibration"
            )

    def adapted(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with the table stored as its matrices, each row for itself; nothing else is there."""
        return replace(recipe, tables=recipe.weights, activations="float", rounding="nearest")

    def functions(self, job: ExportJob) -> list[Function]:
        """See `Format.functions`.

        Raises:
            ExportError: the model computes more than the mean of token vectors.
        """
        model, embedding = job.model, job.info.embedding
        if not model.backbone.is_table:
            raise ExportError(
                f"format={self.name!r} is for static embeddings, such as those of kerasformer shrink --to static. "
                f"Received: {model.config.model_type}, which has layers. Export it with format='litert' or 'onnx'"
            )
        if embedding is not None and (embedding.pooling != ("mean",) or embedding.dimension != model.config.output_dim):
            raise ExportError(
                f"format={self.name!r} computes the mean of token vectors. Received: "
                f"pooling={embedding.pooling}, {embedding.dimension} entries. Export it with format='litert' or 'onnx'"
            )
        return [forward(model, MODEL, "batch_size", "sequence_length", "int32")]

    def write(self, job: ExportJob, files: Files, progress: CountProgress, converted: Converted) -> InPlace:
        """See `Format.write`."""
        (path,) = files
        (variable,) = job.model.variables
        bits = TableLayout().bits(variable.path, tuple(variable.shape), job.recipe)
        tensors = stored(np.asarray(value_of(variable), np.float32), bits)
        if job.model.config.skipped_token_ids:
            tensors[TABLE_SKIPPED] = np.asarray(job.model.config.skipped_token_ids, np.int32)
        save_tensors(tensors, path)
        return {MODEL: ()}

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """See `Format.layout`."""
        return TableLayout()
