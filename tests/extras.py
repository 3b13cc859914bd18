"""What only some tests need. Without it they are skipped, with the command that installs it; in CI they fail."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest

COMPLETE = "KERASFORMER_TESTS_COMPLETE"
"""Name of a variable that is set where nothing may be missing: there, tests fail instead of skipping."""


def need(module: str) -> ModuleType:
    """Returns a module of a package that the extra `test-tools` has and `test` lacks.

    At the top of a file, it stands above the imports of the package and of what imports it.
    """
    __tracebackhide__ = True  # the summary names the file that is skipped, not this one
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            missing(f'pip install -e ".[test-tools]" installs {module}, which this test needs')
        raise


def missing(reason: str) -> NoReturn:
    """Skips the test, or at the top of a file all of its tests; fails where `COMPLETE` is set."""
    __tracebackhide__ = True
    if os.environ.get(COMPLETE):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)
