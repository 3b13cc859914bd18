"""Masked language modelling: rates, units, and the examples of BERT, ALBERT, SpanBERT and XLM."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools import training
from kerasformer.tools.training import Masking, Vocabulary
from kerasformer.tools.training.objectives import masked_tokens
from tests import tiny_text
from tests.tools.training.objectives.spelled import Spelled, texts_of

# Two of three tokens continue a word: ids divisible by 3 start one.
VOCABULARY = Vocabulary(
    1000, mask_id=4, special_ids=(0, 1, 2, 3, 4), single=((1,), (2,)), word_starts=np.arange(1000) % 3 == 0
)
TEXTS = texts_of([400] * 100, 1000)
UNITS = ("token", "word", "ngram", "span")


@pytest.mark.parametrize("unit", UNITS)
def test_rates(unit):
    batch = training.masked(TEXTS, VOCABULARY, np.random.default_rng(0), Masking(unit=unit))
    ids, labels = batch["input_ids"], batch["labels"]
    chosen = labels != -100
    original = np.where(chosen, labels, ids)
    np.testing.assert_array_equal(original[:, 1:-1], TEXTS)  # inputs and labels rebuild the texts
    assert (ids[:, 0] == 1).all() and (ids[:, -1] == 2).all() and not chosen[:, [0, -1]].any()
    assert chosen.sum(axis=1) == pytest.approx(np.full(100, 60), abs=0 if unit == "token" else 2)
    inputs = ids[chosen]
    shares = np.mean(inputs == 4), np.mean(inputs == labels[chosen])
    assert shares == pytest.approx((0.8, 0.1), abs=0.03 if unit == "span" else 0.015)
    others = inputs[(inputs != 4) & (inputs != labels[chosen])]
    assert others.min() >= 5 and len(np.unique(others)) > 250


def _words(row: np.ndarray) -> np.ndarray:
    """The number of the word of each token."""
    starts = row % 3 == 0
    starts[[0, 1, -1]] = True
    return np.cumsum(starts)


@pytest.mark.parametrize("unit", UNITS[1:])
def test_words_are_chosen_as_a_whole(unit):
    rows, rng = [np.array([1, *text, 2]) for text in np.reshape(TEXTS, (10, 4000))], np.random.default_rng(2)
    spans = [masked_tokens.choose(row, VOCABULARY, rng, Masking(unit=unit)) for row in rows]
    lengths = []
    for row, chosen in zip(rows, spans, strict=True):
        words = _words(row)
        for start, end in chosen:
            assert words[start] != words[start - 1] and words[end] != words[end - 1]
            lengths.append(words[end] - words[start])
        ends, starts = np.array(chosen)[:-1, 1], np.array(chosen)[1:, 0]
        assert (starts - ends >= (unit == "span")).all()
    counts = np.bincount(lengths)[1:] / len(lengths)
    expected = {"word": [1], "ngram": np.array([6, 3, 2]) / 11, "span": Masking(unit="span").lengths}[unit]
    np.testing.assert_allclose(counts, np.resize(expected, len(counts)), atol=0.08)


def test_lengths_are_those_of_the_papers():
    np.testing.assert_allclose(Masking(unit="ngram").lengths, np.array([6, 3, 2]) / 11)
    assert Masking(unit="span").lengths @ np.arange(1, 11) == pytest.approx(3.8, abs=0.03)  # SpanBERT, section 3.1


def test_a_span_is_replaced_in_one_way():
    masking = Masking(unit="span", rate=0.3)
    rng = np.random.default_rng(3)
    for text in TEXTS[:20]:
        row = np.array([1, *text, 2])
        spans = masked_tokens.choose(row, VOCABULARY, rng, masking)
        changed = masked_tokens.replaced(row, spans, VOCABULARY, rng, masking)
        assert all(len(set(changed[start:end] == 4)) == 1 for start, end in spans)


def test_the_boundary_of_spanbert(monkeypatch):
    """Figure 1: "football" is predicted from x4, x9 and the third position of the span."""
    text = "Super Bowl 50 was an American football game to determine the champion"
    spelled = Spelled(text, single=((1,), (2,)))
    monkeypatch.setattr(masked_tokens, "choose", lambda *given: [(5, 9)])
    every = Masking(unit="span", masked=1.0, random=0.0)
    batch = training.span_boundary([spelled.ids(text)], spelled.vocabulary, np.random.default_rng(0), every)
    shown = "[CLS] Super Bowl 50 was [MASK] [MASK] [MASK] [MASK] to determine the champion [SEP]"
    assert spelled.text(batch["input_ids"][0]) == shown
    labels = batch["labels"]["boundary_logits"][0]
    slot = int(np.flatnonzero(labels == spelled.ids("football"))[0])
    arrays = [int(batch[f"span_{name}"][0, slot]) for name in ("left", "right", "index")]
    assert (slot, arrays) == (7, [4, 9, 2])
    np.testing.assert_array_equal(labels, batch["labels"]["prediction_logits"][0])


def test_the_pair_of_xlm():
    """Figure 1: positions are restarted, and each text has its language."""
    pair = "the curtains were blue", "les rideaux étaient bleus"
    spelled = Spelled(*pair, single=((2,), (2,)))
    ids = [tuple(map(spelled.ids, pair))]
    batch = training.translation_lm(ids, spelled.vocabulary, np.random.default_rng(0), (4, 7), Masking(rate=0.5))
    assert (batch["labels"] != -100).sum() == 4
    original = np.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])[0]
    assert spelled.text(original) == f"[SEP] {pair[0]} [SEP] [SEP] {pair[1]} [SEP]"
    assert batch["position_ids"].tolist() == [[*range(6), *range(6)]]
    assert batch["langs"].tolist() == [[4] * 6 + [7] * 6]


def test_words_of_real_tokenizers():
    for tokenizer in (tiny_text.wordpiece(), tiny_text.byte_pairs_in_texts(), tiny_text.pieces_in_texts()):
        vocabulary = Vocabulary.of(tokenizer)
        text = "some longer words"
        ids = np.array(tokenizer.encode(text, add_special_tokens=False))
        first = np.unique(tokenizer([text.split()], is_split_into_words=True, add_special_tokens=False).word_ids[0])
        assert vocabulary.starts_word(ids)[1:].sum() == len(first) - 1
        framed, segments = vocabulary.framed(ids, ids)
        expected = tokenizer([text], [text])
        np.testing.assert_array_equal(framed, expected["input_ids"][0])
        if vocabulary.segments:
            np.testing.assert_array_equal(segments, expected["token_type_ids"][0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": "letter"}, "unit must be 'token', 'word', 'ngram' or 'span'"),
        ({"masked": 0.9, "random": 0.2}, "Expected: a sum of at most 1"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        Masking(**settings)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one text"),
        ([[5], []], "1 have no tokens"),
        ([[5.5]], "list of token ids"),
        ([[1000]], "from 0 to 999"),
    ],
)
def test_texts_that_cannot_be(texts, message):
    with pytest.raises(InputError, match=message):
        training.masked(texts, VOCABULARY, np.random.default_rng(0))


def test_a_vocabulary_without_what_is_needed():
    with pytest.raises(InputError, match="mask_id=None"):
        training.masked([[5]], Vocabulary(9), np.random.default_rng(0))
    with pytest.raises(InputError, match="where a word starts"):
        training.masked([[5]], Vocabulary(9, mask_id=4), np.random.default_rng(0), Masking(unit="word"))
    with pytest.raises(InputError, match="before and after a text"):
        training.span_boundary([[5]], Vocabulary(9, mask_id=4), np.random.default_rng(0))


def test_an_array_with_padding_is_the_texts():
    rows = np.array([[0, 0, 7, 8], [9, 10, 11, 0]])
    batch = training.masked(rows, VOCABULARY, np.random.default_rng(0), Masking(rate=0.0))
    assert batch["input_ids"].tolist() == [[1, 7, 8, 2, 0], [1, 9, 10, 11, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
