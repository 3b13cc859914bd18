"""Bundles on ONNX Runtime: `OnnxForward` for encoders, `OnnxStep` for models that generate. No Keras, no TensorFlow."""

from kerasformer.runtime.onnx.forward import OnnxForward
from kerasformer.runtime.onnx.step import OnnxStep

__all__ = ["OnnxForward", "OnnxStep"]
