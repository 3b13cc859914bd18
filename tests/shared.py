"""What several test files read: made once a session, by whichever worker needs it first, in a folder that all share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

FOLDER = "KERASFORMER_TEST_SHARED"
"""The environment variable that tells workers the folder; `tests/conftest.py` makes and removes it."""


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The shared folder `name`, which `make` writes if no worker has yet; tests must not change it."""
    folder = Path(os.environ[FOLDER]) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            make(unfinished)
            unfinished.rename(folder)
    return folder
