"""The objectives of T5, BART and PEGASUS: the examples of the papers, rates, and that targets rebuild the texts."""

from __future__ import annotations

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from kerasformer.errors import InputError
from kerasformer.tools import training
from kerasformer.tools.training import Vocabulary
from kerasformer.tools.training.objectives import denoising
from tests.tools.training.objectives.spelled import Spelled, fixed, texts_of

PARTY = "Thank you for inviting me to your party last week ."
T5 = Spelled(PARTY, encoder_decoder=True)
SENTINELS = Vocabulary(1000, sentinel_ids=tuple(range(999, 899, -1)), start_id=0, encoder_decoder=True)


def _both(spelled: Spelled, batch: dict) -> tuple[str, str]:
    """Source and target of a batch of one text; the decoder reads the target after its start token."""
    target = batch["labels"][0]
    np.testing.assert_array_equal(batch["decoder_input_ids"][0], [0, *target[:-1]])
    return spelled.text(batch["input_ids"][0]), spelled.text(target)


def test_span_corruption_of_t5():
    """Figure 2 and table 3."""
    text = np.array(T5.ids(PARTY))
    noise = np.isin(np.arange(11), [2, 3, 8])
    source, target = denoising.corrupted(text, noise, T5.vocabulary)
    assert T5.text(source) == "Thank you <X> me to your party <Y> week ."
    assert T5.text(target) == "<X> for inviting <Y> last <Z>"
    source, target = denoising.corrupted(text, np.isin(np.arange(11), [0, 1, 10]), T5.vocabulary)
    assert T5.text(source) == "<X> for inviting me to your party last week <Y>"
    assert T5.text(target) == "<X> Thank you <Y> ."


def test_prefix_and_deshuffling_of_t5():
    """Table 3."""
    ids = [T5.ids(PARTY)]
    source, target = _both(T5, training.prefix_lm(ids, T5.vocabulary, fixed(integers=[4])))
    assert (source, target) == ("Thank you for inviting", "me to your party last week .")
    shuffled = "party me for your to . last you inviting week Thank"
    source, target = _both(T5, training.deshuffling(ids, T5.vocabulary, fixed(permutation=[T5.ids(shuffled)])))
    assert (source, target) == (shuffled, PARTY)


def test_spans_of_t5():
    rng = np.random.default_rng(0)
    noise = np.array([denoising.random_spans(512, rng, 0.15, 3.0) for _ in range(200)])
    assert (noise.sum(axis=1) == 77).all()
    starts = (noise[:, 1:] & ~noise[:, :-1]).sum(axis=1)
    assert (starts == 26).all() and not noise[:, 0].any() and noise[:, -1].all()
    assert noise[:, 50:-50].mean(axis=0) == pytest.approx(np.full(412, 0.15), abs=0.13)
    for length in range(2, 30):
        assert 0 < denoising.random_spans(length, rng, 0.5, 1.0).sum() < length


def test_source_and_target_of_t5_rebuild_the_text():
    texts = texts_of([60, 2, 35, 17], 800)
    batch = training.span_corruption(texts, SENTINELS, np.random.default_rng(0), rate=0.3)
    for text, source, target in zip(texts, batch["input_ids"], batch["labels"], strict=True):
        spans: dict[int, list[int]] = {}
        for token in target[target >= 0]:
            if token >= 900:
                spans[token] = []
            else:
                spans[next(reversed(spans))].append(token)
        rebuilt = [piece for token in source[source > 0] for piece in spans.get(token, [token])]
        np.testing.assert_array_equal(rebuilt, text)


BART = Spelled("A B C . D E .")
DOCUMENT = [BART.ids("A B C ."), BART.ids("D E .")]


@pytest.mark.parametrize(
    ("objective", "settings", "rng", "source"),
    [
        (
            training.text_infilling,
            {"rate": 2 / 7},
            fixed(poisson=[0, 2], choice=[[1, 3]], permutation=[[2, 0]]),
            "A [MASK] . D [MASK] E .",
        ),
        (training.sentence_permutation, {}, fixed(permutation=[[1, 0]]), "D E . A B C ."),
        (training.document_rotation, {}, fixed(integers=[2]), "C . D E . A B"),
        (training.token_deletion, {}, fixed(choice=[[1, 4]]), "A C . E ."),  # the tokens that masking hides
    ],
)
def test_noise_of_bart(objective, settings, rng, source):
    """Figure 2."""
    batch = objective([DOCUMENT], BART.vocabulary, rng, **settings)
    assert _both(BART, batch) == (source, "A B C . D E .")


