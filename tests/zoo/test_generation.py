"""Generation: the tokens of `transformers`, and equal logits with and without a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import kerasformer
from kerasformer import decoding, zoo
from kerasformer.decoding import loop
from kerasformer.errors import CapacityError, GenerationError, InputError
from kerasformer.models import keras_engine
from kerasformer.models.keras_engine import KerasStep
from tests import tiny_text
from tests.zoo.cases import DISTINCT
from tests.zoo.harness import (
    PAD,
    Loaded,
    assert_close,
    distinct,
    first_of_each,
    further_inputs,
    ragged,
    rows,
    run,
    run_reference,
    takes_positions,
)

ROWS = rows(tasks=("text-generation", "text2text-generation"))
NEW = 12


def prompts(it: Loaded, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns three prompts with padding on the side that the model requires."""
    mask = ragged((7, 3, 5), "right" if it.model.is_encoder_decoder else "left")
    return np.random.default_rng(seed).integers(3, 97, mask.shape).astype("int32") * mask, mask


def theirs(it: Loaded, ids: np.ndarray, mask: np.ndarray, **settings: Any) -> Any:
    return it.reference.generate(
        torch.tensor(ids).long(),
        attention_mask=torch.tensor(mask).long(),
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        use_cache=not it.model.is_encoder_decoder,  # transformers fails if the stacks differ in length
        output_scores=True,
        **further_inputs(it.reference, ids),
        **settings,
    )


SETTINGS = {
    "greedy": {},
    "varied": {"no_repeat_ngram_size": 1, "suppress_tokens": [PAD]},
    "beams": {"num_beams": 3, "length_penalty": 0.7},
}


def _with_settings(row: Any, name: str) -> Any:
    """Returns a parameter; rules and search are the same for relatives, further configurations and backends."""
    marks = [mark for mark in row.marks if name == "greedy" or mark.name != "jax"]
    if name != "greedy" and row.values[0][0] not in DISTINCT:
        marks.append(pytest.mark.release)
    return pytest.param(*row.values, SETTINGS[name], id=f"{row.id}-{name}", marks=marks)


@pytest.mark.parametrize(
    ("row", "settings"), [_with_settings(row, name) for row in first_of_each(ROWS) for name in SETTINGS]
)
def test_the_tokens_of_transformers(loaded, row, settings):
    it = loaded(row)
    ids, mask = prompts(it)
    end = [30, 31, 32, 33]
    expected = theirs(it, ids, mask, eos_token_id=end, **settings)
    ours = it.model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW, eos_token_id=end, jit_compile=False, **settings
    )
    begin = 1 if it.model.is_encoder_decoder else ids.shape[1]
    for row_of_ours, full in zip(ours, expected.sequences[:, begin:].tolist(), strict=True):
        assert row_of_ours.tolist() == full[: len(row_of_ours)]
        assert set(full[len(row_of_ours) :]) <= {PAD, *end}
    if "num_beams" not in settings:
        best = torch.stack(expected.scores).topk(2, dim=-1).values
        assert (best[..., 0] - best[..., 1]).median() >= 1e-3  # otherwise rounding decides
    if "no_repeat_ngram_size" in settings:
        assert len(np.unique(np.concatenate(ours))) > 12


