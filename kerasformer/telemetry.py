"""Usage data that runtimes send to their makers: off, unless the user has chosen otherwise.

From version 1.29 on, the builds of ONNX Runtime for Linux, macOS, Android and iOS, and from 1.32 on those for Windows,
keep an identifier of the device in the home folder and send events to Microsoft from the moment that they are loaded.
Its environment variable is read once, then. ONNX Runtime GenAI reads the same one.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/Privacy.md
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "ORT_DISABLE_TELEMETRY"
"""Environment variable of ONNX Runtime; whatever value the user gives it holds."""

_lock = threading.Lock()
_blocks = 0


def switch_off() -> None:
    """Sets the variable for this process and its children, unless it is set. For programs, before their imports."""
    os.environ.setdefault(VARIABLE, "1")


@contextmanager
def switched_off() -> Iterator[None]:
    """Sets the variable within the block, unless it is set; blocks of several threads may overlap.

    ONNX Runtime is without telemetry for the rest of the process if it is loaded within the block.
    """
    global _blocks
    with _lock:
        own = _blocks > 0 or VARIABLE not in os.environ
        if own:
            os.environ[VARIABLE] = "1"
            _blocks += 1
    try:
        yield
    finally:
        if own:
            with _lock:
                _blocks -= 1
                if _blocks == 0:
                    os.environ.pop(VARIABLE, None)
