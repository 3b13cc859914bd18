"""LiteRT-LM: a `.litertlm` file beside the bundle."""

from kerasformer.export.targets.litert_lm.target import LitertLm

__all__ = ["LitertLm"]