@pytest.mark.parametrize("row", distinct(ROWS))
def test_with_the_cache_as_without(loaded, row):
    it = loaded(row)
    ids, mask = prompts(it)
    text = np.random.default_rng(1).integers(3, 97, (3, 7)).astype("int32")
    step = KerasStep(it.model, capacity=min(48, it.model.max_answer_length or 48), jit_compile=False)
    state = step.start(ids, mask)
    if it.model.is_encoder_decoder:
        whole = run(it, {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": text})["logits"]
        following = text
    else:
        real = np.concatenate([mask, np.ones_like(text)], axis=1)
        positions = np.maximum(np.cumsum(real, axis=1) - 1, 0)
        inputs = {"input_ids": np.concatenate([ids, text], axis=1), "attention_mask": real}
        inputs |= {"position_ids": positions} if takes_positions(it) else {}
        whole = run(it, inputs)["logits"][:, ids.shape[1] - 1 : -1]
        following = np.concatenate([ids[:, -1:], text], axis=1)[:, :7]
    got = []
    for first, last in ((0, 1), (1, 2), (2, 6), (6, 7)):  # one token at a time, and four at once
        logits, state = step.step(following[:, first:last], state)
        got.append(logits)
    assert_close({}, np.concatenate(got, axis=1), whole, "logits")
    again, _ = step.step(following[:, 3:7], step.rewind(state, 4))
    assert_close({}, again, whole[:, 3:7], "after rewind")
    rows_now = np.array([2, 0, 0])
    moved = step.reorder(step.rewind(step.fork(state), 1), rows_now)
    logits, _ = step.step(following[rows_now, 6:7], moved)
    assert_close({}, logits, whole[rows_now, 6:7], "after reorder")


WINDOWS = [row for row in ROWS if row.values[0][0].name in ("gpt_neo", "gpt_neo-odd")]


@pytest.mark.parametrize("row", WINDOWS)
def test_caches_that_wrap(loaded, row):
    """A text several times longer than the caches of the layers with a window, after a prompt longer than them."""
    it = loaded(row)
    ids, mask = np.random.default_rng(2).integers(3, 97, (3, 30)).astype("int32"), ragged((30, 11, 23), "left")
    text = np.random.default_rng(3).integers(3, 97, (3, 30)).astype("int32")
    step = KerasStep(it.model, capacity=61, jit_compile=False)
    state = step.start(ids * mask, mask)
    assert min(key.shape[2] for key, _ in state.caches) < 30
    real = np.concatenate([mask, np.ones_like(text)], axis=1)
    inputs = {"input_ids": np.concatenate([ids * mask, text], axis=1), "attention_mask": real}
    inputs["position_ids"] = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    expected = run_reference(it.reference, inputs).logits.numpy()[:, 29:-1]
    following, got = np.concatenate([ids[:, -1:], text[:, :-1]], axis=1), []
    for first, last in ((0, 1), *((start, start + 4) for start in range(1, 29, 4)), (29, 30)):
        logits, state = step.step(following[:, first:last], state)
        got.append(logits)
    assert_close({}, np.concatenate(got, axis=1), expected, "logits")


def test_a_full_cache_is_an_error(loaded):
    it = loaded(ROWS[0].values[0])
    ids, mask = prompts(it)
    with pytest.raises(CapacityError, match="at most 5 tokens. Received: 7"):
        KerasStep(it.model, capacity=5, jit_compile=False).start(ids, mask)
    with pytest.raises(CapacityError, match="has 64 positions. Received: capacity=65"):
        KerasStep(it.model, capacity=65)
    for capacity in (10**9, 0, "8", True):
        with pytest.raises(CapacityError, match="capacity must be an integer from 1 to 65536"):
            KerasStep(it.model, capacity=capacity)
    step = KerasStep(it.model, capacity=7, jit_compile=False)
    state = step.start(ids, mask)
    _, state = step.step(ids[:, -1:], state)
    with pytest.raises(CapacityError, match="full: it holds 7"):
        step.step(ids[:, :1], state)


@pytest.mark.jax
@pytest.mark.parametrize("name", ["gpt_neo", "t5"])
def test_many_tokens_of_one_call_are_those_of_steps(loaded, monkeypatch, name):
    """Several calls, caches that grow or wrap within them, and rows that end in different calls and are dropped."""
    monkeypatch.setattr(keras_engine, "_FIRST_SLOTS", 64)
    monkeypatch.setattr(loop, "_TOKENS_AT_ONCE", 8)
    it = loaded(next(row.values[0] for row in ROWS if row.values[0][0].name == name))
    ids, mask = prompts(it)
    step = KerasStep(it.model, jit_compile=False)
    settings = decoding.GenerationConfig(max_new_tokens=50, decoder_start_token_id=PAD)
    sizes = []
    write, continue_greedily = step.step, step.continue_greedily
    monkeypatch.setattr(step, "step", lambda *arguments: sizes.append(1) or write(*arguments))
    monkeypatch.setattr(
        step, "continue_greedily", lambda *arguments: sizes.append(arguments[2]) or continue_greedily(*arguments)
    )

    def texts(**controls: Any) -> tuple[list[list[int]], list[str]]:
        output = decoding.generate(step, ids, mask, settings, decoding.Controls(**controls))
        return [row.tolist() for row in output.sequences], output.finish_reasons

    expected = texts(cancelled=lambda: False)  # needs each token before the next one
    assert sizes == [1] * 50
    sizes.clear()
    assert texts() == expected
    assert sizes == [8] * 6 + [2]
    new = [row.index(row[at]) for row, at in zip(expected[0], (3, 20, 40), strict=True)]
    settings = settings.replace(eos_token_id=[row[at] for row, at in zip(expected[0], new, strict=True)])
    ended = texts(cancelled=lambda: False)
    sizes.clear()
    assert texts() == ended
    assert len(sizes) == -(-max(map(len, ended[0])) // 8)


def test_many_tokens_of_one_call_must_be_numbers(loaded):
    it = loaded(ROWS[0].values[0])
    model = zoo.load(it.folder)
    for variable in model.variables:
        if "final_norm/bias" in variable.path:
            variable.assign(np.full(variable.shape, np.nan, "float32"))
    ids, mask = prompts(it)
    with pytest.raises(GenerationError, match="finite greatest logit in each row"):
        model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)


@pytest.mark.jax
def test_compiled_with_xla_the_same(loaded):
    it = loaded(ROWS[0].values[0])
    ids, mask = prompts(it)
    plain = it.model.generate(ids, attention_mask=mask, max_new_tokens=5, jit_compile=False)
    fast = it.model.generate(ids, attention_mask=mask, max_new_tokens=5, jit_compile=True)
    assert [row.tolist() for row in fast] == [row.tolist() for row in plain]


def test_weights_that_change_later_are_used(loaded):
    it = loaded(ROWS[0].values[0])
    model = zoo.load(it.folder)
    ids, mask = prompts(it)
    model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)
    for variable in model.variables:
        if "final_norm/bias" in variable.path:
            variable.assign(1e4 * np.asarray(model.backbone.tokens.embeddings)[42])
    after = model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)
    assert all(row.tolist() == [42, 42, 42] for row in after)


