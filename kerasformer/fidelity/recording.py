"""Records what the Keras model answers, so that any engine can be compared with it later, without Keras.

Recorded are the 64 largest logits of every answer with the logsumexp of all, the mean of a text's hidden states, the
tokens of greedy generation, and how probable the tokens of a running text were, so that a bundle can be verified on the
device, without Keras. What counts as an answer is what a user asks for: `asked` has the positions whose answers are
compared (masked tokens, words without special tokens, the tokens of a context, generated tokens up to the end), and
texts under `made_up`, which are there for their length, count for the largest error alone. References of older bundles
have neither, and all of their answers count.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or read tokens, `V` scores of one answer, `K` recorded
ones of them: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.decoding import Forward, Step
from kerasformer.fidelity.answers import (
    Arrays,
    asked_positions,
    is_hidden_state,
    largest_entries,
    logsumexp,
    mean_vector,
    scores_of,
    single_texts,
    stacked,
)

Distribution = Literal["softmax", "sigmoid", "none"]
"""What logits mean: classes of which one is right, classes that are right or wrong each by itself, or plain numbers."""


def record_forward(
    engine: Forward,
    inputs: Arrays,
    distribution: Distribution = "softmax",
    asked: np.ndarray | None = None,
    made_up: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """References of an engine that answers at once.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, T)` int32 arrays under their Hugging Face names.
        distribution: What its logits mean.
        asked: `(N, T)`, nonzero at the tokens whose answers a user asks for, at least one in each text; all by default.
        made_up: `(N,)`, nonzero for texts that count for the largest error alone.
    """
    rows: dict[str, list[dict[str, np.ndarray]]] = {}
    for row, arrays in enumerate(single_texts(inputs)):
        for name, scores in engine.run(arrays).items():
            recorded_row = largest_entries(asked_positions(name, scores[0], asked, row))
            if is_hidden_state(name):
                recorded_row["mean"] = mean_vector(scores[0])
            rows.setdefault(name, []).append(recorded_row)
    recorded = {f"input.{name}": array for name, array in inputs.items()}
    for name, tops in rows.items():
        recorded |= {f"output.{name}.{key}": stacked([top[key] for top in tops]) for key in tops[0]}
    for key, given in (("asked", asked), ("made_up", made_up)):
        if given is not None:
            recorded[key] = np.asarray(given, "uint8")
    return recorded | {"distribution": np.array(distribution)}


def record_step(
    engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int | None, count: int, ends: Sequence[int] = ()
) -> dict[str, Any]:
    """References of an engine that generates: `count` greedy tokens, and the logits of which each was chosen.

    Args:
        engine: The model to be reproduced.
        inputs: `(N, P)` int32 prompts, left-padded, or an encoder's inputs, right-padded.
        mask: `(N, P)` int32.
        start: First token of the decoder of an encoder-decoder.
        count: Tokens.
        ends: End tokens; what comes behind the first one is recorded, but nobody asks for it.
    """
    first = inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")
    state, tokens, tops = engine.start(inputs, mask), first, []
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        tops.append(largest_entries(logits[:, -1]))
        tokens = tops[-1]["indices"][:, :1]
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    recorded |= {f"output.logits.{key}": np.stack([top[key] for top in tops], axis=1) for key in tops[0]}
    written = recorded["output.logits.indices"][..., 0]
    ended = np.cumsum(np.isin(written, list(ends)), axis=1)
    return recorded | {"tokens": written, "asked": (ended - np.isin(written, list(ends)) == 0).astype("uint8")}


def record_reading(engine: Forward, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """References of a decoder that reads texts: its answer after each token, and how probable the next one was.

    Args:
        engine: The model, which gives `logits` `(1, T, V)` of a whole text.
        ids: `(N, T)` int32, right-padded, with at least two tokens each.
        mask: `(N, T)` int32.
    """
    lasts, likelihoods = [], []
    for arrays in single_texts({"input_ids": ids, "attention_mask": mask}):
        scores = engine.run(arrays)["logits"][0, :-1]
        lasts.append(largest_entries(scores[-1]))
        likelihoods.append(logsumexp(scores) - scores_of(scores, arrays["input_ids"][0, 1:]))
    recorded = {"reading.input_ids": ids, "reading.attention_mask": mask, "reading.losses": stacked(likelihoods)}
    return recorded | {f"reading.last.{key}": np.stack([last[key] for last in lasts]) for key in lasts[0]}
