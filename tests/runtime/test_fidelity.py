from __future__ import annotations

import numpy as np
import pytest

from kerasformer.errors import BundleError
from kerasformer.runtime.fidelity import compare, record_forward, record_step
from tests.decoding.engines import Toy


class Reader:
    """Answers at once: fixed scores of each token, of all classes or of the text's own sum."""

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
    assert max(fidelity.max_error, fidelity.mean_error) < 1e-6  # sums of another memory layout
    assert fidelity.agreement == 1
    assert fidelity.answers == (34 if per_token else 6)
    assert fidelity.within(1e-6, 1)


def test_one_wrong_token(inputs):
    engine = Reader()
    references = record_forward(engine, inputs)
    token = inputs["input_ids"][3, 0]
    place = engine.table[token].argmax()
    scale = engine.table[inputs["input_ids"][inputs["attention_mask"] > 0]].max()  # of what is recorded
    engine.table[token, place] -= 3
    fidelity = compare(engine, references)
    wrong = int((inputs["input_ids"] == token).sum())
    assert fidelity.agreement == pytest.approx((34 - wrong) / 34)
    assert fidelity.max_error == pytest.approx(3 / scale, rel=1e-5)
    assert not fidelity.within(1, 1) and not fidelity.within(0.1, 0) and fidelity.within(1, 0.5)


def test_nan_is_never_faithful(inputs):
    engine = Reader()
    references = record_forward(engine, inputs)
    engine.table[inputs["input_ids"][0, 0]] = np.nan
    assert not compare(engine, references).within(1e9, 0)


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


def test_an_early_difference_does_not_lead_the_rest_astray():
    """Along the recorded tokens one answer differs; freely generated, all that follows it may."""
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


def test_a_decoder_may_begin_with_a_token_of_its_own():
    references = record_step(Toy(), *PROMPTS, 9, 4)
    assert references["input.first"].tolist() == [[9], [9]]
    assert references["tokens"].tolist() != record_step(Toy(), *PROMPTS, None, 4)["tokens"].tolist()
