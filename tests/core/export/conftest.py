"""Fixtures that several files of this folder use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from kerasformer.bundle import recipes
from kerasformer.export.quantization import model_matrices
from tests.core.export.text_models import ROWS


@pytest.fixture(scope="module")
def small_matrices_too() -> Iterator[None]:
    """Quantizes small matrices too, for models that have no others."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recipes, model_matrices):
            patch.setattr(module, "MIN_QUANTIZED", 0)
        yield


@pytest.fixture(scope="module")
def models() -> Callable[[str], Any]:
    """Returns a function from the name of a row to its model, which the tests of a file may change."""
    return cache(lambda name: ROWS[name].model())
