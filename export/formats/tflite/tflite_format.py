"""The TFLite format."""

from __future__ import annotations

from pathlib import Path

from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import GpuFinding, Signature
from kerasformer.bundle.export_options import ATTENTIONS
from kerasformer.bundle.interface import attention_name
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.formats.base import Converted, Files, Format, InPlace
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.formats.tflite.signatures import attention_lengths, tflite_functions
from kerasformer.export.graph.attentions import attention_function
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.export.quantization.layouts import Layout

_GPU = "gpu findings"
"""Key of an intermediate result: what is known about the GPU."""


class TfliteFormat(Format):
    """TFLite, for LiteRT: one file with several signatures."""

    name = "tflite"
    requires = ("ai_edge_litert", "flatbuffers")
    packages = ("keras", "tensorflow", "ai-edge-litert")
    model_paths = ("model.tflite",)
    static = True
    rank_first = True
    dotted = False
    attention = AttentionSupport(reads_whole_prompts=False)
    in_graph = True

    def functions(self, job: ExportJob) -> list[Function]:
        """See `Format.functions`."""
        functions = tflite_functions(
            job.model,
            job.capacity,
            job.encoder_capacity,
            job.lengths,
            job.signatures,
            job.rolling_caches,
            job.cache_scales,
            job.num_labels,
        )
        if ATTENTIONS in job.outputs:
            functions += [
                attention_function(job.model, attention_name(length), 1, length, length, "int32")
                for length in attention_lengths(job.capacity, job.encoder_capacity, job.lengths)
            ]
        return functions

    def write(self, job: ExportJob, files: Files, progress: CountProgress, converted: Converted) -> InPlace:
        """See `Format.write`."""
        from kerasformer.export.formats.tflite.convert import write_tflite

        for path, functions in files.items():
            converted[_GPU] = write_tflite(
                functions,
                job.model.variables,
                job.recipe,
                path,
                job.ranges,
                progress,
                converted,
                job.accelerator,
                job.capacity,
            )
        # LiteRT's kernels on the CPU may write to the buffers that they read.
        written = [function for functions in files.values() for function in functions]
        return {function.name: function.signature().continued().keys() for function in written}

    def gpu_findings(self, converted: Converted) -> tuple[GpuFinding, ...]:
        """See `Format.gpu_findings`."""
        findings: tuple[GpuFinding, ...] = converted[_GPU]
        return findings

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """See `Format.layout`."""
        return TfliteLayout()

    def add_tokenizer(self, job: ExportJob, folder: Path) -> dict[str, Signature]:
        """Writes the tokenizer to a separate file, so that `model.tflite` contains no custom operators."""
        names, path = job.model.input_names, folder / tf_text.FILE
        return {tf_text.TOKENIZE: tf_text.write_tokenizer(job.model.tokenizer, names, max(job.lengths), path)}
