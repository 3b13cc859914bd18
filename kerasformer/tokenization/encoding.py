"""The result of tokenizing a batch: arrays of equal width, the less common ones made when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers

from kerasformer.errors import MissingExtraError
from kerasformer.tokenization.truncation import Side, TruncationSettings, windows


@dataclass(frozen=True)
class EncodedRow:
    """One row of a batch.

    Attributes:
        tokens: The whole text as the Rust library tokenized it.
        kept: Positions that truncation left, or `None` for all.
        sample: Index of the text that it comes from.
    """

    tokens: tokenizers.Encoding
    kept: np.ndarray | None
    sample: int

    def __len__(self) -> int:
        return len(self.tokens) if self.kept is None else len(self.kept)


TENSORS = {
    "np": ("numpy", "asarray"),
    "tf": ("tensorflow", "convert_to_tensor"),
    "jax": ("jax.numpy", "asarray"),
    "pt": ("torch", "as_tensor"),
}
"""By the values of `return_tensors`: the package, and its function from an array to a tensor."""

_ATTRIBUTES = {"offset_mapping": "offsets"}


class Encoding(Mapping[str, Any]):
    """A tokenized batch of `B` rows of `T` tokens.

    A mapping from the names of the model's inputs to arrays: `model(encoding)`, `encoding["input_ids"]` and
    `function(**encoding)` work as with any dictionary. The attributes hold the same and more, always as int32 arrays.

    Attributes:
        input_ids: `(B, T)`.
        attention_mask: `(B, T)`, 1 for tokens and 0 for padding.
    """

    __hash__ = object.__hash__

    def __init__(
        self,
        rows: Sequence[EncodedRow],
        *,
        width: int,
        padding_side: Side,
        pad_id: int,
        model_inputs: tuple[str, ...],
        further: tuple[str, ...] = (),
        tensors: str = "np",
    ) -> None:
        self._rows = rows
        self._width = width
        self._padding_side = padding_side
        self._model_inputs = model_inputs
        self._names = (*model_inputs, *further)
        self._tensors = tensors
        self.input_ids = self._gather(lambda tokens: tokens.ids, pad_id)
        self.attention_mask = self._gather(lambda tokens: tokens.attention_mask, 0)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(f"one of {', '.join(self._names)} was expected. Received: {name!r}")
        return _tensor(getattr(self, _ATTRIBUTES.get(name, name)), self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __eq__(self, other: object) -> bool:
        return self is other  # arrays have no truth value

    def __repr__(self) -> str:
        shown = {
            name: np.array2string(array, threshold=200, prefix=" " * (len(name) + 4))
            for name, array in ((name, getattr(self, _ATTRIBUTES.get(name, name))) for name in self._names)
        }
        arrays = "".join(f"\n  {name}: {text}" for name, text in shown.items())
        return f"Encoding of {len(self._rows)} x {self._width} tokens{arrays}"

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """What the model takes: ids, mask, and segments where this tokenizer makes them, under their usual names."""
        return {name: getattr(self, name) for name in self._model_inputs}

    def tokens(self, row: int = 0) -> list[str]:
        """The tokens of a row as the vocabulary spells them, padding left out."""
        tokens, kept = self._rows[row].tokens.tokens, self._rows[row].kept
        return tokens if kept is None else [tokens[index] for index in kept]

    @cached_property
    def token_type_ids(self) -> np.ndarray:
        """`(B, T)`: 1 for the second text of a pair where the tokenizer tells the two apart, else 0."""
        return self._gather(lambda tokens: tokens.type_ids, 0)

    @cached_property
    def special_tokens_mask(self) -> np.ndarray:
        """`(B, T)`: 1 for tokens that are not text: those the template added, and padding."""
        return self._gather(lambda tokens: tokens.special_tokens_mask, 1)

    @cached_property
    def sequence_ids(self) -> np.ndarray:
        """`(B, T)`: 0 for tokens of the first text, 1 for the second, -1 for all others."""
        return self._gather(lambda tokens: _or_minus_one(tokens.sequence_ids), -1)

    @cached_property
    def word_ids(self) -> np.ndarray:
        """`(B, T)`: index of the word within its text, as the pre-tokenizer splits it; -1 outside text."""
        return self._gather(lambda tokens: _or_minus_one(tokens.word_ids), -1)

    @cached_property
    def offsets(self) -> np.ndarray:
        """`(B, T, 2)`: start and end of the token in its text, in characters; 0, 0 outside text."""
        return self._gather(lambda tokens: tokens.offsets, 0, pairs=True)

    @cached_property
    def overflow_to_sample(self) -> np.ndarray:
        """`(B,)`: index of the text that each row comes from; repeated where a text was cut into windows."""
        return np.array([row.sample for row in self._rows], np.int32)

    @cached_property
    def positions(self) -> np.ndarray:
        """`(B, T)`: index of the token among all tokens of its text, uncut; -1 for padding."""
        return self._gather(lambda tokens: range(len(tokens)), -1)

    def _gather(self, read: Callable[[tokenizers.Encoding], Any], fill: int, pairs: bool = False) -> np.ndarray:
        tail = (2,) if pairs else ()
        out = np.full((len(self._rows), self._width, *tail), fill, np.int32)
        for target, row in zip(out, self._rows, strict=True):
            values = np.array(read(row.tokens), np.int32).reshape(-1, *tail)
            if row.kept is not None:
                values = values[row.kept]
            start = self._width - len(values) if self._padding_side == "left" else 0
            target[start : start + len(values)] = values
        return out


def _tensor(array: np.ndarray, kind: str) -> Any:
    """The array as a tensor of a framework.

    Raises:
        MissingExtraError: the framework is not installed.
    """
    module, function = TENSORS[kind]
    try:
        return getattr(importlib.import_module(module), function)(array)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"return_tensors={kind!r} needs {module.split('.')[0]}, which is not installed. Install it, or leave "
            "return_tensors out: Keras takes NumPy arrays on every backend"
        ) from error


def _sequence_ids(tokens: tokenizers.Encoding) -> np.ndarray:
    """`(T,)`: 0 and 1 for tokens of the first and second text, -1 for special tokens."""
    return np.array(_or_minus_one(tokens.sequence_ids), np.int32)


def _or_minus_one(values: Sequence[int | None]) -> list[int]:
    return [-1 if value is None else value for value in values]


def shorten(
    rows: Sequence[EncodedRow], cut: TruncationSettings, overflowing: bool
) -> tuple[list[EncodedRow], list[tuple[int, int, int]]]:
    """Cuts the rows that are too long.

    Args:
        rows: One row per text.
        cut: To which length, and how.
        overflowing: Windows over the whole text instead of its beginning alone.

    Returns:
        The rows, windows of a text one after another; and `(text, tokens lost, tokens it had)` for each text that
        lost some.

    Raises:
        InputError: no room is left for the text.
    """
    short: list[EncodedRow] = []
    lost: list[tuple[int, int, int]] = []
    for row in rows:
        if len(row) <= cut.limit:
            short.append(row)
            continue
        owners = _sequence_ids(row.tokens)
        kept = windows(owners, cut)
        if not overflowing:
            kept = kept[:1]
            had = int(np.count_nonzero(owners >= 0))
            lost.append((row.sample, len(owners) - len(kept[0]), had))
        short += [EncodedRow(row.tokens, positions, row.sample) for positions in kept]
    return short, lost
