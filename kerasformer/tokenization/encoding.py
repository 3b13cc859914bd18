"""The result of tokenizing a batch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import tokenizers

from kerasformer.errors import MissingExtraError
from kerasformer.tokenization.truncation import Side, TruncationSettings, chunks


class ChangedEncoding:
    """Encoding by the Rust library of which some attributes are replaced; it has all attributes that are used.

    Args:
        encoding: Encoding by the Rust library.
        changed: The attributes, such as `ids`, with an entry for each token.
    """

    def __init__(self, encoding: tokenizers.Encoding, **changed: Sequence[Any]) -> None:
        self._encoding = encoding
        vars(self).update(changed)

    def __len__(self) -> int:
        return len(self._encoding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoding, name)


@dataclass(frozen=True)
class EncodedRow:
    """One row of a batch.

    Attributes:
        tokens: Encoding of the whole text by the Rust library.
        positions: Positions of the tokens that remain after truncation, or `None` for all.
        sample: Index of the text that the row belongs to.
    """

    tokens: tokenizers.Encoding
    positions: np.ndarray | None
    sample: int

    def __len__(self) -> int:
        return len(self.tokens) if self.positions is None else len(self.positions)


TENSORS = {
    "np": ("numpy", "asarray"),
    "tf": ("tensorflow", "convert_to_tensor"),
    "jax": ("jax.numpy", "asarray"),
    "pt": ("torch", "as_tensor"),
}
"""Package and conversion function for each value of `return_tensors`."""

_ATTRIBUTES = {"offset_mapping": "offsets"}


class Encoding(dict[str, Any]):
    """A tokenized batch of `B` rows of `T` tokens.

    It is a dictionary from the names of the model's inputs to arrays, so that `model(encoding)`,
    `model.fit(encoding, labels)`, `encoding["input_ids"]` and `function(**encoding)` work. Attributes provide these and
    more arrays; less common ones are computed when they are first used. All are of type int32: NumPy arrays, or tensors
    of the framework that `return_tensors` named.

    Attributes:
        input_ids: `(B, T)` token ids.
        attention_mask: `(B, T)`, 1 for tokens and 0 for padding.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(
        self,
        rows: Sequence[EncodedRow] | Iterable[tuple[str, Any]] = (),
        *,
        width: int | None = None,
        padding_side: Side = "right",
        pad_id: int = 0,
        model_inputs: tuple[str, ...] = (),
        constants: Mapping[str, int] | None = None,
        extra_names: tuple[str, ...] = (),
        tensors: str = "np",
    ) -> None:
        super().__init__()
        if width is None:  # as Keras and TensorFlow create a dictionary of the same type for converted arrays
            self.update(cast("Iterable[tuple[str, object]]", rows))
            return
        self._rows = cast("Sequence[EncodedRow]", rows)
        self._width = width
        self._padding_side = padding_side
        self._model_inputs = model_inputs
        self._constants = dict(constants or {})
        self._tensors = tensors
        self.input_ids = self._gather(lambda tokens: tokens.ids, pad_id)
        self.attention_mask = self._gather(lambda tokens: tokens.attention_mask, 0)
        for name in (*model_inputs, *self._constants, *extra_names):
            self[name] = self._array(name)

    def __missing__(self, name: str) -> object:
        raise KeyError(f"expected one of {', '.join(self)}. Received: {name!r}")

    def __eq__(self, other: object) -> bool:
        return self is other  # the comparison of arrays has no truth value

    def __repr__(self) -> str:
        if not hasattr(self, "_rows"):
            return super().__repr__()
        texts = {
            name: np.array2string(np.asarray(array), threshold=200, prefix=" " * (len(name) + 4))
            for name, array in self.items()
        }
        arrays = "".join(f"\n  {name}: {text}" for name, text in texts.items())
        return f"Encoding of {len(self._rows)} x {self._width} tokens{arrays}"

    def add_array(self, name: str, array: np.ndarray) -> None:
        """Adds an array, to the mapping and as an attribute."""
        self[name] = _tensor(array, self._tensors)
        setattr(self, name, self[name])

    # Functions by which Keras takes a structure of arrays apart and creates it with converted arrays (`keras.tree`).

    def tree_flatten(self) -> tuple[list[np.ndarray], list[str], list[str]]:
        """Returns the arrays, and their names as metadata and as keys."""
        names = sorted(self)
        return [self[name] for name in names], names, names

    @classmethod
    def tree_unflatten(cls, names: Iterable[str], arrays: Iterable[np.ndarray]) -> Encoding:
        """Returns a dictionary of this type, without the attributes."""
        return cls(zip(names, arrays, strict=True))

    def torchtree_flatten(self) -> tuple[list[np.ndarray], list[str]]:
        """As `tree_flatten`, for the PyTorch backend of Keras."""
        return self.tree_flatten()[:2]

    @classmethod
    def torchtree_unflatten(cls, arrays: Iterable[np.ndarray], names: Iterable[str]) -> Encoding:
        """As `tree_unflatten`, for the PyTorch backend of Keras."""
        return cls.tree_unflatten(names, arrays)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Model inputs by name: `input_ids`, `attention_mask` and, for some tokenizers, `token_type_ids` or `langs`."""
        return {name: self._array(name) for name in (*self._model_inputs, *self._constants)}

    def _array(self, name: str) -> np.ndarray:
        if name in self._constants:
            constants = np.full((len(self._rows), self._width), self._constants[name], np.int32)
            return _tensor(constants, self._tensors)
        array: np.ndarray = getattr(self, _ATTRIBUTES.get(name, name))
        return array

    def tokens(self, row: int = 0) -> list[str]:
        """Returns the tokens of a row as they appear in the vocabulary, without padding."""
        tokens, positions = self._rows[row].tokens.tokens, self._rows[row].positions
        return tokens if positions is None else [tokens[position] for position in positions]

    @cached_property
    def token_type_ids(self) -> np.ndarray:
        """`(B, T)`: 1 for tokens of the second text of a pair if the tokenizer distinguishes segments, otherwise 0."""
        return self._gather(lambda tokens: tokens.type_ids, 0)

    @cached_property
    def special_tokens_mask(self) -> np.ndarray:
        """`(B, T)`: 1 for special tokens that the tokenizer added and for padding, otherwise 0."""
        return self._gather(lambda tokens: tokens.special_tokens_mask, 1)

    @cached_property
    def sequence_ids(self) -> np.ndarray:
        """`(B, T)`: 0 for tokens of the first text, 1 for the second, -1 for all others."""
        return self._gather(lambda tokens: _or_minus_one(tokens.sequence_ids), -1)

    @cached_property
    def word_ids(self) -> np.ndarray:
        """`(B, T)`: index of the token's word in its text; -1 for special tokens.

        Words are those of the pre-tokenizer, or of white space if it does not split texts at spaces.
        """
        return self._gather(lambda tokens: _or_minus_one(tokens.word_ids), -1)

    @cached_property
    def offsets(self) -> np.ndarray:
        """`(B, T, 2)`: start and end of the token in its text, in characters; 0, 0 for special tokens."""
        return self._gather(lambda tokens: tokens.offsets, 0, pairs=True)

    @cached_property
    def overflow_to_sample(self) -> np.ndarray:
        """`(B,)`: index of the text that each row belongs to; repeated for texts that were split into chunks."""
        return _tensor(np.array([row.sample for row in self._rows], np.int32), self._tensors)

    @cached_property
    def positions(self) -> np.ndarray:
        """`(B, T)`: position of the token in its text before truncation; -1 for padding."""
        return self._gather(lambda tokens: range(len(tokens)), -1)

    def _gather(self, read: Callable[[tokenizers.Encoding], object], fill: int, pairs: bool = False) -> np.ndarray:
        shape = (2,) if pairs else ()
        result = np.full((len(self._rows), self._width, *shape), fill, np.int32)
        tokens, whole = None, np.zeros((0, *shape), np.int32)
        for target, row in zip(result, self._rows, strict=True):
            if row.tokens is not tokens:  # the chunks of a text share its tokens
                tokens, whole = row.tokens, np.array(read(row.tokens), np.int32).reshape(-1, *shape)
            values = whole if row.positions is None else whole[row.positions]
            start = self._width - len(values) if self._padding_side == "left" else 0
            target[start : start + len(values)] = values
        return _tensor(result, self._tensors)


def _tensor(array: np.ndarray, kind: str) -> np.ndarray:
    """Converts an array to a tensor of a framework, which is typed as an array, the default.

    Raises:
        MissingExtraError: the framework is not installed.
    """
    module, function = TENSORS[kind]
    try:
        tensor: np.ndarray = getattr(importlib.import_module(module), function)(array)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"return_tensors={kind!r} needs {module.split('.')[0]}, which is not installed. Install it, or omit "
            "return_tensors: Keras accepts NumPy arrays with all backends"
        ) from error
    return tensor


def _sequence_ids(tokens: tokenizers.Encoding) -> np.ndarray:
    """Returns `(T,)` with 0 and 1 for tokens of the first and second text, and -1 for special tokens."""
    return np.array(_or_minus_one(tokens.sequence_ids), np.int32)


def _or_minus_one(values: Sequence[int | None]) -> list[int]:
    return [-1 if value is None else value for value in values]


def truncate(
    rows: Sequence[EncodedRow], truncation: TruncationSettings, overflowing: bool
) -> tuple[list[EncodedRow], list[tuple[int, int, int]]]:
    """Shortens the rows that are too long.

    Args:
        rows: One row for each text.
        truncation: Maximum length and strategy.
        overflowing: Whether to split long texts into chunks instead of dropping tokens.

    Returns:
        The rows, with the chunks of a text in sequence, and `(index of the text, tokens lost, tokens in total)` for
        each text that lost tokens; the total includes special tokens, as the maximum length does.

    Raises:
        InputError: no room is left for the text.
    """
    result: list[EncodedRow] = []
    losses: list[tuple[int, int, int]] = []
    for row in rows:
        if len(row) <= truncation.limit:
            result.append(row)
            continue
        sequence_ids = _sequence_ids(row.tokens)
        row_chunks = chunks(sequence_ids, truncation)
        if not overflowing:
            row_chunks = row_chunks[:1]
            losses.append((row.sample, len(sequence_ids) - len(row_chunks[0]), len(sequence_ids)))
        result += [EncodedRow(row.tokens, positions, row.sample) for positions in row_chunks]
    return result, losses
