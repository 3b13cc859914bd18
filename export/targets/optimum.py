"""optimum: ONNX Runtime behind the classes of transformers."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class Optimum(Target):
    """optimum: ONNX Runtime behind the classes of transformers."""

    name = "optimum"
    summary = "optimum: ONNX Runtime behind the classes of transformers"
    needs = {"format": "onnx"}
