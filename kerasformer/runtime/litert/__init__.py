"""Bundles on LiteRT: `LiteRTForward` for encoders, `LiteRTStep` for models that generate. No Keras, no TensorFlow."""

from kerasformer.runtime.litert.step import LiteRTForward, LiteRTStep

__all__ = ["LiteRTForward", "LiteRTStep"]
