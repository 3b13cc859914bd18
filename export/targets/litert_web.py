"""LiteRT.js: browsers."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class LitertWeb(Target):
    """LiteRT.js: browsers."""

    name = "litert-web"
    summary = "LiteRT.js: browsers"
    needs = {"format": "tflite"}