def test_settings_of_the_checkpoint_are_used(loaded, tmp_path):
    it = loaded(ROWS[0].values[0])
    model = zoo.load(it.folder)
    assert model.generation_config.pad_token_id == PAD
    assert 2 in np.atleast_1d(model.generation_config.eos_token_id)
    model.generation_config = decoding.GenerationConfig(max_new_tokens=4, pad_token_id=PAD)
    model.save_pretrained(tmp_path)
    ids, mask = prompts(it)
    assert [len(row) for row in zoo.load(tmp_path).generate(ids, attention_mask=mask, jit_compile=False)] == [4, 4, 4]


SILENT = [
    (model_type, task) for model_type, tasks in zoo.models().items() for task in tasks if "generation" not in task
]


@pytest.mark.parametrize(("model_type", "task"), SILENT)
def test_models_that_answer_at_once_refuse_to_generate(model_type, task):
    kind = zoo.architecture(model_type).MODELS[task]
    model = kind.__new__(kind)  # only the class matters
    for method in ("generate", "stream"):
        with pytest.raises(
            InputError, match=rf"task='text-generation'.*Received: {kind.__name__}, a model for {kind.task}"
        ):
            getattr(model, method)("Once upon a time")
    assert not kind.generates and not hasattr(kind, "decode") and not hasattr(kind, "cache_shapes")


def test_engines_and_likelihoods_refuse_a_classifier():
    model = zoo.build("gpt2", "text-classification", vocab_size=203, hidden_dim=12, num_layers=1, num_heads=3)
    model.tokenizer = tiny_text.wordpiece()
    ids = np.array([[4, 5, 6]], "int32")
    asks = [
        lambda: KerasStep(model),
        lambda: kerasformer.sequence_logprob(model, ids),
        lambda: kerasformer.next_token_distribution(model, "text"),
        lambda: kerasformer.pipeline(model, "text-generation"),
    ]
    for ask in asks:
        with pytest.raises(InputError, match="generates|This source is for text-classification"):
            ask()
