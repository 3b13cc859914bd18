"""Batches of an objective: freshly made in each epoch, deterministic, of similar lengths, and as `tf.data`."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.tools import training
from kerasformer.tools.training import ObjectiveDataset, Vocabulary
from tests.tools.training.objectives.spelled import texts_of

VOCABULARY = Vocabulary(97, mask_id=4, special_ids=tuple(range(5)), single=((1,), (2,)))
TEXTS = texts_of(np.random.default_rng(5).integers(3, 40, 70))


def _epoch(dataset: ObjectiveDataset) -> list[dict]:
    return [{**inputs, "labels": labels} for inputs, labels in (dataset[index] for index in range(len(dataset)))]


def _equal(first: list[dict], second: list[dict]) -> bool:
    return all(np.array_equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)


def _texts(epoch: list[dict]) -> list[tuple]:
    """The texts that inputs and labels contain."""
    original = [
        row[1 : mask.sum() - 1]
        for batch in epoch
        for row, mask in zip(
            np.where(batch["labels"] == -100, batch["input_ids"], batch["labels"]), batch["attention_mask"], strict=True
        )
    ]
    return [tuple(row.tolist()) for row in original]


@pytest.mark.parametrize("by_length", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs(shuffle, by_length):
    settings = {"batch_size": 8, "seed": 3, "shuffle": shuffle, "by_length": by_length}
    first, second = (ObjectiveDataset(TEXTS, training.masked, VOCABULARY, **settings) for _ in range(2))
    assert len(first) == 9
    epochs = [_epoch(first)]
    assert _equal(epochs[0], _epoch(first)) and _equal(epochs[0], _epoch(second))
    first.on_epoch_end()
    assert _equal(epochs[0], _epoch(first))
    first.on_epoch_end()
    epochs.append(_epoch(first))
    every = sorted(tuple(text.tolist()) for text in TEXTS)
    assert all(sorted(_texts(epoch)) == every for epoch in epochs)
    assert (_texts(epochs[0]) != _texts(epochs[1])) is shuffle
    if not shuffle:  # the same texts with other masks
        assert not _equal(*epochs)
    resumed = ObjectiveDataset(TEXTS, training.masked, VOCABULARY, **settings, epoch=1)
    assert _equal(epochs[1], _epoch(resumed))
    fixed = ObjectiveDataset(TEXTS, training.masked, VOCABULARY, **settings, fresh=False)
    assert (
        _equal(epochs[0], _epoch(fixed))
        and all(fixed.on_epoch_end() is None for _ in range(3))
        and _equal(epochs[0], _epoch(fixed))
    )
    other = ObjectiveDataset(TEXTS, training.masked, VOCABULARY, **{**settings, "seed": 4})
    assert not shuffle or _texts(_epoch(other)) != _texts(epochs[0])
    padding = [1 - batch["attention_mask"].mean() for batch in epochs[0]]
    assert bool(np.mean(padding) < 0.12) is by_length


def test_tf_data_has_the_same_batches():
    dataset = ObjectiveDataset(TEXTS, training.masked, VOCABULARY, batch_size=16, seed=2, epoch=4)
    data, endless = dataset.as_tf_dataset(epochs=2), dataset.as_tf_dataset()
    assert isinstance(data, tf.data.Dataset) and int(data.cardinality()) == 2 * len(dataset) == 10
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY
    expected = [dataset.batch(index, epoch) for epoch in (4, 5) for index in range(5)]
    expected = [{**inputs, "labels": labels} for inputs, labels in expected]
    for source in (data, data, endless.take(10)):  # an iteration has no effect on the next one
        received = [{**inputs, "labels": labels} for inputs, labels in source.as_numpy_iterator()]
        assert _equal(received, expected) and len(received) == 10


def test_fit_gets_fresh_batches(monkeypatch):
    sizes = {"vocab_size": 97, "hidden_dim": 8, "num_heads": 2, "num_layers": 1, "intermediate_dim": 8}
    model = zoo.build("bert", task="fill-mask", max_length=50, **sizes)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True, ignore_class=-100), run_eagerly=True)
    dataset = ObjectiveDataset(TEXTS, training.masked, VOCABULARY, batch_size=35)
    read = []
    compute = model.compute_loss
    monkeypatch.setattr(
        model,
        "compute_loss",
        lambda x, y, *given, **named: read.append(np.asarray(x["input_ids"])) or compute(x, y, *given, **named),
    )
    model.fit(dataset, epochs=3, verbose=0, shuffle=False)
    expected = [dataset.batch(index, epoch)[0]["input_ids"] for epoch in range(3) for index in range(2)]
    assert len(read) == 6 and all(map(np.array_equal, read, expected))
    assert dataset.epoch == 3


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        ([], {}, "at least one text"),
        (TEXTS, {"batch_size": 0}, "batch_size must be"),
        (TEXTS, {"epoch": 1.5}, "epoch must be"),
    ],
)
def test_settings_that_cannot_be(texts, settings, message):
    with pytest.raises(InputError, match=message):
        ObjectiveDataset(texts, training.masked, VOCABULARY, **settings)
