"""onnxruntime-genai: decoders."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class Genai(Target):
    """onnxruntime-genai: decoders."""

    name = "genai"
    summary = "onnxruntime-genai: decoders"
    needs = {"format": "onnx"}
