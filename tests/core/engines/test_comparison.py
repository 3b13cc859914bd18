from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kerasformer.bundle import Limits, Rounding
from kerasformer.engines.fidelity.comparison import compare, record_rounding
from kerasformer.engines.fidelity.references import record_forward, record_reading, record_step
from kerasformer.errors import BundleError, InputError
from tests.core.generation.engines import Toy


class Reader:
    """Engine with fixed scores for each token, per token or summed over the text."""

    def __init__(self, name: str = "logits", per_token: bool = True) -> None:
        self.table = np.random.default_rng(0).normal(size=(50, 80)).astype("float32")
        self.name, self.per_token = name, per_token

    def run(self, inputs):
        states = self.table[inputs["input_ids"]] * inputs["attention_mask"][..., None]
        return {self.name: states if self.per_token else states.sum(axis=1)}


@pytest.fixture
def inputs():
    ids = np.random.default_rng(1).integers(1, 50, (6, 9)).astype("int32")
    mask = (np.arange(9) < np.array([9, 3, 7, 1, 9, 5])[:, None]).astype("int32")
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.mark.parametrize("per_token", [True, False])
def test_the_same_engine(inputs, per_token):
    engine = Reader(per_token=per_token)
    fidelity = compare(engine, record_forward(engine, inputs))
    assert max(fidelity.max_error, fidelity.mean_error) < 1e-6  # sums differ by the memory layout
    assert fidelity.agreement == 1
    assert fidelity.answers == (34 if per_token else 6)
    assert fidelity.within(Limits(1e-6, 1))


def test_one_wrong_token(inputs):
    engine = Reader()
    references = record_forward(engine, inputs)
    token = inputs["input_ids"][3, 0]
    position = engine.table[token].argmax()
    scale = engine.table[inputs["input_ids"][inputs["attention_mask"] > 0]].max()  # of the recorded entries
    engine.table[token, position] -= 3
    fidelity = compare(engine, references)
    wrong = int((inputs["input_ids"] == token).sum())
    assert fidelity.agreement == pytest.approx((34 - wrong) / 34)
    assert fidelity.max_error == pytest.approx(3 / scale, rel=1e-5)
    assert not fidelity.within(Limits(1, 1)) and not fidelity.within(Limits(0.1, 0)) and fidelity.within(Limits(1, 0.5))


def test_nan_is_never_faithful(inputs):
    engine = Reader()
    references = record_forward(engine, inputs)
    engine.table[inputs["input_ids"][0, 0]] = np.nan
    assert not compare(engine, references).within(Limits(1e9, 0))


def test_hidden_states_agree_by_direction(inputs):
    engine = Reader(name="last_hidden_state")
    references = record_forward(engine, inputs)
    engine.table *= 1.5
    assert compare(engine, references).agreement == 1
    engine.table *= -1
    assert compare(engine, references).agreement == 0


def test_references_of_another_engine(inputs):
    references = record_forward(Reader(), inputs)
    del references["input.attention_mask"]
    with pytest.raises(BundleError, match="attention_mask"):
        compare(Reader(), references)
    with pytest.raises(BundleError):
        compare(Reader(name="start_logits"), record_forward(Reader(), inputs))


PROMPTS = np.array([[0, 0, 5], [3, 4, 7]], "int32"), np.array([[0, 0, 1], [1, 1, 1]], "int32")


def test_the_same_generator():
    references = record_step(Toy(), *PROMPTS, None, 8)
    assert references["tokens"].shape == (2, 8)
    fidelity = compare(Toy(), references)
    assert (fidelity.max_error, fidelity.agreement, fidelity.answers, fidelity.generated) == (0, 1, 16, 1)


def test_an_early_difference_does_not_affect_later_answers():
    """Along the recorded tokens one answer differs; in free generation, all later tokens may."""
    references = record_step(Toy(), *PROMPTS, None, 8)
    engine, calls = Toy(), []

    def otherwise(row):
        calls.append(row)
        scores = engine.table[0, row[-1]] + engine.table[1, row[-2:][0]]
        return -scores if len(row) == 2 else scores

    engine.of = otherwise
    fidelity = compare(engine, references)
    assert fidelity.agreement == 15 / 16
    assert fidelity.generated is not None and fidelity.generated < 15 / 16
    assert fidelity.max_error > 0.1


def test_texts_by_themselves():
    prompts, recording, engine = (PROMPTS[0], np.ones_like(PROMPTS[0])), Toy(), Toy()
    references = record_step(recording, *prompts, 9, 4, alone=True)
    assert references["tokens"].tolist() == record_step(Toy(), *prompts, 9, 4)["tokens"].tolist()
    fidelity = compare(engine, references)
    assert (fidelity.agreement, fidelity.answers, fidelity.generated) == (1, 8, 1)
    assert max(recording.batches) == max(engine.batches) == 1


