"""MediaPipe Tasks: a TFLite file with metadata and vocabulary."""
