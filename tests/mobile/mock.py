"""The mock model of the vectors: its logits are a hash of the tokens so far, which every language computes exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

_WORD = 0xFFFFFFFF
State = list[tuple[int, list[int]]]
"""For each row: the hash of the encoder's input, and the tokens of the decoder."""


def mix(hashed: Any, value: Any) -> Any:
    """Returns the hash of a hash and a value, both unsigned integers of 32 bits or arrays of uint64."""
    hashed = (hashed ^ value) * 0x9E3779B1 & _WORD
    hashed = (hashed ^ (hashed >> 15)) * 0x85EBCA77 & _WORD
    return hashed ^ (hashed >> 13)


def _mixed(hashed: int, values: Iterable[int]) -> int:
    for value in values:
        hashed = mix(hashed, int(value))
    return hashed


@dataclass(frozen=True)
class Mock:
    """A mock model.

    Attributes:
        seed: Start of the hash.
        order: Number of the last tokens that the logits depend on.
        vocab_size: Number of logits.
        capacity: Number of slots of the cache.
        encoder_capacity: Longest input of the encoder; `None` for a decoder.
    """

    seed: int
    order: int
    vocab_size: int
    capacity: int
    encoder_capacity: int | None = None

    def to_json(self) -> dict[str, int]:
        """Returns the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def start(self, encoder: Sequence[int] | None) -> int:
        """Returns the hash before the decoder's first token."""
        return self.seed if encoder is None else _mixed(self.seed, [*encoder, _WORD])

    def logits(self, start: int, history: Sequence[int]) -> np.ndarray:
        """Returns the logits `(V,)` after the last token of a history."""
        hashed = mix(_mixed(start, history[-self.order :]), np.arange(self.vocab_size, dtype=np.uint64))
        return ((hashed >> 8).astype(np.float32) / np.float32(1 << 20) - np.float32(8)).astype(np.float32)


class MockStep:
    """The mock model behind the interface of an engine; see `kerasformer.generation.Step`."""

    step_lengths = (1,)

    def __init__(self, model: Mock) -> None:
        self.model = model
        self.is_encoder_decoder = model.encoder_capacity is not None
        self.capacity, self.vocab_size = model.capacity, model.vocab_size
        self.input_vocab_size = 1 << 20

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        rows = [row[real > 0].tolist() for row, real in zip(inputs, mask, strict=True)]
        if self.is_encoder_decoder:
            return [(self.model.start(row), []) for row in rows]
        return [(self.model.start(None), row[:-1]) for row in rows]

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        following = [(start, [*ids, int(token)]) for (start, ids), token in zip(state, tokens[:, 0], strict=True)]
        return np.stack([self.model.logits(*row)[None] for row in following]), following

    def reorder(self, state: State, rows: np.ndarray) -> State:
        return [state[row] for row in rows]

    def rewind(self, state: State, count: int) -> State:
        return [(start, ids[: len(ids) - count]) for start, ids in state]

    def fork(self, state: State) -> State:
        return list(state)
