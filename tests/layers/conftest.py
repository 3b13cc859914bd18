from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keras 3.15 asks TensorFlow's variables for an array in a way that NumPy 2 warns of."""
    for item in items:
        if "tests/layers" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"))
