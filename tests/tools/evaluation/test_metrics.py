"""Metrics compared with figures computed by hand, or from the packages that define them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer
from scipy import stats
from sklearn import metrics as sklearn_metrics

from kerasformer.errors import InputError
from kerasformer.tools.evaluation import ConfusionMatrix, metrics
from kerasformer.tools.evaluation.classes import entity_scores


@pytest.mark.parametrize("count", [2, 3, 7])
def test_classes_equal_scikit_learn(count):
    """Of many texts, of a class that never occurs, and of answers that are all the same."""
    numbers = np.random.default_rng(count)
    expected = numbers.integers(0, count, 60)
    for received in (numbers.integers(0, count, 60), np.where(numbers.random(60) < 0.7, expected, 0), 0 * expected):
        labels = [f"class {index}" for index in range(count + 1)]
        matrix = ConfusionMatrix.of(labels, received, expected)
        np.testing.assert_array_equal(
            matrix.counts, sklearn_metrics.confusion_matrix(expected, received, labels=range(count + 1))
        )
        rows = sklearn_metrics.precision_recall_fscore_support(
            expected, received, labels=range(count + 1), zero_division=0
        )
        ours = [(one.precision, one.recall, one.f1, one.support) for one in matrix.classes()]
        np.testing.assert_allclose(ours, np.transpose(rows))
        assert matrix.accuracy() == metrics.accuracy(received.tolist(), expected.tolist())
        assert matrix.macro_f1() == pytest.approx(sklearn_metrics.f1_score(expected, received, average="macro"))
        assert matrix.matthews() == pytest.approx(sklearn_metrics.matthews_corrcoef(expected, received))


def test_correlations_equal_scipy():
    """With equal numbers, and without any; a constant has no correlation, which counts as 0."""
    numbers = np.random.default_rng(0)
    for received in (numbers.normal(size=40), numbers.integers(0, 5, 40), np.arange(40)):
        expected = numbers.integers(0, 6, 40) / 5
        assert metrics.pearson(received, expected) == pytest.approx(stats.pearsonr(received, expected).statistic)
        assert metrics.spearman(received, expected) == pytest.approx(stats.spearmanr(received, expected).statistic)
        np.testing.assert_array_equal(metrics.ranks(received), stats.rankdata(received))
    assert metrics.pearson([1, 1], [1, 2]) == metrics.spearman([1, 1], [1, 2]) == 0


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
        (["S-PER", "S-PER", "B-LOC", "E-LOC", "I-LOC"], {("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 3), ("LOC", 4, 4)}),
        (["B-PER", "L-PER", "L-PER", "U-LOC", "U-LOC"], {("PER", 0, 1), ("PER", 2, 2), ("LOC", 3, 3), ("LOC", 4, 4)}),
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


def test_entities_equal_the_report_of_seqeval():
    """The example of the README of seqeval 1.2.2: F1 is 0.50, of MISC 0.00 and of PER 1.00."""
    expected = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    received = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    spans = [[metrics.entities(row) for row in rows] for rows in (received, expected)]
    assert metrics.f1(*spans) == 0.5
    report = [(one.label, one.precision, one.recall, one.f1, one.support) for one in entity_scores(*spans)]
    assert report == [("MISC", 0, 0, 0, 1), ("PER", 1, 1, 1, 1)]


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
