"""Bundles on LiteRT: `LiteRTForward` for encoders, `LiteRTStep` for models that generate. No Keras, no TensorFlow."""

from kerasformer.runtime.litert.forward import LiteRTForward
from kerasformer.runtime.litert.step import LiteRTStep

__all__ = ["LiteRTForward", "LiteRTStep"]
