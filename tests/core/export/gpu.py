"""Tests on LiteRT's GPU delegate, which need a Vulkan driver, if need be one in software."""

from __future__ import annotations

import os

import pytest

from kerasformer.errors import InputError
from kerasformer.tools.gpu import find_driver
from tests.extras import missing
from tests.foreign.environments import HOME


def need_gpu() -> dict[str, str]:
    """Returns the variables with which a process finds a driver; without one, skips the test, or fails in CI."""
    try:
        return find_driver()
    except InputError as error:
        missing(str(error))


def use_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes processes find Mesa's driver, which computes in 16-bit floats, or skips the test; in CI, it fails."""
    folder = HOME / "lavapipe"
    if not (folder / "driver.json").exists():
        missing("tests/foreign/setup.sh lavapipe installs the driver, which this test needs")
    monkeypatch.setenv("VK_DRIVER_FILES", str(folder / "driver.json"))
    libraries = [str(folder / "usr/lib/x86_64-linux-gnu"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(libraries))
