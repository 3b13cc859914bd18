"""Engines that run bundles: LiteRT and ONNX Runtime."""
