"""Export of Keras models as verified on-device bundles."""

# ruff: noqa: E402 - without Keras, `require` must raise our error, which names the extra to install
from kerasformer.extras import require

require("keras", "export")

from kerasformer.bundle import Bundle
from kerasformer.export.api import export
from kerasformer.export.quantization.recipes import RECIPES, Recipe, recipe
from kerasformer.export.targets import TARGETS
from kerasformer.export_options import FORMATS, ExportOptions

__all__ = ["FORMATS", "RECIPES", "TARGETS", "Bundle", "ExportOptions", "Recipe", "export", "recipe"]
