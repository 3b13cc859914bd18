"""Likelihood of texts: perplexity with overlapping windows, bits per byte, last words, and choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import check, integer
from kerasformer.command_options import EvaluationOptions
from kerasformer.errors import InputError
from kerasformer.evaluation.examples import Example
from kerasformer.evaluation.outcome import Outcome
from kerasformer.evaluation.prompts import FewShotPrompt, prompt
from kerasformer.pipelines.base import softmax
from kerasformer.pipelines.choosing import Row, continuations, likelihoods, open_decoder, split_tokens


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
    rows = [_cut(split_tokens(tokenizer, before, f" {word}"), step.capacity) for before, _, word in parts]
    found = continuations(step, rows, options["batch_size"], options.get("progress"))
    losses = [-float(one.logprobs.sum(dtype=np.float64)) for one in found]
    right = [one.greedy for one in found]
    return Outcome(
        {"accuracy": float(np.mean(right)), "perplexity": float(np.exp(np.mean(losses)))},
        tuple("right" if each else "wrong" for each in right),
        tuple(losses),
        tuple(word for _, _, word in parts),
    )


def choices(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    """Computes how often the likeliest choice of each text is the right one.

    `accuracy_normalized` divides the log-likelihood of a choice by its number of bytes.

    Raises:
        InputError: a text has less than two choices, or its label is none of them.
    """
    step, tokenizer = open_decoder(pipe)
    given, written = tuple(options.get("choices") or ()), _prompt(options)
    texts = [example.choices or given for example in examples]
    right = [_index(example, names) for example, names in zip(examples, texts, strict=True)]
    rows = [
        _cut(split_tokens(tokenizer, start, name), step.capacity)
        for example, names in zip(examples, texts, strict=True)
        for start in [written(example)]
        for name in names
    ]
    found = iter(continuations(step, rows, options["batch_size"], options.get("progress")))
    plain, normalized, losses = [], [], []
    for names, index in zip(texts, right, strict=True):
        of_choices = [next(found) for _ in names]
        sums = likelihoods(names, of_choices)
        plain.append(int(sums.argmax()))
        normalized.append(int(likelihoods(names, of_choices, "bytes").argmax()))
        losses.append(-float(np.log(softmax(sums)[index] + np.finfo(float).tiny)))
    figures = {
        "accuracy": float(np.mean(np.equal(plain, right))),
        "accuracy_normalized": float(np.mean(np.equal(normalized, right))),
    }
    return Outcome(
        figures,
        tuple(names[index].strip() for names, index in zip(texts, plain, strict=True)),
        tuple(losses),
        tuple(names[index].strip() for names, index in zip(texts, right, strict=True)),
    )


def _prompt(options: EvaluationOptions) -> Callable[[Example], str]:
    """Returns the function from an example to its prompt: by default its text and a space."""
    template = options.get("template")
    if template is None:
        return lambda example: f"{example.text.rstrip()} "
    written = template if callable(template) else prompt([], 0, template=str(template))
    return lambda example: str(written(example if isinstance(written, FewShotPrompt) else example.text))


def _index(example: Example, names: Sequence[str]) -> int:
    label, stripped = str(example.label).strip(), [name.strip() for name in names]
    if label in stripped:
        return stripped.index(label)
    if label.isdigit() and int(label) < len(names) and len(names) > 1:
        return int(label)
    raise InputError(
        "A label must be one of at least two choices, or its index. "
        f"Received: {example.label!r:.40} with {len(names)} choices for {example.text!r:.40}"
    )


def _cut(row: Row, capacity: int) -> Row:
    """Returns a row whose first tokens are left out if it exceeds the cache."""
    read, written = row
    return read[-max(1, capacity - len(written)) :], written
