"""The environment of measured processes."""

from __future__ import annotations

import os


def quiet_environment() -> dict[str, str]:
    """For a process that uses Keras on TensorFlow, or PyTorch."""
    # PyTorch's threads spin while they wait for each other: where one core is busy, ten times slower than asleep.
    wait = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    keras = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **wait, **keras}
