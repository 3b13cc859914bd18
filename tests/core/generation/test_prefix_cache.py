"""Reuse of earlier texts, with an engine that records which tokens it reads and copies."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest

from kerasformer.engines import ResumableStep, SavedState
from kerasformer.errors import CapacityError, InputError
from kerasformer.generation import GenerationConfig, PrefixCache, generate
from tests.core.generation.engines import Rows, Toy

BYTES = 4
"""Size of a token in a copy."""


class Recording(Toy):
    """A toy engine of a single text that continues it from any of its tokens, or from its last few ones."""

    weights = "first"

    def __init__(self, discards: int = 10**6) -> None:
        super().__init__(vocab_size=500, capacity=400)
        self.discards, self.read, self.saves, self.restores = discards, 0, 0, 0

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        self.read += inputs.shape[1] - 1
        return super().start(inputs, mask)

    def resume(self, state: Rows, length: int, tokens: np.ndarray) -> Rows:
        if state.ids.shape[1] - length > self.discards:
            raise InputError("the keys are gone")
        ids = np.concatenate([state.use().ids[:, :length], tokens[None]], axis=1)
        self.read += len(tokens)
        return Rows(ids, np.ones((1, ids.shape[1] + 1), np.int32))

    def save(self, state: Rows) -> SavedState:
        self.saves += 1
        if state.used:
            raise InputError("the state was used before")
        return SavedState.copy_of(self.identity(), {"ids": state.ids})

    def restore(self, saved: SavedState) -> Rows:
        saved.check_model(self.identity())
        self.restores += 1
        ids = saved.arrays["ids"]
        return Rows(ids, np.ones((1, ids.shape[1] + 1), np.int32))

    def version(self) -> str:
        return self.weights

    def identity(self) -> str:
        return self.weights


def text(*parts: tuple[int, int]) -> np.ndarray:
    """Returns tokens `(1, N)`, `count` of each seed."""
    return np.concatenate([np.random.default_rng(seed).integers(2, 500, (1, n), "int32") for seed, n in parts], axis=1)


def answer(cache: PrefixCache, step: Any, ids: np.ndarray, **settings: Any) -> list[int]:
    """Returns new tokens, which are those without a cache."""
    config = GenerationConfig(max_new_tokens=3, **settings)
    with cache.reused_by(step) as reusing:
        received = generate(reusing, ids, config=config)
    expected = generate(Toy(vocab_size=500, capacity=400), ids, config=config)
    for row, other in zip(received.sequences, expected.sequences, strict=True):
        np.testing.assert_array_equal(row, other)
    return received.sequences[0].tolist()


def test_the_last_text_is_continued_without_a_copy() -> None:
    step, cache = Recording(), PrefixCache()
    assert isinstance(step, ResumableStep)
    ids = text((1, 60))
    for turn, expected in enumerate([(0, 59), (62, 6), (71, 6)]):  # the last new token was not read
        new = answer(cache, step, ids)
        assert (cache.reused, cache.read) == expected
        ids = np.concatenate([ids, [new], text((turn + 7, 6))], axis=1).astype(np.int32)
    assert step.saves == step.restores == 0


def test_texts_in_turn_are_read_once() -> None:
    step, cache = Recording(), PrefixCache()
    texts = [text((1, 100), (seed, 50)) for seed in (2, 3, 4)]
    for ids in texts:
        answer(cache, step, ids)
    assert step.read == 149 + 2 * 49  # the first tokens of all are those of the first text
    for ids in texts * 2:
        answer(cache, step, ids)
        assert (cache.reused, cache.read) == (149, 0)
    assert cache.num_bytes == 3 * 152 * BYTES


def test_a_text_replaces_its_beginning() -> None:
    step, cache = Recording(), PrefixCache()
    ids = text((1, 100))
    for turn in range(3):
        new = answer(cache, step, ids)
        answer(cache, step, text((9, 50)))
        assert cache.num_bytes == (102 + 23 * turn) * BYTES + (52 * BYTES if turn else 0)
        ids = np.concatenate([ids, [new], text((turn + 2, 20))], axis=1).astype(np.int32)


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    # Texts are answered in this order; of the copies, the least recently used are dropped first.
    [(0, {1: 0, 2: 0, 3: 0, 4: 0, 5: 0}), (110, {1: 0, 2: 0, 3: 0, 4: 100, 5: 0}), (220, {3: 100, 4: 0, 5: 100})],
)
def test_the_memory_is_limited(max_tokens: int, expected: dict[int, int]) -> None:
    step, cache = Recording(), PrefixCache(max_tokens * BYTES)
    order = {0: [1, 2, 3, 1, 2, 3], 110: [1, 2, 3, 1, 3, 2], 220: [1, 2, 3, 1, 2, 1]}[max_tokens]
    for index, seed in enumerate(order):
        answer(cache, step, text((seed, 101)))
        assert cache.num_bytes <= max_tokens * BYTES
        assert cache.reused == expected.get(index, cache.reused)
    assert (step.saves == 0) == (max_tokens == 0)


def test_copies_that_were_dropped_are_freed_while_texts_are_generated() -> None:
    step, cache = Recording(), PrefixCache(110 * BYTES)
    for seed in (1, 2):
        answer(cache, step, text((seed, 101)))
    dropped = weakref.ref(cache._copies[0])
    ids = text((3, 101))
    with cache.reused_by(step) as reusing:
        state = reusing.start(ids, np.ones_like(ids))  # keeps a copy of the second text instead of the first one
        assert dropped() is None and cache.num_bytes == 103 * BYTES
        reusing.step(ids[:, -1:], state)


def test_a_text_whose_step_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caches are not those of its tokens: the next text is read as a whole."""
    step, cache = Recording(), PrefixCache()

    def interrupted(tokens: np.ndarray, state: Rows) -> None:
        state.use()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answer(cache, step, text((1, 100)))
    answer(cache, step, text((1, 20), (2, 20)))
    assert cache.reused == 0


