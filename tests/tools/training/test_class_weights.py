"""Weights of classes beside scikit-learn's, and their losses beside PyTorch's."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from kerasformer.errors import InputError
from kerasformer.tools.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy, class_weights

RANDOM = np.random.default_rng(0)


def again(loss):
    """The loss from its serialized form."""
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))


@pytest.mark.parametrize("labels", [[0, 0, 0, 2, 1, 2], [[0, 0], [0, -100, 2, 1], [2, -100]], [[0, 1], [1, -100]]])
def test_balanced_weights_are_those_of_scikit_learn(labels):
    flat = np.concatenate([np.ravel(row) for row in labels])
    flat = flat[flat >= 0]
    expected = compute_class_weight("balanced", classes=np.unique(flat), y=flat)
    np.testing.assert_allclose(list(class_weights(labels).values()), expected)
    assert list(class_weights(labels)) == sorted(set(flat))


@pytest.mark.jax
@pytest.mark.parametrize("shape", [(6,), (3, 5)], ids=["texts", "tokens"])
def test_the_loss_is_that_of_pytorch(shape):
    logits, labels = RANDOM.normal(size=(*shape, 4)).astype("float32"), RANDOM.integers(0, 4, shape)
    labels.flat[::4] = -100
    weights = {0: 0.2, 1: 3.0, 3: 1.5}
    reference = torch.nn.CrossEntropyLoss(torch.tensor([0.2, 3.0, 1.0, 1.5]), ignore_index=-100)
    expected = reference(torch.tensor(logits).reshape(-1, 4), torch.tensor(labels).ravel())
    np.testing.assert_allclose(again(WeightedCrossentropy(weights))(labels, logits), expected, rtol=1e-5)
    assert float(WeightedCrossentropy(weights)(np.full(shape, -100), logits)) == 0


@pytest.mark.jax_release
def test_the_loss_of_independent_classes_is_that_of_pytorch():
    logits, labels = RANDOM.normal(size=(5, 3)).astype("float32") * 9, RANDOM.integers(0, 2, (5, 3))
    labels[0] = 1
    weights = class_weights(labels, multi_label=True)
    counts = labels.sum(0)
    np.testing.assert_allclose(list(weights.values()), (5 - counts) / counts)
    reference = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(list(weights.values())))
    expected = reference(torch.tensor(logits), torch.tensor(labels).float())
    np.testing.assert_allclose(again(WeightedBinaryCrossentropy(weights))(labels, logits), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "labels, options, message",
    [
        ([], {}, "Ids of classes from 0"),
        ([0.5, 1.0], {}, "of type float64"),
        ([0, 1], {"multi_label": True}, r"Rows of zeros and ones.*shape \(2,\)"),
    ],
)
def test_labels_without_weights(labels, options, message):
    with pytest.raises(InputError, match=message):
        class_weights(labels, **options)
