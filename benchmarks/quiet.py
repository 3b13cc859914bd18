"""The environment of measured processes."""

from __future__ import annotations

import os


def quiet_environment() -> dict[str, str]:
    """Returns the environment variables of a process that uses Keras on TensorFlow, or PyTorch."""
    # The threads of PyTorch spin while they wait, which is much slower than sleeping if one of the cores is busy.
    wait = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    keras = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **wait, **keras}