# Other figures than error and agreement.


@pytest.mark.parametrize("distribution", ["softmax", "sigmoid"])
def test_near_ties_are_excluded_and_larger_differences_are_not(inputs, distribution):
    """Three classes; the margin is 0.02 for half of the tokens and 1 for the others; every best answer changes."""
    engine = Reader()
    margins = np.where(np.arange(50) % 2, 0.02, 1.0).astype("float32")
    zeros = np.zeros_like(margins)
    engine.table = np.stack([margins, zeros - 2, zeros] if distribution == "softmax" else [margins], axis=1)
    references = record_forward(engine, inputs, distribution)
    tokens = inputs["input_ids"][inputs["attention_mask"] > 0]
    ties = int((tokens % 2).sum())
    engine.table[:, 0] -= 0.05
    noise = record_rounding(engine, references)
    assert noise.noise == pytest.approx(0.05, rel=1e-4)
    found = compare(engine, references, rounding=noise)
    assert (found.near_ties, found.decided_agreement) == (ties, 1.0)
    assert found.agreement == pytest.approx(1 - ties / len(tokens)) and found.within(Limits(1, 1))
    assert not compare(engine, references).within(Limits(1, 1))
    # The same answers if rounding alone has a smaller effect, and if its effect is zero.
    for share in (0.9, 0.1):
        less = dataclasses.replace(noise, divergence=share * noise.divergence, mean_error=share * noise.mean_error)
        assert compare(engine, references, rounding=less).within(Limits(1, 1)) == (share > 0.5)
    engine.table[:, 0] -= 2
    found = compare(engine, references, rounding=dataclasses.replace(record_rounding(engine, references), noise=1e3))
    assert (found.near_ties, found.decided_agreement) == (ties, 0.0) and not found.within(Limits(1e9, 0.5))


def test_rounding_in_a_manifest():
    noise = Rounding(0.1, 0.01, None)
    assert Rounding.of({"agreement": 1.0}) is None
    assert Rounding.of({"rounding": dataclasses.asdict(noise)}) == noise
    for wrong in (
        {},
        3,
        {**dataclasses.asdict(noise), "noise": "0.1"},
        {**dataclasses.asdict(noise), "mean_error": None},
    ):
        with pytest.raises(BundleError, match="fidelity.rounding.* must be .*Received.*Export the model again"):
            Rounding.of({"rounding": wrong})


def exact_divergence(expected: np.ndarray, received: np.ndarray) -> float:
    """Returns the KL divergence of all classes, in float64."""
    logs = [row - np.logaddexp.reduce(row, axis=-1, keepdims=True) for row in (expected, received)]
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1).mean())


@pytest.mark.parametrize("classes", [5, 64, 300])
def test_divergence_is_exact_up_to_64_classes_and_a_lower_bound_above(classes):
    rng = np.random.default_rng(3)
    engine = Reader(per_token=True)
    engine.table = rng.normal(scale=2, size=(50, classes)).astype("float32")
    ids = rng.integers(1, 50, (6, 9)).astype("int32")
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    references = record_forward(engine, inputs)
    before = engine.table.astype("float64")
    engine.table += rng.normal(scale=0.3, size=engine.table.shape).astype("float32")
    exact = exact_divergence(before[ids], engine.table[ids].astype("float64"))
    found = compare(engine, references).divergence
    if classes <= 64:
        assert found == pytest.approx(exact, rel=1e-4)
    else:
        assert 0.5 * exact < found < exact


def test_independent_classes(inputs):
    engine = Reader(per_token=False)
    engine.table = engine.table[:, :4]
    references = record_forward(engine, inputs, "sigmoid")
    same = compare(engine, references)
    assert (same.agreement, same.answers) == (1, 24)
    assert same.divergence == pytest.approx(0, abs=1e-9)
    scores = engine.run(inputs)["logits"].astype("float64")
    engine.table = engine.table + np.array([0, 0, 0, 0.7], "float32")
    shifted = engine.run(inputs)["logits"].astype("float64")
    p, q = (1 / (1 + np.exp(-x)) for x in (scores, shifted))
    exact = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    found = compare(engine, references)
    assert found.divergence == pytest.approx(exact.mean(), rel=1e-3)
    assert found.agreement == ((scores > 0) == (shifted > 0)).mean() < 1


def test_numbers_and_hidden_states_have_no_divergence(inputs):
    for name, distribution in (("logits", "none"), ("last_hidden_state", "softmax")):
        engine = Reader(name=name)
        assert compare(engine, record_forward(engine, inputs, distribution)).divergence is None


