"""Target LiteRT.js in a browser."""

from kerasformer.export.targets.litert_web.target import LitertWeb

__all__ = ["LitertWeb"]
