"""The SavedModel format."""

from __future__ import annotations

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.bundle.interface import SERVING_DEFAULT
from kerasformer.errors import ExportError
from kerasformer.export.formats.base import Converted, Files, Format, InPlace
from kerasformer.export.formats.saved_model.convert import check_texts, write_saved_model
from kerasformer.export.formats.saved_model.signatures import saved_model_functions
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob


class SavedModelFormat(Format):
    """SavedModel, for TensorFlow and TensorFlow Serving: a folder with graphs and their variables."""

    name = "saved-model"
    requires = ("tensorflow",)
    packages = ("keras", "tensorflow", "tensorflow-text")
    model_paths = ("saved_model.pb", "fingerprint.pb", "variables", "assets")
    in_graph = True
    streams_weights = False  # the file would have 16 bits as they are, and convert them in each call

    def check(self, options: ExportOptions, quantize: str) -> None:
        """See `Format.check`."""
        super().check(options, quantize)
        if quantize != "none":
            raise ExportError(
                "A SavedModel stores its weights in float32, since TensorFlow has no operators for quantized weights. "
                f"Received: quantize={quantize!r}. Use quantize='none', or "
                "format='onnx' or 'tflite'"
            )

    def functions(self, job: ExportJob) -> list[Function]:
        """See `Format.functions`."""
        return saved_model_functions(job)

    def write(self, job: ExportJob, files: Files, progress: CountProgress, converted: Converted) -> InPlace:
        """See `Format.write`."""
        for path, functions in files.items():
            write_saved_model(functions, job.model.variables, path.parent)
            if job.in_graph:
                check_texts(job.model, path.parent, SERVING_DEFAULT)
        return {function.name: () for functions in files.values() for function in functions}
