"""Export of Keras models as verified on-device bundles."""

# ruff: noqa: E402 - without Keras, `require` must raise our error, which names the extra to install
from kerasformer.extras import require

require("keras", "export")

from kerasformer.bundle import Bundle
from kerasformer.bundle.export_options import FORMATS, ExportOptions
from kerasformer.bundle.recipes import RECIPES, Recipe, recipe
from kerasformer.export.api import export
from kerasformer.export.attention_support import check_attention
from kerasformer.export.formats.registry import find_format
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.options import resolve_options, uses_calibration
from kerasformer.export.progress_report import progress_reporter
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.layouts import num_bytes
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.export.quantization.quantization_aware import QuantizationAware, with_callback
from kerasformer.export.quantization.sample_inputs import read_texts, shortest, single_pass_references
from kerasformer.export.quantization.simulation import Simulation
from kerasformer.export.targets import TARGETS

__all__ = [
    "Bundle",
    "ExportOptions",
    "FORMATS",
    "ModelMatrix",
    "QuantizationAware",
    "RECIPES",
    "Recipe",
    "Simulation",
    "TARGETS",
    "TfliteLayout",
    "calibrate",
    "check_attention",
    "export",
    "find_format",
    "matrices",
    "num_bytes",
    "progress_reporter",
    "read_texts",
    "recipe",
    "resolve_options",
    "shortest",
    "single_pass_references",
    "uses_calibration",
    "with_callback",
]
