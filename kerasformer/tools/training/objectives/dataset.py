"""Batches of an objective for `fit`, made freshly in each epoch."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol, cast

import keras
import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, integer, optional
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.training.objectives.batches import Batch
from kerasformer.tools.training.objectives.vocabulary import Vocabulary
from kerasformer.tools.training.shapes import with_different_first

Inputs = tuple[dict[str, np.ndarray], Any]
"""Inputs of a model and labels."""

_GROUP = 64
"""Number of batches among which texts are sorted by length."""


class Objective(Protocol):
    """An objective: a function that makes a batch of texts."""

    def __call__(self, texts: Any, vocabulary: Vocabulary, rng: np.random.Generator, /) -> Batch:
        """Returns the inputs of a model and the labels."""


class ObjectiveDataset(keras.utils.PyDataset):
    """Applies an objective to texts in each epoch anew: other masks, other spans, other pairs.

        dataset = ObjectiveDataset(texts, masked, Vocabulary.of(model), batch_size=32, seed=1)
        model.fit(dataset, epochs=3, shuffle=False)

    A batch depends on the seed, its epoch and its index alone; without `shuffle=False`, `fit` draws a further order of
    the batches. They consist of texts of similar length, and each is padded to its longest text. Options of an
    objective are set by `functools.partial`. An objective with an argument `corpus`, such as `next_sentence`, gets all
    texts as well. For `steps_per_epoch`, use `as_tf_dataset`.

    Args:
        texts: What the objective takes: texts, documents or pairs, tokenized.
        objective: Function such as `masked`.
        vocabulary: The vocabulary.
        batch_size: Number of texts in a batch; the last one may have fewer.
        seed: Seed of the order and of the objective.
        fresh: Whether each epoch has batches of its own; `False` for validation, where all epochs are the same.
        shuffle: Whether the texts are in a random order.
        by_length: Whether batches consist of texts of similar length.
        epoch: Index of the first epoch, to continue a training.
        kwargs: `keras.utils.PyDataset` arguments, such as `workers`.

    Raises:
        InputError: no texts, or an argument outside of its range.
    """

    def __init__(
        self,
        texts: Sequence[Any],
        objective: Objective,
        vocabulary: Vocabulary,
        batch_size: int = 32,
        *,
        seed: int = 0,
        fresh: bool = True,
        shuffle: bool = True,
        by_length: bool = True,
        epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not len(texts):
            raise InputError("A dataset needs at least one text. Received: none")
        if "corpus" in inspect.signature(objective).parameters:
            objective = cast(Objective, partial(objective, **{"corpus": texts, **getattr(objective, "keywords", {})}))
        self.texts, self.objective, self.vocabulary = texts, objective, vocabulary
        self.batch_size = check("batch_size", batch_size, integer(1))
        self.seed, self.epoch = check("seed", seed, integer(0)), check("epoch", epoch, integer(0))
        self.shuffle, self.by_length = check("shuffle", shuffle, BOOLEAN), check("by_length", by_length, BOOLEAN)
        self._lengths = np.array([_length(text) for text in texts]) if by_length else None
        self.fresh = check("fresh", fresh, BOOLEAN)
        self._order = self.epoch, self._batches(self.epoch)
        self._started = False

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return -(-len(self.texts) // self.batch_size)

    def __getitem__(self, index: int) -> Inputs:
        """Returns inputs and labels of a batch of the current epoch."""
        return self.batch(index, self.epoch)

    def batch(self, index: int, epoch: int) -> Inputs:
        """Returns inputs and labels of a batch of any epoch."""
        order = self._order
        if order[0] != epoch:  # several threads may read batches
            order = self._order = epoch, self._batches(epoch)
        texts = [self.texts[row] for row in order[1][index]]
        batch = dict(self.objective(texts, self.vocabulary, self._random(epoch, index + 1)))
        labels = batch.pop("labels")
        return batch, labels

    def on_epoch_end(self) -> None:
        """Starts the next epoch, except at the first call: `fit` also calls it before the first epoch."""
        self.epoch += self.fresh and self._started
        self._started = True

    def _random(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Returns the indices of the texts of each batch."""
        rng, size = self._random(epoch), self.batch_size
        order = rng.permutation(len(self.texts)) if self.shuffle else np.arange(len(self.texts))
        if self._lengths is None:
            return [order[start : start + size] for start in range(0, len(order), size)]
        groups = [order[start : start + _GROUP * size] for start in range(0, len(order), _GROUP * size)]
        ordered = np.concatenate([group[np.argsort(self._lengths[group], stable=True)] for group in groups])
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        if self.shuffle:
            batches = [batches[index] for index in rng.permutation(len(batches))]
        return with_different_first(batches, np.array([self._lengths[batch].max() for batch in batches])[:, None])

    def as_tf_dataset(self, epochs: int | None = None) -> Any:
        """Returns the batches of this and the following epochs as a `tf.data.Dataset`.

            model.fit(dataset.as_tf_dataset(), steps_per_epoch=len(dataset), epochs=3)

        Args:
            epochs: Number of epochs; unlimited by default. Each iteration starts with the same epoch.

        Raises:
            MissingExtraError: TensorFlow is not installed.
        """
        tf = require("tensorflow", "tensorflow")
        count, first = check("epochs", epochs, optional(integer(1))), self.epoch

        def batches() -> Iterator[Inputs]:
            for epoch in itertools.count(first) if count is None else range(first, first + count):
                yield from (self.batch(index, epoch if self.fresh else first) for index in range(len(self)))

        signature = keras.tree.map_structure(lambda value: tf.TensorSpec([None] * value.ndim, value.dtype), self[0])
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        size = tf.data.INFINITE_CARDINALITY if count is None else count * len(self)
        return dataset.apply(tf.data.experimental.assert_cardinality(size))


def _length(text: Any) -> int:
    """Returns the number of tokens of a text, a document or a pair."""
    return sum(map(_length, text)) if len(text) and np.ndim(text[0]) else len(text)
