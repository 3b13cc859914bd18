"""Skips tests of runtimes that are not installed, before they export a model."""

from __future__ import annotations

import pytest

from tests.foreign.environments import need
from tests.foreign.ticks import OWN

ENVIRONMENTS = {"litert-web": "chromium", "transformers.js": "node"}
"""Environments with another name than their runtime."""


@pytest.fixture(autouse=True)
def _runtime(request: pytest.FixtureRequest) -> None:
    for mark in request.node.iter_markers("foreign"):
        if mark.args[0] not in OWN:
            need(ENVIRONMENTS.get(mark.args[0], mark.args[0]))
