"""Metrics compared with figures computed by hand, or from the packages that define them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer

from kerasformer.errors import InputError
from kerasformer.evaluation import metrics


def test_accuracy_and_macro_f1():
    expected, received = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]
    assert metrics.accuracy(received, expected) == 4 / 6
    # class 0: 2 right of 3 received and 3 expected; class 1: 2 of 3 and 2; class 2: never
    assert metrics.macro_f1(received, expected) == pytest.approx((2 * 2 / 6 + 2 * 2 / 5 + 0) / 3)


def test_f1_of_independent_labels():
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
def test_answer_scores_of_squad(received, expected, exact, f1):
    assert metrics.answer_scores(received, expected) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("received", "expected", "rouge1", "rouge2", "rougeL", "rougeLsum"),
    [
        ("police killed the gunman", ["police kill the gunman"], 1, 1, 1, 1),
        ("the gunman kill police", ["police kill the gunman"], 1, 1 / 3, 0.5, 0.5),
        ("the cat", ["nothing", "the cat sat on the mat"], 0.5, 1 / 3, 0.5, 0.5),
        ("A cats.", ["a CAT"], 1, 1, 1, 1),
        ("It rains.\nShe left.", ["She left.\nIt rains."], 1, 2 / 3, 0.5, 1),
        ("", ["a cat"], 0, 0, 0, 0),
    ],
)
def test_rouge(received, expected, rouge1, rouge2, rougeL, rougeLsum):  # noqa: N803
    """The first two are Lin's examples, section 3.1 of the paper; kill and killed have the same stem."""
    figures = metrics.rouge([received], [expected]).figures
    expected_figures = {"rouge1": rouge1, "rouge2": rouge2, "rougeL": rougeL, "rougeLsum": rougeLsum}
    assert figures == pytest.approx(expected_figures)


def test_bleu_and_chrf():
    """Four of five words, three of four bigrams, two of three trigrams and one of two 4-grams are correct."""
    one = metrics.bleu_and_chrf(["the cat sat on it"], [["the cat sat on mats"]]).figures
    assert one["bleu"] == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert 0 < one["chrf"] < 1
    several = metrics.bleu_and_chrf(
        ["the cat sat on it", "a dog ran by here"], [["x", "the cat sat on it"], ["a dog ran by here"]]
    )
    assert several.figures == pytest.approx({"bleu": 1, "chrf": 1})


HYPOTHESES = [
    "A man in a blue shirt is standing on a ladder cleaning a window .",
    "Two dogs run through the snow, and a third one waits.",
    "The girls' team won 3.5 points; it was 10% more than last year.",
]
REFERENCES = [
    ["A man wearing a blue shirt stands on a ladder, cleaning windows.", "A man cleans the window on a ladder."],
    ["Two dogs are running through snow.", "Two dogs run in the snow while a third is waiting."],
    ["The team of girls won by 3.5 points, 10% more than in the last year."],
]


def test_figures_equal_those_of_the_packages():
    """The packages are called by hand; texts with several lines have a sentence in each of them."""
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    scores = [scorer.score_multi(right, text) for text, right in zip(HYPOTHESES, REFERENCES, strict=True)]
    means = {name: np.mean([score[name].fmeasure for score in scores]) for name in scores[0]}
    assert metrics.rouge(HYPOTHESES, REFERENCES).figures == pytest.approx(means)
    columns = [[row[0] for row in REFERENCES], [row[1] if len(row) > 1 else None for row in REFERENCES]]
    bleu, chrf = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()
    expected = {"bleu": bleu.corpus_score(HYPOTHESES, columns).score / 100}
    expected["chrf"] = chrf.corpus_score(HYPOTHESES, columns).score / 100
    ours = metrics.bleu_and_chrf(HYPOTHESES, REFERENCES)
    assert ours.figures == expected
    assert 0.1 < ours.figures["bleu"] < 0.9
    assert ours.signatures == {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
    assert "nrefs:var" in ours.signatures["bleu"] and f"version:{sacrebleu.__version__}" in ours.signatures["bleu"]


@pytest.mark.parametrize(
    ("reference", "tokenizer"),
    [
        ("A dog runs.", "13a"),
        ("一只狗在跑。", "zh"),
        ("犬が走っている。", "char"),
        ("สุนัขวิ่ง", "char"),
        ("개가 달린다", "13a"),
        ("12", "13a"),
    ],
)
def test_the_tokenizer_of_bleu_suits_the_script(reference, tokenizer):
    scores = metrics.bleu_and_chrf([reference], [[reference]])
    assert f"tok:{tokenizer}|" in scores.signatures["bleu"]
    assert "tok:intl|" in metrics.bleu_and_chrf([reference], [[reference]], "intl").signatures["bleu"]


def test_an_unknown_tokenizer_and_one_without_its_package():
    with pytest.raises(InputError, match="bleu_tokenizer must be .*'zh'.*Received: bleu_tokenizer='chinese'"):
        metrics.bleu_and_chrf(["a"], [["a"]], "chinese")
    if importlib.util.find_spec("MeCab") is None:
        with pytest.raises(InputError, match=r"pip install sacrebleu\[ja\]"):
            metrics.bleu_and_chrf(["a"], [["a"]], "ja-mecab")


def test_rouge_refuses_scripts_that_it_does_not_count():
    with pytest.raises(InputError, match="letters a to z.*Received: 'Собака"):
        metrics.rouge(["Собака бежит."], [["Собака бежит 5 км."]])
    assert metrics.rouge(["Größe"], [["Größe"]]).figures["rouge1"] == 1
