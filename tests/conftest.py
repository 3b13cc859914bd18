from __future__ import annotations

import atexit
import os
from typing import Any

import pytest

from kerasformer.process import silence_native_logs

# Before any test imports Keras: ~/.keras/keras.json of the machine must not choose the backend.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# LiteRT logs at the end of a process, below the summary of the tests.
atexit.register(silence_native_logs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps the tests of a file on one worker, so that its models and exports are made once, not once a worker."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None