def test_span_scores_exclude_padding():
    """A text has as many scores as tokens; the padding up to a longer text of the batch is not recorded."""

    class Places(Reader):
        def run(self, inputs):
            return {"start_logits": self.table[inputs["input_ids"], 0]}

    ids = np.random.default_rng(1).integers(1, 50, (3, 9)).astype("int32")
    mask = (np.arange(9) < np.array([9, 3, 5])[:, None]).astype("int32")
    engine = Places()
    references = record_forward(engine, {"input_ids": ids, "attention_mask": mask})
    logits = engine.table[ids[1, :3], 0].astype("float64")
    assert references["output.start_logits.logsumexp"][1] == pytest.approx(np.logaddexp.reduce(logits), rel=1e-6)
    assert compare(engine, references).divergence == pytest.approx(0, abs=1e-9)


def test_recording_answers_with_nan_raises(inputs):
    engine = Reader()
    engine.table[inputs["input_ids"][0, 0], 3] = np.inf
    with pytest.raises(InputError, match="contain NaN or infinity"):
        record_forward(engine, inputs)


class Whole:
    """Engine with the answers of a `Toy` to whole texts."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy

    def run(self, inputs):
        ids = inputs["input_ids"][0]
        return {"logits": np.stack([self.toy.of(ids[: position + 1]) for position in range(len(ids))])[None]}


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_perplexity_before_and_after(rows):
    ids = np.array([[3, 4, 7, 1], [5, 6, 0, 0], [2, 9, 8, 0]], "int32")
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], "int32")
    references = record_step(Toy(), *PROMPTS, None, 4) | record_reading(Whole(Toy()), ids, mask)

    def perplexity(toy: Toy) -> float:
        found = []
        for row, length in zip(ids, mask.sum(axis=1), strict=True):
            for position in range(1, length):
                scores = toy.of(row[:position]).astype("float64")
                found.append(np.logaddexp.reduce(scores) - scores[row[position]])
        return float(np.exp(np.mean(found)))

    same = compare(Toy(), references, rows)
    assert same.perplexity == pytest.approx(perplexity(Toy()), rel=1e-5)
    assert same.keras_perplexity == pytest.approx(same.perplexity, rel=1e-6)
    assert same.answers == 2 * 4 + 3  # and the last answer of each running text
    other = Toy()
    other.table *= 1.3
    found = compare(other, references, rows)
    assert found.keras_perplexity == same.keras_perplexity
    assert found.perplexity == pytest.approx(perplexity(other), rel=1e-5)


def test_perplexity_of_an_encoder_decoder_is_that_of_its_answers():
    references = record_step(Toy(), *PROMPTS, 9, 6)
    other = Toy()
    other.table *= 1.3
    found = compare(other, references)
    assert compare(Toy(), references).perplexity == pytest.approx(found.keras_perplexity, rel=1e-6)
    assert found.perplexity < found.keras_perplexity  # a more confident model


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_free_generation_continues_after_a_difference(rows):
    """One pass follows the record and generates freely; separate generation results in the same tokens."""
    prompts = np.random.default_rng(5).integers(0, 12, (12, 3)).astype("int32"), np.ones((12, 3), "int32")
    references = record_step(Toy(), *prompts, None, 8)
    other = Toy()
    other.table += np.random.default_rng(6).normal(scale=0.3, size=other.table.shape).astype("float32")
    anew = record_step(other, *prompts, None, 8)["tokens"]
    expected = (anew == references["tokens"])[: -(-8 // rows) * rows].mean()  # the first batches with eight texts
    assert 0.2 < expected < 1
    found = compare(other, references, rows)
    assert found.generated == pytest.approx(expected)
    followed = compare(other, references, free=False)
    assert (found.answers, found.agreement, found.divergence) == (96, followed.agreement, followed.divergence)


def test_free_generation_is_optional():
    references = record_step(Toy(), *PROMPTS, None, 8)
    other = Toy()
    other.table *= -1
    found = compare(other, references, free=False)
    assert found.generated is None and max(other.batches) == len(PROMPTS[0])
    whole = compare(other, references)
    assert (found.agreement, found.max_error) == (whole.agreement, whole.max_error)


def test_older_references_are_supported_and_broken_ones_raise(inputs):
    references = record_step(Toy(), *PROMPTS, None, 4)
    with pytest.raises(BundleError, match="do not match this model.*tokens.*Export the model again"):
        compare(Toy(), {key: array for key, array in references.items() if key != "tokens"})
    with pytest.raises(BundleError, match="do not match"):
        compare(Toy(), {})
    with pytest.raises(BundleError, match="do not match"):
        compare(Toy(vocab_size=5), references)
    with pytest.raises(BundleError, match="do not match"):
        compare(Toy(), {**references, "tokens": references["tokens"][:, :2, None]})
    older = record_forward(Reader(), inputs)
    del older["distribution"]
    assert compare(Reader(), older).agreement == 1
