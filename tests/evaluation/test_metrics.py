"""Metrics beside figures worked out by hand, or taken from the packages that define them."""

from __future__ import annotations

import pytest

from kerasformer.evaluation import metrics


def test_accuracy_and_macro_f1():
    expected, received = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]
    assert metrics.accuracy(received, expected) == 4 / 6
    # class 0: 2 right of 3 received and 3 expected; class 1: 2 of 3 and 2; class 2: never
    assert metrics.macro_f1(received, expected) == pytest.approx((2 * 2 / 6 + 2 * 2 / 5 + 0) / 3)


def test_f1_of_labels_that_do_not_exclude_each_other():
    expected, received = [{0, 1}, {1}, set()], [{0}, {1, 2}, set()]
    # label 0: 1; label 1: 1 right of 1 and 2; label 2: received once, never expected
    assert metrics.labels_f1(received, expected) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert metrics.labels_f1([set()], [set()]) == 1


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["B-PER", "I-PER", "O", "B-LOC"], {("PER", 0, 1), ("LOC", 3, 3)}),
        (["B-PER", "B-PER"], {("PER", 0, 0), ("PER", 1, 1)}),
        (["I-PER", "I-LOC", "I-LOC"], {("PER", 0, 0), ("LOC", 1, 2)}),
        (["B-PER", "I-LOC"], {("PER", 0, 0), ("LOC", 1, 1)}),
        (["O", "I-PER", "O", "I-PER"], {("PER", 1, 1), ("PER", 3, 3)}),
        (["PER", "PER", "O"], {("PER", 0, 1)}),
        (["B-PER-X", "I-PER-X"], {("PER-X", 0, 1)}),
        (["O", "O"], set()),
        ([], set()),
    ],
)
def test_entities(tags, expected):
    assert metrics.entities(tags) == expected


def test_f1_of_entities():
    expected = [{("PER", 0, 1), ("LOC", 3, 3)}, {("LOC", 0, 0)}]
    received = [{("PER", 0, 1), ("LOC", 3, 4)}, set()]
    assert metrics.f1(received, expected) == 2 * 1 / (2 + 3)
    assert metrics.f1([set()], [set()]) == 1
    assert metrics.f1([{("PER", 0, 0)}], [set()]) == 0


@pytest.mark.parametrize(
    ("received", "expected", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("in Paris, France", ["Paris"], 0, 0.5),
        ("Paris", ["London", "paris."], 1, 1),
        ("", [], 1, 1),
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("very very good", ["very good"], 0, 0.8),
    ],
)
def test_answers_as_squad_counts_them(received, expected, exact, f1):
    assert metrics.answer_scores(received, expected) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("received", "expected", "score"),
    [
        ("police killed the gunman", "police kill the gunman", 0.75),
        ("the gunman kill police", "police kill the gunman", 0.5),
        ("the cat", "the cat sat on the mat", 2 * 2 / 8),
        ("A cat.", "a CAT", 1),
        ("", "a cat", 0),
        ("", "", 1),
    ],
)
def test_rouge_l(received, expected, score):
    """The first two are Lin's own examples, section 3.1 of the paper."""
    assert metrics.rouge_l(received, expected) == pytest.approx(score)
