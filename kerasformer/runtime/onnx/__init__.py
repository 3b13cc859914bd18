"""Engines on ONNX Runtime: `OnnxForward` for encoders, `OnnxStep` for models that generate; without Keras."""

from kerasformer.runtime.onnx.forward import OnnxForward
from kerasformer.runtime.onnx.step import OnnxStep

__all__ = ["OnnxForward", "OnnxStep"]
