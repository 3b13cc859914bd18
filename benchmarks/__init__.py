"""Benchmarks of speed, memory, size and quality, to be run by hand."""

import os

from kerasformer import telemetry

telemetry.switch_off()  # for ONNX Runtime in all measured processes


def quiet_environment() -> dict[str, str]:
    """Returns the environment variables of a process that may use Keras, on TensorFlow."""
    keras = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **keras}


def installed_package() -> dict[str, str]:
    """Returns environment variables with which a Python imports its installed kerasformer, not the current folder."""
    return {**quiet_environment(), "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
