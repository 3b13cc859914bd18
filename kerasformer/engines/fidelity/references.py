"""Recorded answers of the Keras model, with which any engine can be compared later, on any device, without Keras.

References are arrays by name. Recorded are the 64 largest logits of every answer with the logsumexp of all, the mean of
a text's hidden states, the tokens of greedy generation, and the losses of the tokens of running texts. The array
`asked` marks the tokens whose answers are compared, those that matter to a user: masked tokens, words without special
tokens, the tokens of a context, generated tokens up to the end. The array `made_up` marks texts that only serve to
cover long inputs; they count for the maximum error only. In references of older bundles both are missing, and all
answers are compared. The number `default_texts` is 1 if all texts are those of this package (or random ids), and 0 if
the caller passed texts, which may be private; it is missing in older bundles.

Shape letters: `N` texts, `P` tokens of a prompt, `T` generated or processed tokens, `V` scores of an answer, `K`
recorded scores of an answer: 64, or `V` if that is less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.bundle import SENTENCE_EMBEDDING, TOKEN_EMBEDDINGS
from kerasformer.bundle.interface import OWN_LENGTHS
from kerasformer.engines.arrays import row_slots
from kerasformer.engines.protocols import Forward, Step
from kerasformer.errors import InputError

TOP = 64
"""Maximum number of entries that are recorded for an answer."""
DEFAULT_TEXTS = "default_texts"
"""Name of the array that tells whether all texts are those of this package."""
CHATS = "chats"
"""Name of the array that tells whether the prompts of a decoder are conversations in its chat template."""
KEYS = ("values", "indices", "logsumexp")
ENDS_OF_SPANS = ("start_logits", "end_logits")

Arrays = Mapping[str, np.ndarray]
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
    recorded = {f"input.{name}": array for name, array in inputs.items()}
    for key, array in (("asked", asked), ("made_up", made_up)):
        if array is not None:
            recorded[key] = np.asarray(array, "uint8")
    texts: dict[str, list[dict[str, np.ndarray]]] = {}
    for row, arrays in enumerate(single_texts(inputs)):
        for name, output in engine.run(arrays).items():
            entries = largest_entries(asked_scores(name, output[0], recorded, row))
            texts.setdefault(name, []).append(entries | _mean(name, output[0]))
    for name, answers in texts.items():
        recorded |= {f"output.{name}.{key}": stacked([answer[key] for answer in answers]) for key in answers[0]}
    return recorded | {"distribution": np.array(distribution)}


def record_step(
    engine: Step,
    inputs: np.ndarray,
    mask: np.ndarray,
    start: int | None,
    count: int,
    ends: Sequence[int] = (),
    alone: bool = False,
) -> dict[str, Any]:
    """Records references of a model that generates: the tokens of greedy search, and the logits of each.

    Args:
        engine: The Keras model.
        inputs: int32 `(N, P)`: left-padded prompts, or right-padded inputs of an encoder.
        mask: int32 `(N, P)`, 1 for real tokens.
        start: First token of the decoder, for an encoder-decoder.
        count: Number of tokens to generate.
        ends: End tokens; tokens after the first one are recorded, but not marked in `asked`.
        alone: Whether each text is read by itself, and is also compared so, for an encoder-decoder whose answers depend
            on the batch.
    """
    if alone:
        texts = list(single_texts({"ids": inputs, "attention_mask": mask}))
        parts = [record_step(engine, text["ids"], text["attention_mask"], start, count, ends) for text in texts]
        whole = {"input.input_ids": inputs, "input.attention_mask": mask, "alone": np.array(1)}
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key not in whole} | whole
    first = inputs[:, -1:] if start is None else np.full((len(inputs), 1), start, "int32")
    state, tokens, answers = engine.start(inputs, mask), first, []
    for _ in range(count):
        logits, state = engine.step(tokens, state)
        answers.append(largest_entries(logits[:, -1]))
        tokens = answers[-1]["indices"][:, :1]
    recorded = {"input.input_ids": inputs, "input.attention_mask": mask, "input.first": first}
    recorded |= {f"output.logits.{key}": np.stack([answer[key] for answer in answers], axis=1) for key in KEYS}
    generated = recorded["output.logits.indices"][..., 0]
    is_end = np.isin(generated, list(ends))
    return recorded | {"tokens": generated, "asked": (np.cumsum(is_end, axis=1) - is_end == 0).astype("uint8")}


def record_reading(engine: Forward, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Records references of a decoder for running texts: the loss of each token, and the logits of the last one.

    Args:
        engine: The Keras model, with an output `logits` `(1, T, V)` for a whole text.
        ids: int32 `(N, T)`, right-padded, with at least two tokens in each text.
        mask: int32 `(N, T)`, 1 for real tokens.
    """
    last, losses = [], []
    for arrays in single_texts({"input_ids": ids, "attention_mask": mask}):
        scores = engine.run(arrays)["logits"][0, :-1]
        last.append(largest_entries(scores[-1]))
        of_next = np.take_along_axis(scores, arrays["input_ids"][0, 1:, None], axis=-1)[:, 0]
        losses.append(logsumexp(scores) - of_next)
    recorded = {"reading.input_ids": ids, "reading.attention_mask": mask, "reading.losses": stacked(losses)}
    return recorded | {f"reading.last.{key}": np.stack([answer[key] for answer in last]) for key in KEYS}


