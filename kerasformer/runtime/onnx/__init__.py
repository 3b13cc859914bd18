"""Bundles on ONNX Runtime: `OnnxForward` for encoders, `OnnxStep` for models that generate. No Keras, no TensorFlow."""

from kerasformer.runtime.onnx.step import OnnxForward, OnnxStep

__all__ = ["OnnxForward", "OnnxStep"]
