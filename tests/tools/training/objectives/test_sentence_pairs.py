"""Next sentence and sentence order: labels, halves and lengths."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools import training
from kerasformer.tools.training import Vocabulary

VOCABULARY = Vocabulary(20_000, mask_id=4, special_ids=tuple(range(5)), pair=((1,), (2,), (2,)), segments=True)
# Sentence s of document d has the tokens 1000 d + 10 s + 5, 6, 7, …
DOCUMENTS = [
    [list(range(1000 * d + 10 * s + 5, 1000 * d + 10 * s + 5 + 2 + (s + d) % 5)) for s in range(4 + d % 3)]
    for d in range(1, 9)
]


def _halves(batch: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = []
    for ids, segments in zip(batch["input_ids"], batch["token_type_ids"], strict=True):
        ends = np.flatnonzero(ids == 2)
        assert len(ends) == 2 and ids[0] == 1
        np.testing.assert_array_equal(segments[: ends[1] + 1], np.arange(ends[1] + 1) > ends[0])
        pairs.append((ids[1 : ends[0]], ids[ends[0] + 1 : ends[1]]))
    return pairs


def _follows(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether the second text starts with the token after the first one in the document."""
    document = [token for sentence in DOCUMENTS[first[0] // 1000 - 1] for token in sentence]
    return bool(second[0] // 1000 == first[0] // 1000) and document.index(second[0]) == document.index(first[-1]) + 1


def test_next_sentences():
    labels, lengths = [], []
    for seed in range(50):
        batch = training.next_sentence(DOCUMENTS, VOCABULARY, np.random.default_rng(seed), max_length=60)
        for (first, second), label in zip(_halves(batch), batch["labels"], strict=True):
            assert _follows(first, second) is bool(label == 0)
            assert bool(second[0] // 1000 == first[0] // 1000) is bool(label == 0)
            lengths.append(len(first))
        labels += batch["labels"].tolist()
    assert np.mean(labels) == pytest.approx(0.5, abs=0.1) and len(set(lengths)) > 10


def test_order_of_sentences():
    labels = []
    for seed in range(50):
        batch = training.sentence_order(DOCUMENTS, VOCABULARY, np.random.default_rng(seed), max_length=60)
        for pair, label in zip(_halves(batch), batch["labels"], strict=True):
            assert _follows(*(pair if label == 0 else pair[::-1]))
        labels += batch["labels"].tolist()
    assert np.mean(labels) == pytest.approx(0.5, abs=0.1)


def test_a_batch_of_one_document_has_a_corpus():
    read = training.ObjectiveDataset(DOCUMENTS, training.next_sentence, VOCABULARY, batch_size=1)
    labels = []
    for epoch in range(8):
        for index in range(len(read)):
            inputs, label = read.batch(index, epoch)
            [(first, second)] = _halves(inputs)
            assert bool(second[0] // 1000 == first[0] // 1000) is bool(label[0] == 0)
            labels.append(label[0])
    assert 0.3 < np.mean(labels) < 0.7


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        (DOCUMENTS[:1], {}, "at least 2 different documents. Received: 1"),
        ([[[5]], [[6], [7]]], {}, "two sentences"),
        ([[[5], []], [[6], [7]]], {}, "1 have no tokens"),
        (DOCUMENTS, {"max_length": 4}, "max_length must be an integer of at least 5"),
    ],
)
def test_documents_that_cannot_be(documents, settings, message):
    with pytest.raises(InputError, match=message):
        for seed in range(9):  # half of the pairs need another document
            training.next_sentence(documents, VOCABULARY, np.random.default_rng(seed), **settings)
