"""What a pipeline is given: one input, a list of them, or an iterable that is read while its results are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer, shown
from kerasformer.errors import InputError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Pair = tuple[str, str | None]
"""A text, and the one that it is compared with if there is one."""


@dataclass(frozen=True)
class Inputs(Generic[_Item]):
    """Inputs of a call.

    Attributes:
        items: Checked; those of an iterable are read and checked one after another.
        form: Of the inputs, and so of the results: an iterable gives an iterator.
    """

    items: Iterable[_Item]
    form: Literal["one", "list", "iterator"]

    @property
    def total(self) -> int | None:
        """How many there are; `None` for an iterable."""
        return len(self.items) if isinstance(self.items, Sequence) else None


def read_inputs(
    inputs: Any, read: Callable[[Any], _Item], what: str = "text", is_one: Callable[[Any], bool] | None = None
) -> Inputs[_Item]:
    """Tells one input from several.

    Args:
        inputs: A text or a mapping is one; a list, an array and whatever else has a length are several; other
            iterables, such as generators and files, are read as their results are.
        read: From an input to what the task works on.
        what: Of what kind inputs are, for the error.
        is_one: What else is one input.

    Raises:
        InputError: something else, or an input of a list that `read` refuses.
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


def answered(
    inputs: Inputs[_Item],
    answer: Callable[[Sequence[_Item]], Sequence[_Result]],
    *,
    batch_size: int,
    progress: bool = False,
    label: str = "",
    listed: Callable[[_Result], Any] = lambda result: result,
) -> Any:
    """Answers in the form of the inputs.

    Args:
        inputs: See `read_inputs`.
        answer: A result for each of some inputs.
        batch_size: Inputs that are answered at once, and that are read ahead of an iterator.
        progress: Shows a bar on standard error.
        label: Stands before the bar.
        listed: The form that a result has among others, if it has another one alone.

    Returns:
        The result of one input, a list, or an iterator.

    Raises:
        InputError: a batch size or progress of a wrong kind.
    """
    size, show = check("batch_size", batch_size, integer(1)), check("progress", progress, BOOLEAN)

    def results() -> Iterator[_Result]:
        with _bar(label, inputs.total, show) as advance:
            items = iter(inputs.items)
            while part := list(islice(items, size)):
                yield from answer(part)
                advance(len(part))

    if inputs.form == "one":
        return next(results())
    found = map(listed, results())
    return list(found) if inputs.form == "list" else found


def read_text(value: Any, what: str = "text") -> str:
    """A text, or the one of a row `{"text": …}`.

    Raises:
        InputError: something else.
    """
    if isinstance(value, Mapping) and set(value) == {"text"}:
        value = value["text"]
    if not isinstance(value, str):
        raise InputError(f"A {what} or a list of them was expected. Received: {shown(value)} as a {what}")
    return str(value)


def read_pair(value: Any) -> Pair:
    """A text or a pair of texts.

    Raises:
        InputError: something else.
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


def is_pair(value: Any) -> bool:
    """Whether a tuple is one pair rather than several inputs."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(text, str) for text in value)


@contextmanager
def _bar(label: str, total: int | None, shown: bool) -> Iterator[Callable[[int], object]]:
    """A bar on standard error; without it, what tells it of progress does nothing."""
    if not shown:
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
