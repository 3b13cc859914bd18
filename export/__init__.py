"""Keras models to verified on-device bundles."""

from kerasformer.export.build import export
from kerasformer.export.formats import FORMATS
from kerasformer.export.recipes import RECIPES, Recipe, recipe
from kerasformer.export.targets import TARGETS

__all__ = ["FORMATS", "RECIPES", "TARGETS", "Recipe", "export", "recipe"]
