"""The environment of measured processes."""

from __future__ import annotations

import os


def quiet_environment() -> dict[str, str]:
    """Returns the environment variables of a process that may use Keras, on TensorFlow."""
    keras = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **keras}