def test_bart_combines_noises():
    batch = training.denoising([DOCUMENT] * 50, BART.vocabulary, np.random.default_rng(0))
    sources = [BART.text(row) for row in batch["input_ids"]]
    assert all(0 < source.count("[MASK]") <= 5 for source in sources)
    assert 10 < sum(source.find("D") < source.find("A") for source in sources if "A" in source and "D" in source) < 40
    reverse = training.denoising([DOCUMENT], BART.vocabulary, fixed(), [lambda sentences, *_: [sentences[0][::-1]]])
    assert BART.text(reverse["input_ids"][0]) == ". C B A"


def test_rates_of_bart():
    text, rng = np.arange(5, 805), np.random.default_rng(0)
    vocabulary = Vocabulary(900, mask_id=4)
    counts = []
    for _ in range(100):
        (damaged,) = denoising.infill([text], vocabulary, rng)
        kept = damaged[damaged != 4]
        assert len(kept) == 560 and (np.diff(kept) > 0).all()  # 30 % are hidden
        assert not ((damaged[1:] == 4) & (damaged[:-1] == 4)).any()
        counts.append((damaged == 4).sum())
    assert np.mean(counts) == pytest.approx(240 / 3 + 0.5, abs=2)  # Poisson with mean 3; the last span is cut
    (deleted,) = denoising.delete_tokens([text], vocabulary, rng)
    assert len(deleted) == 680 and (np.diff(deleted) > 0).all()
    (rotated,) = denoising.rotate([text], vocabulary, rng)
    np.testing.assert_array_equal(np.roll(rotated, -int(np.argmin(rotated))), text)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_infilling_of_short_texts(rate, length):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        (damaged,) = denoising.infill([np.arange(5, 5 + length)], Vocabulary(90, mask_id=4), rng, rate)
        assert (damaged != 4).sum() == length - round(rate * length)


STORY = ["Pegasus is mythical .", "It is pure white .", "It names the model ."]


def test_gap_sentence_of_pegasus():
    """Figure 1: the second sentence has the most words of the others."""
    spelled = Spelled(*STORY)
    document = [spelled.ids(sentence) for sentence in STORY]
    for select in ("independent", "sequential"):
        batch = training.gap_sentences([document], spelled.vocabulary, fixed(), select=select)
        assert _both(spelled, batch) == ("Pegasus is mythical . [MASK] It names the model .", STORY[1])
    batch = training.gap_sentences([document], spelled.vocabulary, fixed(), select="lead", rate=0.7)
    assert _both(spelled, batch) == ("[MASK] [MASK] It names the model .", " ".join(STORY[:2]))
    batch = training.gap_sentences([document], spelled.vocabulary, fixed(choice=[[2, 0]]), select="random", rate=0.7)
    assert _both(spelled, batch) == ("[MASK] It is pure white . [MASK]", f"{STORY[0]} {STORY[2]}")


@pytest.mark.parametrize("unique", [False, True])
def test_principal_sentences_have_the_score_of_rouge(unique):
    scorer = RougeScorer(["rouge1"])
    rng = np.random.default_rng(0)
    for _ in range(20):
        sentences = [rng.integers(0, 12, rng.integers(2, 9)) for _ in range(6)]

        def score(chosen, sentences=sentences):
            texts = [[sentences[i] for i in range(6) if (i in chosen) is inside] for inside in (True, False)]
            tokens = [np.concatenate(text) for text in texts]
            tokens = [np.unique(each) for each in tokens] if unique else tokens
            return scorer.score(*(" ".join(f"w{token}" for token in each) for each in tokens))["rouge1"].fmeasure

        alone = np.array([score([index]) for index in range(6)])
        chosen = denoising.principal_sentences(sentences, 2, unique=unique)
        assert alone[chosen].sum() == pytest.approx(np.sort(alone)[-2:].sum())
        firsts = np.flatnonzero(np.isclose(alone, alone.max()))  # several, if equally good
        best = [max(score([first, other]) for other in range(6) if other != first) for first in firsts]
        chosen = denoising.principal_sentences(sentences, 2, sequential=True, unique=unique)
        assert np.isclose(best, score(chosen)).any() and np.isin(firsts, chosen).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: training.span_corruption([[7]], T5.vocabulary, rng), "at least 2 tokens"),
        (lambda rng: training.span_corruption([[7] * 100], T5.vocabulary, rng), "at most 3 spans. Received: 5"),
        (lambda rng: training.text_infilling([[[7]]], SENTINELS, rng), "mask_id=None"),
        (lambda rng: training.gap_sentences([[[7]]], T5.vocabulary, rng), "at least 2 sentences"),
    ],
)
def test_texts_that_cannot_be(call, message):
    with pytest.raises(InputError, match=message):
        call(np.random.default_rng(0))
