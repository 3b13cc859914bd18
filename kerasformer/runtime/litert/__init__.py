"""Engines on LiteRT: `LiteRTForward` for encoders, `LiteRTStep` for models that generate; without Keras."""

from kerasformer.runtime.litert.forward import LiteRTForward
from kerasformer.runtime.litert.step import LiteRTStep

__all__ = ["LiteRTForward", "LiteRTStep"]
