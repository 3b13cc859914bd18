"""One engine for several threads: texts take turns, share steps where they can, and fail alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.decoding import GenerationConfig, generate
from kerasformer.decoding.protocols import JointStep, ResumableStep
from kerasformer.errors import CapacityError, InputError
from kerasformer.server.shared_step import CHUNK, shared_step
from tests.chat_templates.chat_model import shared_chat
from tests.decoding.engines import Toy


class Observed:
    """A LiteRT engine that records its calls in order."""

    def __init__(self):
        self.engine = kf.pipeline(None, shared_chat("tflite")).model
        self.calls, self.first = [], threading.Event()

    def __getattr__(self, name):
        value = getattr(self.engine, name)
        if name not in ("start", "step", "step_together", "resume"):
            return value

        def recorded(*arguments):
            self.first.wait(10)
            self.calls.append((name, len(arguments[0])))
            return value(*arguments)

        return recorded


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


def test_long_prompts_are_read_in_chunks_between_the_steps_of_others():
    observed = Observed()
    shared = shared_step(observed)
    long, short = prompts(1, 250)[0], prompts(1, 20)[0]
    config = GenerationConfig(max_new_tokens=4)
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(generate, shared, ids, config=config) for ids in (short, long)]
        observed.first.set()
        received = [result.result().sequences for result in results]
    shared.close()
    sizes = [size for name, size in observed.calls if name == "step" or name == "step_together"]
    assert sum(name in ("start", "resume") for name, _ in observed.calls) == 1 + -(-249 // CHUNK)
    assert sizes and isinstance(shared, ResumableStep)
    alone = shared_step(observed.engine)
    expected = [generate(alone, ids, config=config).sequences for ids in (short, long)]
    np.testing.assert_equal(received, expected)
    alone.close()


def test_a_full_cache_is_an_error_of_its_text_alone():
    engine = kf.pipeline(None, shared_chat("tflite")).model
    (full,), (other,) = prompts(1, 256), prompts(1, 8)
    states = [engine.start(ids, np.ones_like(ids)) for ids in (full, other)]
    tokens = [ids[:, -1:] for ids in (full, other)]
    expected, _ = engine.step(tokens[1], engine.fork(states[1]))
    _, states[0] = engine.step(tokens[0], states[0])
    with pytest.raises(CapacityError):
        engine.step_together([*zip(tokens, states, strict=True)])
    with pytest.raises(InputError, match="shape"):
        engine.step_together([(np.zeros((2, 1), np.int32), states[1])])
    shared, blocked = shared_step(engine), threading.Event()
    with ThreadPoolExecutor(3) as threads:
        threads.submit(shared._other, blocked.wait, 10)
        results = [threads.submit(shared.step, *each) for each in zip(tokens, states, strict=True)]
        while len(shared._steps) < 2:
            pass
        blocked.set()
        with pytest.raises(CapacityError):
            results[0].result()
        np.testing.assert_equal(results[1].result()[0], expected)
    shared.close()
    with pytest.raises(InputError, match="stopping"):
        shared.step(tokens[1], states[1])
