"""Measurement of a bundle's latency on this machine, in its own runtime."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

import numpy as np

from kerasformer.engines import Forward, Step, inputs_of

_WARM_UP = 3
_TOKENS = 24
_ROUNDS = 5
_TEXTS = 8


def latency(engine: Forward | Step, references: Mapping[str, np.ndarray]) -> float:
    """Returns the median milliseconds per generated token, or per text for a model that does not generate.

    Args:
        engine: The bundle in its runtime.
        references: References of the bundle. A generating model continues their first prompt; other models read their
            shortest texts, since most texts in use are short.
    """
    if isinstance(engine, Step):
        return _of_steps(engine, references)
    return _of_texts(engine, references)


def _of_steps(engine: Step, references: Mapping[str, np.ndarray]) -> float:
    mask = references["input.attention_mask"][:1] > 0
    prompt = references["input.input_ids"][:1][mask][None]
    times = []
    for _ in range(_ROUNDS):
        state, token = engine.start(prompt, np.ones_like(prompt)), references["input.first"][:1]
        for index in range(min(_TOKENS, references["tokens"].shape[1])):
            start = perf_counter()
            logits, state = engine.step(token.astype("int32"), state)
            if index >= _WARM_UP:
                times.append(perf_counter() - start)
            token = logits[:, -1].argmax(axis=-1)[:, None]
    return 1000 * float(np.median(times))


def _of_texts(engine: Forward, references: Mapping[str, np.ndarray]) -> float:
    inputs = inputs_of(references)
    lengths = inputs["attention_mask"].sum(axis=1)
    shortest = np.argsort(lengths, kind="stable")[:_TEXTS]
    texts = [{name: array[row : row + 1, : lengths[row]] for name, array in inputs.items()} for row in shortest]
    times = []
    for round_index in range(_ROUNDS + 1):
        for text in texts:
            start = perf_counter()
            engine.run(text)
            if round_index:  # the first round is the warm-up
                times.append(perf_counter() - start)
    return 1000 * float(np.median(times))
