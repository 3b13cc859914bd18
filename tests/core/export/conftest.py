"""Fixtures that several files of this folder use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kerasformer.bundle import recipes
from kerasformer.export.quantization import model_matrices


@pytest.fixture(scope="module")
def small_matrices_too() -> Iterator[None]:
    """Quantizes small matrices too, for models that have no others."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recipes, model_matrices):
            patch.setattr(module, "MIN_QUANTIZED", 0)
        yield
