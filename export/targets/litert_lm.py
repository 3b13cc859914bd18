"""LiteRT-LM: decoders on Android, iOS, desktops."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class LitertLm(Target):
    """LiteRT-LM: decoders on Android, iOS, desktops."""

    name = "litert-lm"
    summary = "LiteRT-LM: decoders on Android, iOS, desktops"
    needs = {"format": "tflite"}
