"""The digest of the weights notices every change, and reads only weights that may have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer.models import weights_digest
from kerasformer.models.weights_digest import WeightsDigest
from tests.grids import on_jax

ROWS, COLUMNS = 40, 24


@pytest.fixture
def model() -> keras.Model:
    made = keras.Sequential([keras.Input((ROWS,)), keras.layers.Dense(COLUMNS), keras.layers.Dense(2)])
    made.compile("sgd", "mse", jit_compile=keras.backend.backend() != "torch")
    return made


def train(model: keras.Model) -> None:
    model.train_on_batch(np.ones((1, ROWS), "float32"), np.ones((1, 2), "float32"))


def in_tensorflow(change: Callable[[Any, Any], Any]) -> Callable[[keras.Model], None]:
    """Changes a variable in its memory, with an operation of TensorFlow."""

    def changed(model: keras.Model) -> None:
        if keras.backend.backend() != "tensorflow":
            pytest.skip("an operation of TensorFlow")
        import tensorflow as tf

        change(tf, model.layers[0].kernel.value)

    return changed


CHANGES: dict[str, Callable[[keras.Model], Any]] = {
    "assign": lambda model: model.layers[0].bias.assign(np.ones(COLUMNS, "float32")),
    "assign_add": lambda model: model.layers[0].kernel.assign_add(np.ones((ROWS, COLUMNS), "float32")),
    "a single value": lambda model: model.layers[0].bias.assign(np.eye(1, COLUMNS, 5, "float32")[0]),
    "training": train,
    "assign_sub": in_tensorflow(lambda tf, kernel: kernel.assign_sub(tf.ones_like(kernel))),
    "a slice": in_tensorflow(lambda tf, kernel: kernel[3].assign(kernel[3] + 1)),
    "rows": in_tensorflow(lambda tf, kernel: kernel.scatter_add(tf.IndexedSlices(tf.ones((1, COLUMNS)), [3]))),
    "XLA": in_tensorflow(lambda tf, kernel: tf.function(lambda: kernel.assign(2 * kernel), jit_compile=True)()),
}


@pytest.mark.parametrize("name", on_jax(CHANGES, chosen=("assign", "training")))
def test_every_change_is_noticed(model: keras.Model, name: str) -> None:
    digest = WeightsDigest(model)
    for _ in range(2):
        before = digest()
        CHANGES[name](model)
        assert before != digest() == WeightsDigest(model)()
        for layer in model.layers:
            layer.bias.assign(layer.bias + 5)  # otherwise, the second change would assign the same values


@pytest.mark.jax_release
def test_exchanged_values_are_noticed(model: keras.Model) -> None:
    values = np.zeros((ROWS, COLUMNS), "float32")
    digest, seen = WeightsDigest(model), set()
    for first, second in ((1, -1), (-1, 1)):
        values[0, :4] = first, 0, second, 0
        model.layers[0].kernel.assign(values)
        seen.add(digest())
    assert len(seen) == 2


@pytest.mark.jax_release
def test_the_same_values_have_the_same_digest(model: keras.Model) -> None:
    digest = WeightsDigest(model)
    before, values = digest(), model.get_weights()
    train(model)
    assert digest() != before
    model.set_weights(values)
    assert digest() == before


@pytest.mark.jax_release
def test_unchanged_weights_are_not_read_again(model: keras.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    if keras.backend.backend() == "torch":
        pytest.skip("tensors of PyTorch are changed in place")
    read: list[np.ndarray] = []
    original = weights_digest._checksum
    monkeypatch.setattr(weights_digest, "_checksum", lambda array: read.append(array) or original(array))
    digest = WeightsDigest(model)
    before = digest()
    assert len(read) == 4
    model(np.ones((1, ROWS), "float32"))
    assert digest() == before and len(read) == 4
    model.layers[0].bias.assign(np.ones(COLUMNS, "float32"))
    digest()
    assert [array.shape for array in read[4:]] == [(COLUMNS,)]
