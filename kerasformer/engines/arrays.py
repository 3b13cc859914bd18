"""Validation of the arrays that callers pass to engines, and grouping of their rows by length.

Ids are checked once, where a text enters, and before any cast could change them. Runtimes do not check them: an id of
-1 reads the last row of an embedding table, and an id that is too large reads unrelated memory.
Shape letters: `B` batch, `T` tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kerasformer.bundle.interface import OWN_LENGTHS
from kerasformer.errors import CapacityError, InputError

_INT32_LIMIT = 2**31
"""Upper bound of ids, exclusive: they are int32 in all engines."""

_MAX_PADDING = 0.1
"""Largest share of padding in a group of rows of similar length."""


def token_array(
    name: str, value: object, count: int | None = None, dtype: str = "int32", *, least: int = 0, floats: bool = False
) -> np.ndarray:
    """Converts a value to an integer array `(B, T)` and checks that each entry is from `least` to `count - 1`.

    Args:
        name: Name of the argument, for the error message.
        value: Array, or lists of equal length.
        count: Number of allowed values, such as the vocabulary size; `None` or 0 if it is unknown.
        dtype: Data type of the result.
        least: Smallest allowed value.
        floats: Whether to accept floating-point numbers without a fractional part.
    Raises:
        InputError: wrong shape or data type, an empty array, or a value out of range.
    """
    array = as_array(value)
    whole = array.dtype.kind in "iub" or (floats and array.dtype.kind == "f" and bool((array == np.rint(array)).all()))
    if not whole or array.ndim != 2 or not array.size:
        raise InputError(
            f"{name} must be integers of shape (batch, tokens), with neither dimension 0. "
            f"Received: shape {array.shape}, dtype {array.dtype}"
        )
    low, high = (array.min(), array.max()) if array.size > 1 else 2 * (array.item(),)
    if low < least or high >= (count or _INT32_LIMIT):
        raise InputError(
            f"{name} must be from {least} to {(count or _INT32_LIMIT) - 1}. Received: {low} to {high}. "
            "Is this the tokenizer of this model?"
        )
    return array.astype(dtype, copy=False)


def text_arrays(
    inputs: Mapping[str, object],
    names: Collection[str],
    counts: Mapping[str, int | None],
    defaults: Mapping[str, int],
    dtype: str = "int32",
) -> dict[str, np.ndarray]:
    """Returns the input arrays `(B, T)` of an encoder, with defaults for those that the caller left out.

    Those of `OWN_LENGTHS` have other lengths, and may not be left out.

    Args:
        inputs: `input_ids` and other arrays, by name.
        names: Names of the inputs of the model.
        counts: Number of allowed values of each input; see `token_array`.
        defaults: Entry of each array that is left out, which is also allowed if it is negative. By default,
            `attention_mask` is 1, and all others are 0.
        dtype: Data type of the results.
    Raises:
        InputError: an unknown input, missing `input_ids`, or an invalid array.
    """
    if unknown := sorted(set(inputs) - set(names)):
        raise InputError(f"This model does not accept {unknown}. Expected: {list(names)}")
    if "input_ids" not in inputs:
        raise InputError(f"input_ids are required. Received: {sorted(inputs)}")
    ids = token_array("input_ids", inputs["input_ids"], counts.get("input_ids"), dtype)
    arrays = {}
    for name in names:
        mask = name == "attention_mask"
        count, default = 2 if mask else counts.get(name), 1 if mask else defaults.get(name, 0)
        passed = name in inputs and name != "input_ids"
        least = min(0, default)
        if name in OWN_LENGTHS:
            arrays[name] = token_array(name, inputs.get(name), count, dtype, least=least)
            if len(arrays[name]) != len(ids):
                raise InputError(
                    f"{name} must have a row for each text. Expected: {len(ids)}. Received: {len(arrays[name])}"
                )
            continue
        arrays[name] = (
            token_array(name, inputs[name], count, dtype, least=least) if passed else np.full_like(ids, default)
        )
        check_shape(name, arrays[name], ids)
    return {**arrays, "input_ids": ids}


def as_array(value: object) -> np.ndarray:
    """Converts a value to an array; returns an empty array if that is impossible."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # for example, rows of different lengths
        return np.zeros(0, object)


def check_shape(name: str, array: np.ndarray, ids: np.ndarray) -> None:
    """Checks that an array has the same shape as `input_ids`.

    Raises:
        InputError: the shapes differ.
    """
    if array.shape != ids.shape:
        raise InputError(f"{name} must have the shape of input_ids, {ids.shape}. Received: {array.shape}")


def prompt_arrays(
    inputs: object, mask: object, count: int | None, dtype: str = "int32", names: tuple[str, str] = ("inputs", "mask")
) -> tuple[np.ndarray, np.ndarray]:
    """Checks prompts, such as the arguments of `Step.start`; padding may hold any integer.

    Args:
        inputs: `(B, T)` token ids.
        mask: `(B, T)`, 1 for real tokens; `None` means that all tokens are real.
        count: Vocabulary size.
        dtype: Data type of the results.
        names: Names of the arguments, for error messages.
    Returns:
        Token ids and mask, each `(B, T)`.
    Raises:
        InputError: an invalid array, or a prompt without tokens.
    """
    if mask is None:
        ids = token_array(names[0], inputs, count, dtype)
        return ids, np.ones_like(ids)
    real = token_array(names[1], mask, 2, dtype)
    ids = as_array(inputs)
    if ids.shape == real.shape and ids.dtype.kind in "iu":
        ids = np.where(real == 1, ids, 0)
    ids = token_array(names[0], ids, count, dtype)
    check_shape(names[1], real, ids)
    if not real.any(axis=1).all():
        empty = int(np.argmin(real.any(axis=1)))
        raise InputError(
            f"Each prompt needs at least one token. Received: no token in row {empty}. Remove it, or start it with the "
            "bos token"
        )
    return ids, real


