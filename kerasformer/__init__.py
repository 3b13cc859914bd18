"""Keras 3 Transformers from Hugging Face checkpoints to the phone: load, train, generate, export to LiteRT and ONNX."""

from __future__ import annotations

__version__ = "0.1.0"
