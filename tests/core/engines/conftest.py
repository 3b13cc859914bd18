from __future__ import annotations

import pytest

from kerasformer.models import keras_caches, keras_engine


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras models read short prompts in several parts, and their caches grow several times, as those of long texts."""
    for name, value in {"_PARTS": (8, 4), "_BUCKET": 4}.items():
        monkeypatch.setattr(keras_engine, name, value)
    for name, value in {"_FIRST_SLOTS": 8, "_GROWTH": 2}.items():
        monkeypatch.setattr(keras_caches, name, value)
