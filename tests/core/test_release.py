"""The lists of tests that CI runs, or that wait for a release."""

from __future__ import annotations

import pytest

from tests.grids import UNUSED


def test_every_line_is_a_test(pytestconfig: pytest.Config) -> None:
    """In a run of all tests; a part of them says nothing about the others."""
    assert pytestconfig.stash[UNUSED] == []
