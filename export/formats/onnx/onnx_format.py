"""The ONNX format."""

from __future__ import annotations

from pathlib import Path

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import Manifest
from kerasformer.bundle.export_options import ATTENTIONS
from kerasformer.bundle.interface import ATTENTION_MODEL
from kerasformer.export.formats.base import Converted, Files, Format, InPlace
from kerasformer.export.formats.onnx.signatures import onnx_functions
from kerasformer.export.graph.attentions import attention_function
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.export.quantization.layouts import Layout
from kerasformer.files.reading import JsonObject

# File names end with the recipe, by which runtimes choose among the files of a folder.
SUFFIXES = {
    "none": "", "fp16": "_fp16", "int8": "_quantized", "int8_fast": "_quantized", "int8_weights": "_int8",
    "int4": "_q4", "int4_mixed": "_q4", "int4_distilled": "_q4", "int4_channel": "_q4", "stored": "_q4",
    "auto": "_quantized",
}  # fmt: skip
_DTYPES = {"": "fp32", "_fp16": "fp16", "_quantized": "q8", "_int8": "int8", "_q4": "q4"}  # names of transformers.js


class OnnxFormat(Format):
    """ONNX, for ONNX Runtime and the libraries built on it: one file for each function."""

    name = "onnx"
    requires = ("tf2onnx", "onnx", "onnxruntime")
    packages = ("keras", "tensorflow", "tf2onnx", "onnxruntime")
    model_paths = ("onnx",)
    profiles = ("ort", "portable")

    def functions(self, job: ExportJob) -> list[Function]:
        """See `Format.functions`."""
        functions = onnx_functions(job.model, job.cache_scales)
        if ATTENTIONS in job.outputs:
            lengths = "sequence_length", "decoder_sequence_length"
            functions.append(attention_function(job.model, ATTENTION_MODEL, "batch_size", *lengths, "int64"))
        return functions

    def file(self, function: Function, recipe: str) -> str:
        """See `Format.file`."""
        return f"{self.model_paths[0]}/{function.name}{SUFFIXES.get(recipe, f'_{recipe}')}.onnx"

    def write(self, job: ExportJob, files: Files, progress: CountProgress, converted: Converted) -> InPlace:
        """See `Format.write`."""
        from kerasformer.export.formats.onnx.convert import write_onnx

        for path in files:
            path.parent.mkdir(exist_ok=True)
        functions = {path: function for path, (function,) in files.items()}
        # The last of several files holds the weights that they share: not that of the attention weights.
        functions = dict(sorted(functions.items(), key=lambda item: item[1].name != ATTENTION_MODEL))
        in_place = write_onnx(
            functions,
            job.model.variables,
            job.recipe,
            profile=job.profile or self.profiles[0],
            opset=job.opset,
            calibration=job.ranges,
            progress=progress,
            converted=converted,
        )
        return {function.name: in_place[path] for path, function in functions.items()}

    def config_entries(self, manifest: Manifest, folder: Path) -> JsonObject:
        """Returns the settings of transformers.js: which dtype the folder has, and which files have external data."""
        function, signature = next(iter(manifest.signatures.items()))
        suffix = Path(signature.file).stem.removeprefix(function)
        settings: Arguments = {"dtype": _DTYPES[suffix]} if suffix in _DTYPES else {}
        data = sorted((folder / self.model_paths[0]).glob("*.onnx_data"))
        if data:
            settings["use_external_data_format"] = {path.name.removesuffix("_data"): 1 for path in data}
        return {"transformers.js_config": settings} if settings else {}

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """See `Format.layout`."""
        from kerasformer.export.formats.onnx.layout import OnnxLayout

        return OnnxLayout(profile, opset)
