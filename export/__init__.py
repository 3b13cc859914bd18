"""Keras models to verified on-device bundles."""

from kerasformer.export.build import FORMATS, export
from kerasformer.export.recipes import RECIPES, Recipe, recipe

__all__ = ["FORMATS", "RECIPES", "Recipe", "export", "recipe"]
