"""How long a bundle takes on this machine, in its own runtime."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

import numpy as np

from kerasformer.decoding import Forward, Step

_WARM_UP = 3
_TOKENS = 24
_ROUNDS = 5
_TEXTS = 8


def latency(engine: Forward | Step, references: Mapping[str, np.ndarray]) -> float:
    """Median milliseconds of a token that is generated, or of a text that is answered at once.

    Args:
        engine: The bundle in its runtime.
        references: Of the bundle; its first prompt is continued, or its shortest texts are answered, for texts are
            short as a rule.
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
        for place in range(min(_TOKENS, references["tokens"].shape[1])):
            begin = perf_counter()
            logits, state = engine.step(token.astype("int32"), state)
            if place >= _WARM_UP:
                times.append(perf_counter() - begin)
            token = logits[:, -1].argmax(axis=-1)[:, None]
    return 1000 * float(np.median(times))


def _of_texts(engine: Forward, references: Mapping[str, np.ndarray]) -> float:
    inputs = {name.removeprefix("input."): array for name, array in references.items() if name.startswith("input.")}
    lengths = inputs["attention_mask"].sum(axis=1)
    shortest = np.argsort(lengths, kind="stable")[:_TEXTS]
    texts = [{name: array[row : row + 1, : lengths[row]] for name, array in inputs.items()} for row in shortest]
    times = []
    for turn in range(_ROUNDS + 1):
        for text in texts:
            begin = perf_counter()
            engine.run(text)
            if turn:  # the first is the warm-up
                times.append(perf_counter() - begin)
    return 1000 * float(np.median(times))
