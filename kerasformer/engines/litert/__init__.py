"""Engines on LiteRT: `LiteRTForward` for encoders, `LiteRTStep` for models that generate; without Keras."""

from kerasformer.engines.litert.forward import LiteRTForward
from kerasformer.engines.litert.step import LiteRTStep

__all__ = ["LiteRTForward", "LiteRTStep"]
