"""Engines on ONNX Runtime: `OnnxForward` for encoders, `OnnxStep` for models that generate; without Keras."""

from kerasformer.engines.onnx.forward import OnnxForward
from kerasformer.engines.onnx.step import OnnxStep

__all__ = ["OnnxForward", "OnnxStep"]