def is_hidden_state(name: str) -> bool:
    """Returns whether an output contains hidden states or embeddings rather than scores."""
    return name.endswith("hidden_state") or name in (SENTENCE_EMBEDDING, TOKEN_EMBEDDINGS)


def inputs_of(references: Arrays) -> dict[str, np.ndarray]:
    """Returns the recorded inputs by their Hugging Face names."""
    return {key.removeprefix("input."): array for key, array in references.items() if key.startswith("input.")}


def output_names(references: Arrays) -> list[str]:
    """Returns the names of the recorded outputs."""
    return sorted({key.split(".")[1] for key in references if key.startswith("output.")})


def single_texts(inputs: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Yields the texts one by one, without padding."""
    for row, length in enumerate(inputs["attention_mask"].sum(axis=1)):
        counts = {name: row_slots(inputs[name][row]) for name in OWN_LENGTHS if name in inputs}
        yield {name: array[row : row + 1, : counts.get(name, length)] for name, array in inputs.items()}


def asked_scores(name: str, scores: np.ndarray, references: Arrays, row: int) -> np.ndarray:
    """Returns the scores of those tokens of a text that are compared; all of them if the output is not per token.

    Scores of spans `(W, K, C)` are compared if the span of `k + 1` words lies within the text: `(spans, C)`.
    """
    if scores.ndim == 3:  # of spans
        words, widths, _ = scores.shape
        return scores[np.add.outer(np.arange(words), np.arange(widths)) < words]
    per_token = scores.ndim == 2 or name in ENDS_OF_SPANS
    return scores[np.flatnonzero(references["asked"][row])] if "asked" in references and per_token else scores


def largest_entries(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the largest entries of the last axis, their indices, and the logsumexp of all entries.

    Raises:
        InputError: the scores are not finite.
    """
    if not np.isfinite(scores).all():
        raise InputError(
            "The outputs of the Keras model contain NaN or infinity. Expected: finite logits. Check its weights"
        )
    count = min(TOP, scores.shape[-1])
    if count < scores.shape[-1]:
        largest = np.argpartition(-scores, count - 1, axis=-1)[..., :count]
        largest.sort(axis=-1)  # of equal scores the first one is the answer, as in `argmax`
    else:
        largest = np.broadcast_to(np.arange(count), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, largest, axis=-1), axis=-1, kind="stable")
    indices = np.take_along_axis(largest, order, axis=-1).astype("int32")
    values = np.take_along_axis(scores, indices, axis=-1).astype("float32")
    return {"values": values, "indices": indices, "logsumexp": logsumexp(scores)}


def recorded_entries(references: Arrays, name: str, row: int) -> dict[str, np.ndarray]:
    """Returns the recorded entries of a text, without padding."""
    arrays = {key: references[f"output.{name}.{key}"][row] for key in KEYS}
    used = ~np.isnan(arrays["values"])
    tokens = used if used.ndim == 1 else used.any(axis=1)
    mean = {key: references[f"output.{name}.{key}"][row] for key in ("mean",) if f"output.{name}.{key}" in references}
    return {key: array[tokens] if array.ndim else array for key, array in arrays.items()} | mean


def received_entries(scores: np.ndarray, indices: np.ndarray) -> dict[str, np.ndarray]:
    """Returns an engine's scores `(…, V)` at the recorded indices, the logsumexp of all, and the index of the best."""
    values = np.take_along_axis(scores, indices, axis=-1)
    return {"values": values, "logsumexp": logsumexp(scores), "best": scores.argmax(axis=-1)}


def received_answer(
    name: str, output: np.ndarray, references: Arrays, row: int, recorded: Arrays
) -> dict[str, np.ndarray]:
    """Returns an engine's answer to a text in the form of the recorded one."""
    scores = asked_scores(name, output, references, row)
    return received_entries(scores, recorded["indices"]) | _mean(name, output)


def _mean(name: str, output: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the mean vector `(E,)` of token vectors `(T, E)`, or a single vector `(E,)`; nothing for scores."""
    if not is_hidden_state(name):
        return {}
    return {"mean": output.mean(axis=0, dtype="float64").astype("float32") if output.ndim == 2 else output}


def stacked(rows: Sequence[Any], left: bool = False) -> np.ndarray:
    """Stacks arrays or lists of different sizes; floats are padded with NaN, integers, which become int32, with 0.

    Args:
        rows: The arrays.
        left: Whether the padding comes first.
    """
    arrays = [np.asarray(row) for row in rows]
    shape = np.max([array.shape for array in arrays], axis=0)
    floats = arrays[0].dtype.kind == "f"
    result = np.full((len(arrays), *shape), np.nan if floats else 0, arrays[0].dtype if floats else "int32")
    for index, array in enumerate(arrays):
        starts = shape - array.shape if left else np.zeros_like(shape)
        region: tuple[Any, ...] = (index, *map(slice, starts, starts + array.shape))
        result[region] = array
    return result


def logsumexp(scores: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the sum of exponentials over the last axis."""
    highest = scores.max(axis=-1, keepdims=True)
    total = np.exp(scores - highest).sum(axis=-1)
    return np.asarray(np.log(total) + highest[..., 0], "float32")
