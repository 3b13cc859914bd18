"""Skips tests of runtimes that are not installed, before they export a model."""

from __future__ import annotations

import pytest

from tests.foreign.environments import need

ENVIRONMENTS = {"litert-web": "chromium", "transformers.js": "node"}
"""Environments with another name than their runtime."""


@pytest.fixture(autouse=True)
def _runtime(request: pytest.FixtureRequest) -> None:
    for mark in request.node.iter_markers("foreign"):
        need(ENVIRONMENTS.get(mark.args[0], mark.args[0]))
