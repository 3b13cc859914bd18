"""Export of Keras models as verified on-device bundles."""

# ruff: noqa: E402 - without Keras, `require` must raise our error, which names the extra to install
from kerasformer.extras import require

require("keras", "export")

from kerasformer.bundle import Bundle
from kerasformer.bundle.export_options import FORMATS, ExportOptions
from kerasformer.bundle.recipes import RECIPES, Recipe, recipe
from kerasformer.export.api import export
from kerasformer.export.targets import TARGETS

__all__ = ["FORMATS", "RECIPES", "TARGETS", "Bundle", "ExportOptions", "Recipe", "export", "recipe"]
