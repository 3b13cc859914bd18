"""transformers.js: Node and browsers."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class TransformersJs(Target):
    """transformers.js: Node and browsers."""

    name = "transformers.js"
    summary = "transformers.js: Node and browsers"
    needs = {"format": "onnx"}
