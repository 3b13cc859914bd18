"""Target MediaPipe Tasks: a TFLite file with metadata and vocabulary."""

from kerasformer.export.targets.mediapipe.target import Mediapipe, MediapipeTokenizerWarning

__all__ = ["Mediapipe", "MediapipeTokenizerWarning"]
