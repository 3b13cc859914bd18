from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores a NumPy 2 warning about how Keras 3.15 converts TensorFlow variables to arrays."""
    for item in items:
        if "tests/core/layers" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"))
