"""Inputs of a pipeline: a single one, a list, or another iterable, which is read lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, integer, shown
from kerasformer.errors import InputError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Pair = tuple[str, str | None]
"""A text, and a second text that it is compared with, or `None`."""


@dataclass(frozen=True)
class Inputs(Generic[_Item]):
    """Checked inputs of a call.

    Attributes:
        items: The inputs; those of an iterable are read and checked lazily.
        form: Form of the inputs, which is also that of the results.
    """

    items: Iterable[_Item]
    form: Literal["one", "list", "iterator"]

    @property
    def total(self) -> int | None:
        """Number of inputs; `None` if it is unknown."""
        return len(self.items) if isinstance(self.items, Sequence) else None

    def in_form(self, results: Iterator[Any], listed: Callable[[Any], Any] = lambda result: result) -> Any:
        """Returns results in the form of the inputs: a single one, a list, or an iterator.

        Args:
            results: A result for each input.
            listed: Conversion of a result in a list or iterator, if it differs from that of a single input.
        """
        if self.form == "one":
            return next(results)
        converted = map(listed, results)
        return list(converted) if self.form == "list" else converted


def read_inputs(
    inputs: object, read: Callable[[object], _Item], what: str = "text", is_one: Callable[[object], bool] | None = None
) -> Inputs[_Item]:
    """Checks inputs, and distinguishes a single input from several.

    Args:
        inputs: A text or a mapping is a single input; a list, an array or another object with a length contains several
            inputs; other iterables, such as generators and files, are read lazily.
        read: Function that checks and converts an input.
        what: Name of an input for error messages.
        is_one: Function that identifies other single inputs.

    Raises:
        InputError: the type is not supported, or `read` raises an error for an item of a list.
    """
    if isinstance(inputs, np.ndarray) and inputs.ndim == 0:
        inputs = inputs.item()
    if isinstance(inputs, str | Mapping) or (is_one is not None and is_one(inputs)):
        return Inputs([read(inputs)], "one")
    if isinstance(inputs, bytes) or not isinstance(inputs, Iterable):
        raise InputError(f"A {what} or a list of them was expected. Received: {shown(inputs)}")
    if hasattr(inputs, "__len__"):
        return Inputs([read(value) for value in inputs], "list")
    return Inputs(map(read, inputs), "iterator")


def map_inputs(
    inputs: Inputs[_Item],
    answer: Callable[[Sequence[_Item]], Sequence[_Result]],
    *,
    batch_size: int,
    progress: bool = False,
    label: str = "",
    listed: Callable[[_Result], Any] = lambda result: result,
) -> Any:
    """Applies a function to inputs in batches, and returns results in the form of the inputs.

    Args:
        inputs: Inputs from `read_inputs`.
        answer: Function that returns a result for each input of a batch.
        batch_size: Number of inputs in a batch; as many are read ahead from an iterator.
        progress: Whether to show a progress bar on standard error.
        label: Label of the progress bar.
        listed: Conversion of a result in a list or iterator, if it differs from that of a single input.

    Returns:
        A single result, a list, or an iterator.

    Raises:
        InputError: `batch_size` or `progress` has a wrong type or value.
    """
    size, show = check("batch_size", batch_size, integer(1)), check("progress", progress, BOOLEAN)

    def results() -> Iterator[_Result]:
        with progress_bar(label, inputs.total, show) as advance:
            items = iter(inputs.items)
            while part := list(islice(items, size)):
                yield from answer(part)
                advance(len(part))

    return inputs.in_form(results(), listed)


def read_text(value: object, what: str = "text") -> str:
    """Returns a text, given as a string or as `{"text": …}`.

    Raises:
        InputError: the value is neither.
    """
    if isinstance(value, Mapping) and set(value) == {"text"}:
        value = value["text"]
    if not isinstance(value, str):
        raise InputError(f"A {what} or a list of them was expected. Received: {shown(value)} as a {what}")
    return str(value)


def read_pair(value: object) -> Pair:
    """Returns a text or a pair of texts as a pair.

    Raises:
        InputError: the value is neither.
    """
    if isinstance(value, str):
        return str(value), None
    if isinstance(value, Mapping) and "text" in value and set(value) <= {"text", "text_pair"}:
        value = (value["text"], value.get("text_pair"))
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str):
        first, second = value
        if second is None or isinstance(second, str):
            return str(first), None if second is None else str(second)
    raise InputError(
        'A text or a list of them was expected, or pairs: ("first", "second") or {"text": …, "text_pair": …}. '
        f"Received: {shown(value)} as a text"
    )


def is_pair(value: object) -> bool:
    """Returns whether a value is a tuple of texts, which is a pair rather than several inputs."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(text, str) for text in value)


@contextmanager
def progress_bar(label: str, total: int | None, visible: bool) -> Iterator[Callable[[int], object]]:
    """Provides a function that advances a progress bar on standard error; it has no effect if the bar is hidden."""
    if not visible:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        row = bar.add_task(label, total=total)
        yield lambda count: bar.advance(row, count)
