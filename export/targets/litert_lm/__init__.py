"""Target LiteRT-LM: adds a `.litertlm` file to the bundle."""

from kerasformer.export.targets.litert_lm.target import LitertLm

__all__ = ["LitertLm"]
