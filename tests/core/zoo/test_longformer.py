"""Longformer, in addition to the cases of all architectures: global tokens, long texts, graphs."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.models.config import Config
from kerasformer.pipelines import pipeline
from kerasformer.tools.testing.comparison import assert_same_outputs, ragged, run, run_reference
from tests import tiny_text
from tests.core.zoo.cases import CASES
from tests.core.zoo.harness import rows

pytestmark = pytest.mark.grid

LONGFORMER = [case for case in CASES if case.name == "longformer"]
SIZES = {
    "vocab_size": 61, "hidden_dim": 12, "num_layers": 2, "num_heads": 3, "intermediate_dim": 20, "num_positions": 42,
    "num_segments": 1,
}  # fmt: skip


def long_inputs(it, seed: int = 3) -> dict[str, np.ndarray]:
    """Returns texts of 37, 21 and 30 tokens, not multiples of a window, each with a question and three separators."""
    random, mask = np.random.default_rng(seed), ragged((37, 21, 30), "right")
    ids = random.integers(3, it.model.config.vocab_size, mask.shape).astype("int32")
    ids[:, [4, 5]] = 2
    ids[np.arange(3), mask.sum(axis=1) - 1] = 2
    return {"input_ids": np.where(mask > 0, ids, 1), "attention_mask": mask}


@pytest.mark.parametrize("row", rows(LONGFORMER, on_jax=False))
def test_long_texts_and_further_global_tokens(loaded, row):
    it = loaded(row)
    inputs = long_inputs(it)
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))
    marks = np.zeros_like(inputs["input_ids"])
    marks[0, [0, 11, 36]], marks[1, [2, 20, 30]] = 1, 1  # the last one is padding; the third text has none
    inputs["global_attention_mask"] = marks
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))


def test_the_question_is_global_by_default_where_transformers_finds_three_separators(loaded):
    it = loaded((LONGFORMER[0], "question-answering"))
    inputs = long_inputs(it)
    marks = np.zeros_like(inputs["input_ids"])
    marks[:, :4] = 1
    assert_same_outputs(inputs, run(it, inputs), run(it, {**inputs, "global_attention_mask": marks}))
    without = {**inputs, "input_ids": np.where(inputs["input_ids"] == 2, 3, inputs["input_ids"])}
    assert_same_outputs(inputs, run(it, without), run(it, {**without, "global_attention_mask": marks * 0}))


def test_too_many_global_tokens_are_refused_by_calls_and_give_nan_in_graphs():
    model = zoo.build("longformer", "question-answering", attention_window=4, max_global_tokens=3, **SIZES)
    ids = np.full((2, 20), 7, "int32")
    ids[0, 3], ids[1, 4] = 2, 2
    with pytest.raises(InputError, match=r"(?s)global tokens.*at most 3. Received: 4"):
        model({"input_ids": ids})
    graph = np.asarray(model.predict({"input_ids": ids}, verbose=0))
    assert np.isfinite(graph[0]).all() and np.isnan(graph[1]).all()
    np.testing.assert_allclose(graph[:1], np.asarray(model({"input_ids": ids[:1]})), atol=1e-5)


def test_a_pipeline_names_a_question_with_too_many_tokens():
    tokenizer = tiny_text.wordpiece()
    sizes = {**SIZES, "vocab_size": tokenizer.vocab_size, "sep_token_id": tokenizer.sep_token_id}
    model = zoo.build("longformer", "question-answering", attention_window=4, max_global_tokens=9, **sizes)
    model.tokenizer = tokenizer
    pipe = pipeline(model, "question-answering")
    assert pipe(question="When?", context="Rain is expected.")["answer"]
    with pytest.raises(InputError, match="global tokens"):
        pipe(question="When will the museum open again?" * 2, context="Rain is expected.")


@pytest.mark.parametrize("window", [5, [4, 4, 4], [4, 3], 0])
def test_windows_that_do_not_fit_the_layers(window):
    with pytest.raises(UnsupportedConfigError, match="attention_window"):
        zoo.build("longformer", attention_window=window, **SIZES)


def test_lengths_and_segments_follow_the_tables(loaded):
    config: Config = zoo.build("longformer", attention_window=4, **SIZES).config
    assert config.max_length == 40
    one, several = (zoo.build("longformer", **{**SIZES, "num_segments": n}) for n in (1, 2))
    assert one.input_names == ("input_ids", "attention_mask")
    assert several.input_names == ("input_ids", "attention_mask", "token_type_ids")
