"""The door of engines: arrays of token ids are checked here once, before any cast could turn them into others.

A runtime does not: an id of -1 reads the last row of a table, and one beyond it what lies there in memory.
Shape letters: `B` batch, `T` tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kerasformer.errors import InputError

_MOST = 2**31
"""Ids are int32 in all engines."""


def token_array(
    name: str, value: Any, count: int | None = None, dtype: str = "int32", *, floats: bool = False
) -> np.ndarray:
    """Integers `(B, T)` from 0 to below `count`.

    Args:
        name: Of the argument, for the message.
        value: What the caller gave: an array, or lists of equal length.
        count: How many there are, such as the tokens of a vocabulary; `None` or 0 where that is not known.
        dtype: Of the result.
        floats: Floating-point numbers without a fraction are taken too.
    Raises:
        InputError: another shape or dtype, or a value that is not among them.
    """
    array = array_of(value)
    whole = array.dtype.kind in "iub" or (floats and array.dtype.kind == "f" and bool((array == np.rint(array)).all()))
    if not whole or array.ndim != 2 or not array.size:
        raise InputError(
            f"{name} must be integers (batch, tokens), neither of them 0. "
            f"Received: shape {array.shape}, dtype {array.dtype}"
        )
    low, high = array.min(), array.max()
    if low < 0 or high >= (count or _MOST):
        raise InputError(
            f"{name} must be from 0 to {(count or _MOST) - 1}. Received: {low} to {high}. "
            "Is this the tokenizer of this model?"
        )
    return array.astype(dtype, copy=False)


def text_arrays(
    inputs: Mapping[str, Any], names: Collection[str], counts: Mapping[str, int | None], dtype: str = "int32"
) -> dict[str, np.ndarray]:
    """The arrays `(B, T)` that an encoder takes: those that a caller gave, and the defaults of the others.

    Args:
        inputs: `input_ids` and others by name. A missing `attention_mask` is all ones, others are zeros.
        names: What the model takes.
        counts: How many values each may have; see `token_array`.
        dtype: Of the results.
    Raises:
        InputError: an input that the model does not take, no `input_ids`, or arrays that are refused.
    """
    if unknown := sorted(set(inputs) - set(names)):
        raise InputError(f"This model does not take {unknown}. Expected: {list(names)}")
    if "input_ids" not in inputs:
        raise InputError(f"input_ids are needed. Received: {sorted(inputs)}")
    ids = token_array("input_ids", inputs["input_ids"], counts.get("input_ids"), dtype)
    arrays = {}
    for name in names:
        default = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
        given = name in inputs and name != "input_ids"
        count = 2 if name == "attention_mask" else counts.get(name)
        arrays[name] = token_array(name, inputs[name], count, dtype) if given else default
        check_shape(name, arrays[name], ids)
    return {**arrays, "input_ids": ids}


def array_of(value: Any) -> np.ndarray:
    """The value as an array; one without elements if it cannot be one."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths, say
        return np.zeros(0, object)


def check_shape(name: str, array: np.ndarray, ids: np.ndarray) -> None:
    """Refuses an array that has not the shape of its ids.

    Raises:
        InputError: it has not.
    """
    if array.shape != ids.shape:
        raise InputError(f"{name} must have the shape of input_ids, {ids.shape}. Received: {array.shape}")


def prompt_arrays(inputs: Any, mask: Any, count: int | None, dtype: str = "int32") -> tuple[np.ndarray, np.ndarray]:
    """Prompts and their mask, each `(B, T)`, as `Step.start` takes them; padding may hold any integer.

    Args:
        inputs: Ids.
        mask: 1 for real tokens.
        count: Tokens of the vocabulary.
        dtype: Of the results.
    Raises:
        InputError: arrays that are refused, or a prompt without a token.
    """
    real = token_array("mask", mask, 2, dtype)
    ids = array_of(inputs)
    if ids.shape == real.shape and ids.dtype.kind in "iu":
        ids = np.where(real == 1, ids, 0)
    ids = token_array("inputs", ids, count, dtype)
    check_shape("mask", real, ids)
    if not real.any(axis=1).all():
        raise InputError(f"Every prompt needs a token. Received: row {int(np.argmin(real.any(axis=1)))} without one")
    return ids, real


def row_numbers(rows: Any, count: int) -> np.ndarray:
    """Rows `(N,)` of a batch of `count`, as `Step.reorder` takes them.

    Raises:
        InputError: a row that is not there.
    """
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= count)).any():
        raise InputError(f"Rows must be between 0 and {count - 1}. Received: {numbers.tolist()}")
    return numbers