def step_tokens(tokens: object, rows: int, lengths: Collection[int] | None = None, dtype: str = "int32") -> np.ndarray:
    """Checks the shape of the tokens of `Step.step`, whose ids were checked when the text was read.

    Args:
        tokens: `(B, T)` integers.
        rows: `B`.
        lengths: Allowed values of `T`; all if `None`.
        dtype: Data type of the result.
    Raises:
        InputError: another shape, or no integers.
    """
    array = np.asarray(tokens)
    shape = array.shape
    if len(shape) != 2 or shape[0] != rows or not (shape[1] if lengths is None else shape[1] in lengths):
        expected = "T at least 1" if lengths is None else f"T in step_lengths {lengths}"
        raise InputError(f"tokens must have the shape ({rows}, T), with {expected}. Received: shape {shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"tokens must be integers. Received: dtype {array.dtype}")
    return array.astype(dtype, copy=False)


def row_indices(rows: object, count: int) -> np.ndarray:
    """Checks the argument `rows` of `Step.reorder`.

    Args:
        rows: `(N,)` integers.
        count: Number of rows in the batch.
    Raises:
        InputError: not a list of integers, or a row out of range.
    """
    indices = np.asarray(rows)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or ((indices < 0) | (indices >= count)).any():
        raise InputError(f"Rows must be integers from 0 to {count - 1}. Received: {indices.tolist()}")
    return indices


def check_length(length: int, limit: int | None) -> None:
    """Checks the length of a text that a model reads as a whole.

    Raises:
        CapacityError: it exceeds the maximum length; `None` for no maximum.
    """
    if limit is not None and length > limit:
        raise CapacityError(f"The model accepts at most {limit} tokens. Received: {length}. Shorten the text")


def check_discarded(count: int, limit: int) -> None:
    """Checks the number of tokens that `Step.rewind` and `ResumableStep.resume` remove from a cache.

    Raises:
        InputError: there are not so many, or some layers no longer have the keys before them, or have a state that all
            tokens have changed.
    """
    if not 0 <= count <= limit:
        raise InputError(
            f"From 0 to {limit} tokens of earlier steps can be discarded, since some layers keep only the last ones, "
            f"or a state without an entry for each token. Received: {count}. Start again, or continue a fork"
        )


def row_lengths(mask: np.ndarray) -> np.ndarray:
    """Returns the length of each row up to its last token that is not padding, at least 1, `(B,)`.

    Args:
        mask: `(B, T)`, 1 for real tokens.
    """
    last = mask.shape[1] - (mask > 0)[:, ::-1].argmax(axis=1)
    return np.where((mask > 0).any(axis=1), last, 1)


def row_slots(slots: np.ndarray) -> int:
    """Returns the number of slots `(N,)` of a row that are no padding, at least 1."""
    return max(1, int((slots >= 0).sum()))


def left_padded(rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of ids as arrays, and their mask, each `(B, P)` int32, padded as for `Step.start` of a decoder."""
    width = max(map(len, rows))
    ids = np.stack([np.pad(row, (width - len(row), 0)) for row in rows]).astype(np.int32)
    mask = np.stack([np.arange(width) >= width - len(row) for row in rows]).astype(np.int32)
    return ids, mask


def right_padded(rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of ids as arrays, and their mask, each `(B, P)` int32, padded as for an encoder."""
    width = max(map(len, rows))
    ids = np.stack([np.pad(row, (0, width - len(row))) for row in rows]).astype(np.int32)
    mask = np.stack([np.arange(width) < len(row) for row in rows]).astype(np.int32)
    return ids, mask


def similar_rows(lengths: np.ndarray, max_rows: int, max_slots: int | None = None) -> list[np.ndarray]:
    """Groups rows of similar length, so that padding takes at most a tenth of the slots of each group.

    Args:
        lengths: Length of each row, `(B,)`.
        max_rows: Largest number of rows of a group.
        max_slots: Largest number of slots of a group, that is its rows times the length of the longest one; a row that
            is longer than that is a group of its own. Unlimited by default.

    Returns:
        Indices of the rows of each group, longest rows first.
    """
    groups: list[list[int]] = []
    width = padding = 0
    for row in np.argsort(-lengths, kind="stable").tolist():
        slots = width * (len(groups[-1]) + 1) if groups else 0
        missing = padding + width - int(lengths[row])
        fits = groups and len(groups[-1]) < max_rows and (max_slots is None or slots <= max_slots)
        if fits and missing <= _MAX_PADDING * slots:
            groups[-1].append(row)
            padding = missing
        else:
            groups.append([row])
            width, padding = int(lengths[row]), 0
    return [np.array(group) for group in groups]
