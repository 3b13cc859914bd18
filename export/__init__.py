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
from kerasformer.export.options import resolve_options
from kerasformer.export.quantization.auto import COLUMNS, search_rows
from kerasformer.export.quantization.layouts import num_bytes
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.export.quantization.quantization_aware import QuantizationAware, with_callback
from kerasformer.export.targets import TARGETS

__all__ = [
    "Bundle",
    "COLUMNS",
    "ExportOptions",
    "FORMATS",
    "ModelMatrix",
    "QuantizationAware",
    "RECIPES",
    "Recipe",
    "TARGETS",
    "TfliteLayout",
    "check_attention",
    "export",
    "find_format",
    "matrices",
    "num_bytes",
    "recipe",
    "resolve_options",
    "search_rows",
    "with_callback",
]
