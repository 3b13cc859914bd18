"""Generation: the tokens of `transformers`, and equal logits with and without a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import CapacityError, GenerationError, InputError
from kerasformer.generation import Controls, GenerationConfig, generate, loop
from kerasformer.models import keras_caches
from kerasformer.models.keras_engine import KerasStep
from kerasformer.tools.testing import generation
from kerasformer.tools.testing.comparison import PAD
from tests.core.zoo.cases import OPERATORS
from tests.core.zoo.harness import HEADS, distinct, less_on_jax, marked, rows
from tests.grids import on_jax

ROWS = rows(tasks=("text-generation", "text2text-generation"))
GPT2 = next(row.values[0] for row in ROWS if row.values[0][0].name == "gpt2")


def marks(row: Any, name: str) -> Any:
    """Marks of a row with settings; further configurations of layers with known operators wait for a release."""
    if name != "greedy":
        return ()
    repeated = row.values[0][0].model_type in OPERATORS
    return [pytest.mark.release if repeated and mark.name == "grid" else mark for mark in row.marks]


# Rules and search do not depend on the architecture, and test_with_the_cache_as_without reorders the cache of each.
SEARCHED = [
    pytest.param(*row.values, settings, id=f"{row.id}-{name}", marks=marks(row, name))
    for row in less_on_jax(distinct(ROWS), names=("gpt2", "t5"))
    for name, settings in generation.SETTINGS.items()
    if name == "greedy" or row.values[0][0].name in HEADS
]


@pytest.mark.parametrize(("row", "settings"), SEARCHED)
def test_the_tokens_of_transformers(loaded, row, settings):
    generation.check_tokens(loaded(row), settings)


# test_the_tokens_of_transformers uses the caches of all architectures and of further configurations, too.
CACHED = [
    row if row.values[0][0].name in (*HEADS, "gpt_neo") else marked(row, pytest.mark.release)
    for row in less_on_jax(distinct(ROWS))
]


@pytest.mark.parametrize("row", CACHED)
def test_with_the_cache_as_without(loaded, row):
    it = loaded(row)
    generation.check_declared_caches(it)
    generation.check_cache(it)


WINDOWS = [row for row in less_on_jax(ROWS) if row.values[0][0].name in ("gpt_neo", "gpt_neo-odd")]


@pytest.mark.parametrize("row", WINDOWS)
def test_caches_that_wrap(loaded, row):
    generation.check_caches_that_wrap(loaded(row))


def test_a_full_cache_is_an_error(loaded):
    it = loaded(GPT2)
    ids, mask = generation.prompts(it)
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
    with pytest.raises(CapacityError, match="at most 7 tokens. Received: 8"):
        step.step(ids[:, :1], state)


def test_without_xla_one_graph_serves_all_batch_sizes(loaded, monkeypatch):
    it = loaded(GPT2)
    model, traced = zoo.load(it.folder), []
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda tokens, *rest: traced.append(tokens.shape) or decode(tokens, *rest))
    ids, mask = generation.prompts(it)
    step = KerasStep(model, jit_compile=False)
    together, _ = step.step(ids[:, -1:], step.start(ids, mask))
    for row in range(len(ids)):
        alone, _ = step.step(ids[row : row + 1, -1:], step.start(ids[row : row + 1], mask[row : row + 1]))
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-5 * np.abs(together).max())
    assert len(ids) > 1 and len(traced) == 2, "the prompt once, and a step once"


@pytest.mark.parametrize("name", on_jax(["gpt_neo", "t5"], chosen=()))
@pytest.mark.grid
def test_many_tokens_of_one_call_are_those_of_steps(loaded, monkeypatch, name):
    """Several calls, caches that grow or wrap within them, and rows that end in different calls and are dropped."""
    monkeypatch.setattr(keras_caches, "_FIRST_SLOTS", 64)
    monkeypatch.setattr(loop, "_TOKENS_AT_ONCE", 8)
    it = loaded(next(row.values[0] for row in ROWS if row.values[0][0].name == name))
    ids, mask = generation.prompts(it)
    step = KerasStep(it.model, jit_compile=False)
    settings = GenerationConfig(max_new_tokens=50, decoder_start_token_id=PAD)
    sizes = []
    write, continue_greedily = step.step, step.continue_greedily
    monkeypatch.setattr(step, "step", lambda *arguments: sizes.append(1) or write(*arguments))
    monkeypatch.setattr(
        step, "continue_greedily", lambda *arguments: sizes.append(arguments[2]) or continue_greedily(*arguments)
    )

    def texts(**controls: Any) -> tuple[list[list[int]], list[str]]:
        output = generate(step, ids, mask, settings, Controls(**controls))
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
    it = loaded(GPT2)
    model = zoo.load(it.folder)
    for variable in model.variables:
        if "final_norm/bias" in variable.path:
            variable.assign(np.full(variable.shape, np.nan, "float32"))
    ids, mask = generation.prompts(it)
    with pytest.raises(GenerationError, match="finite greatest logit in each row"):
        model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)


@pytest.mark.jax
@pytest.mark.grid
def test_compiled_with_xla_the_same(loaded):
    it = loaded(GPT2)
    ids, mask = generation.prompts(it)
    plain = it.model.generate(ids, attention_mask=mask, max_new_tokens=5, jit_compile=False)
    fast = it.model.generate(ids, attention_mask=mask, max_new_tokens=5, jit_compile=True)
    assert [row.tolist() for row in fast] == [row.tolist() for row in plain]


def test_weights_that_change_later_are_used(loaded):
    it = loaded(GPT2)
    model = zoo.load(it.folder)
    ids, mask = generation.prompts(it)
    model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)
    for variable in model.variables:
        if "final_norm/bias" in variable.path:
            variable.assign(1e4 * np.asarray(model.backbone.tokens.embeddings)[42])
    after = model.generate(ids, attention_mask=mask, max_new_tokens=3, jit_compile=False)
    assert all(row.tolist() == [42, 42, 42] for row in after)


def test_settings_of_the_checkpoint_are_used(loaded, tmp_path):
    it = loaded(GPT2)
    model = zoo.load(it.folder)
    assert model.generation_config.pad_token_id == PAD
    assert 2 in np.atleast_1d(model.generation_config.eos_token_id)
    model.generation_config = GenerationConfig(max_new_tokens=4, pad_token_id=PAD)
    model.save_pretrained(tmp_path)
    ids, mask = generation.prompts(it)
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
