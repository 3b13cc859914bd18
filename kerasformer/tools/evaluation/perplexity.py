"""Likelihood of texts: perplexity with overlapping windows, bits per byte, and last words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import check, integer
from kerasformer.basics.command_options import EvaluationOptions
from kerasformer.errors import InputError
from kerasformer.pipelines import Example
from kerasformer.tools.evaluation.choosing import Row, continuations, open_decoder, split_tokens
from kerasformer.tools.evaluation.outcome import Outcome


def windows(count: int, capacity: int, stride: int) -> list[tuple[int, int, int]]:
    """Splits a text into windows, each of which counts the tokens that no window before it has counted.

    A window starts `stride` tokens after the one before it. The tokens that it shares with that one are only read, as
    context. The first token of a text is not counted, nor that of a window without context.

    Args:
        count: Number of tokens of the text.
        capacity: Length of a window in tokens.
        stride: Distance of the windows in tokens, at most `capacity`.

    Returns:
        Indices of the first token of each window, of the first one that it counts, and of the one after its last.
    """
    found, counted = [], 0
    for start in range(0, count, stride):
        first, end = max(counted, start + 1), min(start + capacity, count)
        if first < end:
            found.append((start, first, end))
        counted = end
        if end == count:
            break
    return found


def perplexity(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    """Computes the perplexity of texts and their bits per byte.

    Bits per byte divide the sum of the losses by the number of UTF-8 bytes of the counted tokens, so that models with
    different vocabularies can be compared (Gao et al. 2020, arXiv:2101.00027, section 3.1).
    """
    step, tokenizer = open_decoder(pipe)
    stride = check("stride", options.get("stride", step.capacity), integer(1, step.capacity))
    rows: list[Row] = []
    owners, size = [], 0
    for index, example in enumerate(examples):
        encoding = tokenizer(example.text)
        ids, ends = encoding.input_ids[0].tolist(), _byte_ends(example.text, encoding.offsets[0])
        for start, first, end in windows(len(ids), step.capacity, stride):
            rows.append((ids[start:first], ids[first:end]))
            owners.append(index)
            size += int(ends[end - 1] - ends[first - 1])
    if not rows:
        raise InputError("Perplexity needs texts of at least two tokens. Received: none")
    found = continuations(step, rows, options["batch_size"], options.get("progress"))
    losses = [-one.logprobs.astype(np.float64) for one in found]
    sums, counts = np.zeros(len(examples)), np.zeros(len(examples), int)
    np.add.at(sums, owners, [row.sum() for row in losses])
    np.add.at(counts, owners, [len(row) for row in losses])
    means = sums / np.maximum(counts, 1)
    figures = {"perplexity": np.exp(sums.sum() / counts.sum()), "bits_per_byte": sums.sum() / np.log(2) / max(size, 1)}
    answers = (f"perplexity {np.exp(mean):.4g}" if count else "" for mean, count in zip(means, counts, strict=True))
    return Outcome({name: float(value) for name, value in figures.items()}, tuple(answers), tuple(means.tolist()))


def _byte_ends(text: str, offsets: np.ndarray) -> np.ndarray:
    """Returns the number of bytes of a text up to the end of each token; special tokens have none."""
    sizes = np.cumsum([0, *(len(character.encode()) for character in text)])
    ends: np.ndarray = sizes[np.maximum.accumulate(offsets[:, 1])]
    return ends


def last_words(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    """Computes how often a greedy search writes the last word of each text, given the words before it.

    Reference: LAMBADA, Paperno et al. 2016, arXiv:1606.06031; Radford et al. 2019, section 3.3.
    """
    step, tokenizer = open_decoder(pipe)
    parts = [example.text.strip().rpartition(" ") for example in examples]
    if short := [example for example, (before, _, _) in zip(examples, parts, strict=True) if not before.strip()]:
        raise InputError(f"A last word needs a text of several words before it. Received: {short[0].text!r:.80}")
    rows = [cut(split_tokens(tokenizer, before, f" {word}"), step.capacity) for before, _, word in parts]
    found = continuations(step, rows, options["batch_size"], options.get("progress"))
    losses = [-float(one.logprobs.sum(dtype=np.float64)) for one in found]
    right = [one.greedy for one in found]
    return Outcome(
        {"accuracy": float(np.mean(right)), "perplexity": float(np.exp(np.mean(losses)))},
        tuple("right" if each else "wrong" for each in right),
        tuple(losses),
        tuple(word for _, _, word in parts),
    )


def cut(row: Row, capacity: int) -> Row:
    """Returns a row whose first tokens are left out if it exceeds the cache."""
    read, written = row
    return read[-max(1, capacity - len(written)) :], written
