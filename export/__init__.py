"""Keras models to verified on-device bundles."""

# ruff: noqa: E402 - where Keras is missing, the error is ours, and names the extra that brings it
from kerasformer.errors import require

require("keras", "export")

from kerasformer.export.api import export
from kerasformer.export.formats.registry import FORMATS
from kerasformer.export.quantization.recipes import RECIPES, Recipe, recipe
from kerasformer.export.targets import TARGETS

__all__ = ["FORMATS", "RECIPES", "TARGETS", "Recipe", "export", "recipe"]
