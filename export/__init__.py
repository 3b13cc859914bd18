"""Export of Keras models as verified on-device bundles."""

# ruff: noqa: E402 - without Keras, `require` must raise our error, which names the extra to install
from kerasformer.errors import require

require("keras", "export")

from kerasformer.bundle import Bundle
from kerasformer.export.api import export
from kerasformer.export.formats.registry import FORMATS
from kerasformer.export.formats.tflite.signatures import DecoderSignatures
from kerasformer.export.options import Calibrated, Checks, Onnx, SavedModel, TFLite
from kerasformer.export.quantization.recipes import RECIPES, Recipe, recipe
from kerasformer.export.quantization.search import Auto
from kerasformer.export.targets import TARGETS

__all__ = [
    "FORMATS",
    "RECIPES",
    "TARGETS",
    "Auto",
    "Bundle",
    "Calibrated",
    "Checks",
    "DecoderSignatures",
    "Onnx",
    "Recipe",
    "SavedModel",
    "TFLite",
    "export",
    "recipe",
]
