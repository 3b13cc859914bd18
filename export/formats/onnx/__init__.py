"""Keras functions to ONNX files: traced, converted without weights, primitives written as the profile wants them."""
