"""Texts on which a Keras model is run as a whole: to be calibrated, and to see what rounding its weights does.

A model that generates reads each text together with its own continuation, in one pass without a cache. Its products
then have the same inputs, and so the same ranges, as in a prefill of the text and the steps that follow. Texts go one
by one, so that nothing is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import decoding
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import InputError
from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.fidelity.answers import stacked
from kerasformer.files import local_path
from kerasformer.models.keras_engine import KerasStep

MAX_TEXTS = 128
"""Texts that are used of those given; more of them change ranges little."""

_LONGEST = 64  # tokens of a text
_CONTINUATION = 16  # tokens that a generating model adds
_ROWS = 32  # texts continued at once

Passages = dict[str, np.ndarray]
"""`(N, T)` int32 arrays, padded on the right: `input_ids`, `attention_mask`, `token_type_ids` where the model has
them; for an encoder-decoder `written`, which is 1 for the decoder's tokens, behind those of the encoder; for a decoder
`asked`, if only some of its answers count, which is 1 for these."""


def read_texts(source: Any = None, limit: int = MAX_TEXTS) -> list[str]:
    """The first texts of a source; blank ones do not count.

    Args:
        source: A file with a text a line, or any iterable of texts, such as a list or a `tf.data.Dataset` of strings,
            batched or not. The sentences of this package by default.
        limit: Texts at most.
    Raises:
        InputError: no such file, no text in it, or what is no text.
    """
    if source is None:
        source = (*READING, *PROMPTS)
    if isinstance(source, str | Path):
        path = local_path(source, InputError)
        if not path.is_file():
            raise InputError(f"calibration must be texts, or a file with a text a line. Received: {str(source)!r:.80}")
        source = _lines(path)
    if not isinstance(source, Iterable):
        raise InputError(
            "calibration must be a file of texts, a list of texts or a dataset of texts. "
            f"Received: {type(source).__name__}"
        )
    found = list(islice((text for entry in source for text in _texts_of(entry) if text.strip()), limit))
    if not found:
        raise InputError("calibration needs at least one text. Received: none that is not blank")
    return found


def _lines(path: Path) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise InputError(f"A file of texts must be UTF-8. Received: {path}: {error}") from error


def _texts_of(entry: Any) -> list[str]:
    """The texts of an element of a dataset: a string, bytes, or an array of them."""
    if isinstance(entry, str):
        return [entry.rstrip("\n")]
    if isinstance(entry, bytes):
        return [entry.decode("utf-8", errors="replace")]
    if hasattr(entry, "numpy"):
        entry = entry.numpy()
        if isinstance(entry, bytes):
            return _texts_of(entry)
    if isinstance(entry, np.ndarray) and entry.dtype.kind in "OSU":
        return [text for part in entry.ravel().tolist() for text in _texts_of(part)]
    raise InputError(
        f"calibration must be texts: map a dataset to its texts first. Received an element: {type(entry).__name__}"
    )


def passages(model: Any, texts: Sequence[str]) -> Passages:
    """What a model reads of these texts, and what it writes then.

    Args:
        model: Any model of the zoo; one without a tokenizer gets random ids, as many rows as there are texts.
        texts: Read, or continued. An encoder-decoder gets its first task prefix before each.
    Raises:
        InputError: no text has a token.
    """
    rows = _ids(model, texts)
    written: list[list[int]] = [[] for _ in rows]
    if model.generates:
        written = _continuations(model, rows)
    whole = [[*row, *more] for row, more in zip(rows, written, strict=True)]
    shape = (len(whole), max(map(len, whole)))
    encoder_names = () if model.is_encoder_decoder else model.input_names
    arrays = {name: np.zeros(shape, "int32") for name in ("input_ids", "attention_mask", *encoder_names)}
    for index, row in enumerate(whole):
        arrays["input_ids"][index, : len(row)], arrays["attention_mask"][index, : len(row)] = row, 1
    if model.is_encoder_decoder:
        starts = np.array([[len(row)] for row in rows])
        arrays["written"] = (np.arange(shape[1]) >= starts).astype("int32")
    return arrays


def _ids(model: Any, texts: Sequence[str]) -> list[list[int]]:
    room = _CONTINUATION if model.generates and not model.is_encoder_decoder else 0
    limit = max(1, min(_LONGEST, (model.max_length or _LONGEST + room) - room))
    if model.tokenizer is None:
        random = np.random.default_rng(0)
        sizes = random.integers(max(1, limit // 3), limit + 1, len(texts))
        return [random.integers(0, model.config.vocab_size, size).tolist() for size in sizes]
    prefix = model.info().sample_prefix if model.is_encoder_decoder else ""
    rows = [model.tokenizer.encode(prefix + text)[:limit] for text in texts]
    rows = [row for row in rows if row]
    if not rows:
        raise InputError(f"None of the texts has a token. Received: {len(texts)} texts")
    return rows


def _continuations(model: Any, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The model's own greedy tokens after each row; of an encoder-decoder what its decoder reads meanwhile."""
    info = model.info()
    start = info.start_token_id
    # Rows do not end, for each new number of rows would be compiled.
    config = GenerationConfig(max_new_tokens=_CONTINUATION, decoder_start_token_id=start)
    width = max(map(len, rows))
    step = KerasStep(model, _CONTINUATION + (1 if model.is_encoder_decoder else width), jit_compile=False)
    found: list[list[int]] = []
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        ids, mask = np.zeros((2, len(part), width), "int32")
        for index, row in enumerate(part):
            place = slice(0, len(row)) if model.is_encoder_decoder else slice(width - len(row), width)
            ids[index, place], mask[index, place] = row, 1
        for sequence in decoding.generate(step, ids, mask, config).sequences:
            tokens = sequence.tolist()
            ends = [place for place, token in enumerate(tokens) if token in info.eos_token_id]
            tokens = tokens[: ends[0] if ends else -1]  # the last one is written and not read
            found.append([start, *tokens] if model.is_encoder_decoder else tokens)
    return found


