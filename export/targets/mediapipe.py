"""MediaPipe Text Classifier and Text Embedder: Android, iOS, web, Python."""

from __future__ import annotations

from kerasformer.export.targets.target import Target


class Mediapipe(Target):
    """MediaPipe Text Classifier and Text Embedder: Android, iOS, web, Python."""

    name = "mediapipe"
    summary = "MediaPipe Text Classifier and Text Embedder: Android, iOS, web, Python"
    needs = {"format": "tflite"}
