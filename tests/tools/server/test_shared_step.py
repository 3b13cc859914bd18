"""One engine for several threads: texts take turns, share steps where they can, and fail alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.engines.protocols import JointStep, ResumableStep
from kerasformer.errors import CapacityError, InputError
from kerasformer.generation import GenerationConfig, generate
from kerasformer.tools.server import shared_step as module
from kerasformer.tools.server.shared_step import shared_step
from tests.core.generation.engines import Toy
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.tools.server.servers import wait_until


def observed(engine, first):
    """Records the calls of an engine in order; the first one waits for an event."""
    calls = []

    def recorded(name, function):
        def call(*arguments):
            first.wait(10)
            calls.append(name)
            return function(*arguments)

        return call

    for name in ("start", "step", "step_together", "resume"):
        setattr(engine, name, recorded(name, getattr(engine, name)))
    return calls


def prompts(count, length):
    return np.random.default_rng(count).integers(10, 300, (count, 1, length)).astype(np.int32)


def test_texts_of_other_threads_change_nothing():
    engine = Toy(vocab_size=40)
    shared = shared_step(engine)
    assert not isinstance(shared, ResumableStep) and not isinstance(engine, JointStep)
    config = GenerationConfig(max_new_tokens=12, do_sample=True, seed=4, num_return_sequences=2)
    ids = prompts(5, 4) % 40
    expected = [generate(engine, each, config=config).sequences for each in ids]
    with ThreadPoolExecutor(5) as threads:
        received = [each.sequences for each in threads.map(lambda row: generate(shared, row, config=config), ids)]
    np.testing.assert_equal(received, expected)
    shared.close()


def test_long_prompts_are_read_in_chunks_between_the_steps_of_others(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)  # so many that the other text's thread wakes up between some of them
    engine, alone, first = tflite(), shared_step(tflite()), threading.Event()
    calls, shared = observed(engine, first), shared_step(engine)
    assert isinstance(shared, ResumableStep)
    (long,), (short,) = prompts(1, 250), prompts(1, 12)
    lengths = {id(long): 4, id(short): 30}

    def run(step, ids):
        return generate(step, ids, config=GenerationConfig(max_new_tokens=lengths[id(ids)])).sequences

    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(run, shared, ids) for ids in (short, long)]
        first.set()
        received = [result.result() for result in results]
    reads = [index for index, name in enumerate(calls) if name in ("start", "resume")]
    assert len(reads) == 1 + -(-249 // 16)
    assert "step" in calls[reads[0] : reads[-1]]
    np.testing.assert_equal(received, [run(alone, ids) for ids in (short, long)])
    shared.close()
    alone.close()


def tflite():
    return kf.pipeline(shared_chat("tflite")).model


def test_a_full_cache_is_an_error_of_its_text_alone():
    engine = tflite()
    (full,), (other,) = prompts(1, 256), prompts(1, 8)
    states = [engine.start(ids, np.ones_like(ids)) for ids in (full, other)]
    tokens = [ids[:, -1:] for ids in (full, other)]
    expected, _ = engine.step(tokens[1], engine.fork(states[1]))
    _, states[0] = engine.step(tokens[0], states[0])
    with pytest.raises(CapacityError):
        engine.step_together([*zip(tokens, states, strict=True)])
    with pytest.raises(InputError, match="shape"):
        engine.step_together([(np.zeros((2, 1), np.int32), states[1])])
    shared, entered, blocked = shared_step(engine), threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as threads:
        threads.submit(shared._other, lambda: entered.set() or blocked.wait(10))
        entered.wait()
        results = [threads.submit(shared.step, *each) for each in zip(tokens, states, strict=True)]
        wait_until(lambda: len(shared._steps) == 2)
        blocked.set()
        with pytest.raises(CapacityError):
            results[0].result()
        np.testing.assert_equal(results[1].result()[0], expected)
    shared.close()
    with pytest.raises(InputError, match="stopping"):
        shared.step(tokens[1], states[1])