def one_by_one(arrays: Passages) -> Iterator[Passages]:
    """Each passage without its padding, `(1, T)`."""
    for row, length in enumerate(arrays["attention_mask"].sum(axis=1)):
        yield {name: array[row : row + 1, :length] for name, array in arrays.items()}


def as_inputs(passage: Passages) -> Passages:
    """What the model's `call` takes of one passage."""
    inputs = {name: array for name, array in passage.items() if name not in ("written", "asked")}
    written = passage.get("written")
    if written is None:
        return inputs
    ids = passage["input_ids"]
    return {"input_ids": ids[written == 0][None], "decoder_input_ids": ids[written == 1][None]}


def asked(output: np.ndarray, passage: Passages) -> np.ndarray:
    """Of the answers `(1, T, ...)` to a passage those that count: the last ones, if the passage says how many."""
    return output if "asked" not in passage else output[:, -int(passage["asked"].sum()) :]


def as_read(model: Any, references: Mapping[str, np.ndarray], tokens: int | None = None) -> dict[str, np.ndarray]:
    """References of a bundle, in the form in which a model answers all of a text at once.

    A generating model then reads each prompt together with the tokens that it once wrote, and what it answers along
    them is what it answered then.

    Args:
        model: The model that they are of.
        references: Of `verify.record`.
        tokens: Of the written ones, the first that count; all by default.

    Returns:
        References of `record_forward`, for passages as inputs.
    """
    if not model.generates:
        return dict(references)
    written = references["tokens"][:, :tokens]
    count = written.shape[1]
    prompts = [
        ids[mask > 0]
        for ids, mask in zip(references["input.input_ids"], references["input.attention_mask"], strict=True)
    ]
    # A decoder's first token is the last one of the prompt.
    heads = [*references["input.first"]] if model.is_encoder_decoder else [written[0, :0]] * len(prompts)
    rows = [np.concatenate(parts) for parts in zip(prompts, heads, written[:, :-1], strict=True)]
    ids, mask, last = np.zeros((3, len(rows), max(map(len, rows))), "int32")
    for index, row in enumerate(rows):
        ids[index, : len(row)], mask[index, : len(row)] = row, 1
        last[index, len(row) - count : len(row)] = 1
    found = {"input.input_ids": ids, "input.attention_mask": mask}
    found["input.written" if model.is_encoder_decoder else "input.asked"] = last
    asked_for = references["asked"][:, :count]
    for name, array in references.items():
        if name.startswith("output."):
            found[name] = stacked([row[:count][kept > 0] for row, kept in zip(array, asked_for, strict=True)])
    return {**found, **{name: references[name] for name in ("made_up",) if name in references}, "asked": asked_for}


def shortest(references: Mapping[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
    """Those of the shortest texts that have about so many tokens in all, at least one."""
    lengths = references["input.attention_mask"].sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    count = max(1, int((np.cumsum(lengths[order]) <= tokens).sum()))
    rows = np.sort(order[:count])
    return {name: array[rows] if array.ndim else array for name, array in references.items()}
