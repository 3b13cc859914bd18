"""Cross-entropy with label smoothing, compared with PyTorch and with Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

from kerasformer import layers
from kerasformer.errors import InputError
from tests.grids import on_jax

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(0, 3, (3, 5, 11)).astype("float32")
LABELS = RANDOM.integers(0, 11, (3, 5))
LABELS[0, 3:] = LABELS[2, 1:] = -100


@pytest.mark.parametrize("share", on_jax([0.0, 0.1, 0.7, 1.0], chosen=(0.1,)))
def test_values_of_pytorch(share):
    loss = layers.SmoothedCrossentropy(share)
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=share, ignore_index=-100)
    expected = theirs(torch.tensor(LOGITS).reshape(-1, 11), torch.tensor(LABELS).reshape(-1))
    assert float(loss(LABELS, LOGITS)) == pytest.approx(float(expected), rel=1e-5)
    each = torch.nn.CrossEntropyLoss(label_smoothing=share, reduction="none")
    expected = each(torch.tensor(LOGITS).reshape(-1, 11), torch.tensor(LABELS).reshape(-1)).reshape(3, 5)
    received = layers.SmoothedCrossentropy(share, reduction="none")(LABELS, LOGITS)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(received), expected, rtol=1e-5, atol=1e-6)


def test_padding_does_not_count():
    loss, other = layers.SmoothedCrossentropy(0.1), LOGITS.copy()
    other[LABELS == -100] = 50
    assert float(loss(LABELS, other)) == float(loss(LABELS, LOGITS))
    assert float(loss(np.full((3, 5), -100), LOGITS)) == 0
    assert float(layers.SmoothedCrossentropy(0.1, ignore_class=7)(np.full((3, 5), 7), LOGITS)) == 0


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_cannot_be(share):
    with pytest.raises(InputError, match="label_smoothing must be from 0 to 1. Received: label_smoothing="):
        layers.SmoothedCrossentropy(share)


@pytest.mark.jax_release
@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.0], "float32"), RANDOM.random((3, 5))])
def test_accuracy_omits_ignored_labels(weights):
    metric = layers.MaskedAccuracy()
    metric.update_state(LABELS, LOGITS, sample_weight=weights)
    counts = (LABELS != -100) * (1.0 if weights is None else weights if weights.ndim == 2 else weights[:, None])
    expected = ((LOGITS.argmax(-1) == LABELS) * counts).sum() / counts.sum()
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    restored = layers.MaskedAccuracy.from_config(layers.MaskedAccuracy(3, name="a").get_config())
    assert (restored.ignore_class, restored.name) == (3, "a")


@pytest.mark.jax
def test_accuracy_of_a_model_that_is_right_where_labels_count():
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, keras.layers.Embedding(11, 11, embeddings_initializer="identity")(ids))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    model.compile("sgd", loss, metrics=[layers.MaskedAccuracy(), keras.metrics.SparseCategoricalAccuracy(name="plain")])
    inputs = np.where(LABELS == -100, 0, LABELS)
    results = model.evaluate(inputs, LABELS, verbose=0, return_dict=True)
    assert results["accuracy"] == 1.0 and results["plain"] < 1.0