def test_copies_that_exceed_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is read as a whole, as after an error of another kind."""
    step, cache = Recording(), PrefixCache()
    for seed in (1, 2):
        answer(cache, step, text((seed, 60)))

    def full(saved: SavedState) -> None:
        raise CapacityError("the cache is full")

    monkeypatch.setattr(step, "restore", full)
    answer(cache, step, text((1, 60)))
    assert cache.reused == 0


def test_caches_of_windows_that_lost_their_first_keys() -> None:
    """Texts that differ early are read as a whole, and one that continues a copy is not."""
    step, cache = Recording(discards=8), PrefixCache()
    first, other = text((1, 100)), text((1, 50), (2, 50))
    for ids, reused in ((first, 0), (other, 0), (first, 99), (other, 99), (text((1, 100), (5, 20)), 100)):
        answer(cache, step, ids)
        assert cache.reused == reused
    assert cache.num_bytes == 2 * 102 * BYTES


def test_beams_keep_their_prompt() -> None:
    step, cache = Recording(), PrefixCache()
    ids = text((1, 60))
    for reused in (0, 59):
        answer(cache, step, ids, num_beams=3)
        assert cache.reused == reused
    answer(cache, step, ids)
    assert cache.reused == 59


def test_other_engines_and_other_weights() -> None:
    step, cache = Recording(), PrefixCache()
    first, second = text((1, 60)), text((2, 60))
    for ids in (first, second):
        answer(cache, step, ids)
    step.weights = "second"
    for ids in (first, second):
        answer(cache, step, ids)
        assert cache.reused == 0
    answer(cache, Recording(), first)
    assert cache.reused == 0 and cache.num_bytes == 0


def test_a_text_that_ends_after_the_weights_have_changed() -> None:
    """Its caches are those of the earlier weights, also if another text was read with the new ones meanwhile."""
    step, cache = Recording(), PrefixCache()
    ids = text((1, 60))
    with cache.reused_by(step) as reusing:
        reusing.start(ids, np.ones_like(ids))
        step.weights = "second"
        answer(cache, step, text((2, 60)))
    answer(cache, step, ids)
    assert cache.reused == 0


def test_threads() -> None:
    """Each text is right, and afterwards all of them are kept."""
    step, cache = Recording(), PrefixCache()
    texts = [text((1, 60), (seed, 60)) for seed in range(8)]
    barrier, errors = threading.Barrier(8), []

    def work(ids: np.ndarray) -> None:
        try:
            barrier.wait()
            for _ in range(5):
                answer(cache, step, ids)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(ids,)) for ids in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for ids in texts:
        answer(cache, step, ids)
        assert cache.reused == 119
