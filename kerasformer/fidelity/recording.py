"""Recording of the Keras model's answers, with which any engine can be compared later, on any device, without Keras.

Recorded are the 64 largest logits of every answer with the logsumexp of all, the mean of a text's hidden states, the
tokens of greedy generation, and the losses of the tokens of running texts. The array `asked` marks the tokens whose
answers are compared, those that matter to a user: masked tokens, words without special tokens, the tokens of a context,
generated tokens up to the end. The array `made_up` marks texts that only serve to cover long inputs; they count for the
maximum error only. In references of older bundles both are missing, and all answers are compared. The number
`default_texts` is 1 if all texts are those of this package (or random ids), and 0 if the caller passed texts, which may
be private; it is missing in older bundles.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or processed tokens, `V` scores of an answer, `K`
recorded scores of an answer: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

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
from kerasformer.files.reading import JsonObject

DEFAULT_TEXTS = "default_texts"
"""Name of the array that tells whether all texts are those of this package."""
CHATS = "chats"
"""Name of the array that tells whether the prompts of a decoder are conversations in its chat template."""

Distribution = Literal["softmax", "sigmoid", "none"]
"""Meaning of logits: classes that exclude each other (softmax), independent classes (sigmoid), or plain numbers."""


def record_forward(
    engine: Forward,
    inputs: Arrays,
    distribution: Distribution = "softmax",
    asked: np.ndarray | None = None,
    made_up: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Records references of a model that does not generate.

    Args:
        engine: The Keras model.
        inputs: int32 arrays `(N, T)` by their Hugging Face names.
        distribution: Meaning of the logits.
        asked: `(N, T)`, nonzero for tokens whose answers are compared, at least one in each text; all by default.
        made_up: `(N,)`, nonzero for texts that count for the maximum error only.
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
    for key, array in (("asked", asked), ("made_up", made_up)):
        if array is not None:
            recorded[key] = np.asarray(array, "uint8")
    return recorded | {"distribution": np.array(distribution)}


def record_step(
    engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int | None, count: int, ends: Sequence[int] = ()
) -> JsonObject:
    """Records references of a model that generates: the tokens of greedy search, and the logits of each.

    Args:
        engine: The Keras model.
        inputs: int32 `(N, P)`: left-padded prompts, or right-padded inputs of an encoder.
        mask: int32 `(N, P)`, 1 for real tokens.
        start: First token of the decoder, for an encoder-decoder.
        count: Number of tokens to generate.
        ends: End tokens; tokens after the first one are recorded, but not marked in `asked`.
    """
    first = inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")
    state, tokens, tops = engine.start(inputs, mask), first, []
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        tops.append(largest_entries(logits[:, -1]))
        tokens = tops[-1]["indices"][:, :1]
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    recorded |= {f"output.logits.{key}": np.stack([top[key] for top in tops], axis=1) for key in tops[0]}
    generated = recorded["output.logits.indices"][..., 0]
    ended = np.cumsum(np.isin(generated, list(ends)), axis=1)
    return recorded | {"tokens": generated, "asked": (ended - np.isin(generated, list(ends)) == 0).astype("uint8")}


def record_step_alone(
    engine: Step, inputs: np.ndarray, mask: np.ndarray, start: int, count: int, ends: Sequence[int] = ()
) -> JsonObject:
    """Records references of an encoder-decoder whose answers depend on the batch, each text by itself.

    They are also compared so. See `record_step` for the arguments.
    """
    texts = single_texts({"input_ids": inputs, "attention_mask": mask})
    rows = [record_step(engine, text["input_ids"], text["attention_mask"], start, count, ends) for text in texts]
    recorded = {key: np.concatenate([row[key] for row in rows]) for key in rows[0] if "input." not in key}
    first = np.full((len(inputs), 1), start, "int32")
    recorded |= {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    return recorded | {"alone": np.array(1)}


def record_reading(engine: Forward, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Records references of a decoder for running texts: the loss of each token, and the logits of the last one.

    Args:
        engine: The Keras model, with an output `logits` `(1, T, V)` for a whole text.
        ids: int32 `(N, T)`, right-padded, with at least two tokens in each text.
        mask: int32 `(N, T)`, 1 for real tokens.
    """
    lasts, text_losses = [], []
    for arrays in single_texts({"input_ids": ids, "attention_mask": mask}):
        scores = engine.run(arrays)["logits"][0, :-1]
        lasts.append(largest_entries(scores[-1]))
        text_losses.append(logsumexp(scores) - scores_of(scores, arrays["input_ids"][0, 1:]))
    recorded = {"reading.input_ids": ids, "reading.attention_mask": mask, "reading.losses": stacked(text_losses)}
    return recorded | {f"reading.last.{key}": np.stack([last[key] for last in lasts]) for key in lasts[0]}
