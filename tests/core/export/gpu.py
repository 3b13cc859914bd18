"""Tests on LiteRT's GPU delegate, which need a Vulkan driver, if need be one in software."""

from __future__ import annotations

from kerasformer.errors import InputError
from kerasformer.tools.gpu import find_driver
from tests.extras import missing


def need_gpu() -> dict[str, str]:
    """Returns the variables with which a process finds a driver; without one, skips the test, or fails in CI."""
    try:
        return find_driver()
    except InputError as error:
        missing(str(error))
