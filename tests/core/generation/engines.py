"""Engines for tests: a toy model in NumPy, and PyTorch models of `transformers` that implement `Step`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerasformer.engines import Step
from kerasformer.errors import CapacityError
from kerasformer.generation import Steps, prepare


@dataclasses.dataclass
class Rows:
    """State of a `Recomputing` engine: all tokens of each row. It can be used only once."""

    ids: np.ndarray
    mask: np.ndarray
    extra: Any = None
    used: bool = False

    def use(self) -> Rows:
        if self.used:
            raise RuntimeError("a state was used twice")
        self.used = True
        return self


class Recomputing:
    """A `Step` without a cache, which processes all tokens at each step; subclasses compute the logits."""

    is_encoder_decoder = False
    step_lengths: tuple[int, ...] = (1,)

    def __init__(self, vocab_size: int, capacity: int = 64) -> None:
        self.vocab_size = vocab_size
        self.capacity = capacity
        self.batches: list[int] = []
        self.reorders = 0

    def logits(self, rows: Rows) -> np.ndarray:
        raise NotImplementedError

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        if inputs.shape[1] > self.capacity:
            raise CapacityError("too long")
        assert inputs.dtype == np.int32 and mask.dtype == np.int32
        assert (np.diff(mask, axis=1) >= 0).all(), "prompts must be left-padded"
        return Rows(inputs[:, :-1], mask)

    def step(self, tokens: np.ndarray, state: Rows) -> tuple[np.ndarray, Rows]:
        old = state.use()
        assert tokens.shape == (len(old.ids), 1) and tokens.dtype == np.int32
        self.batches.append(len(tokens))
        ids = np.concatenate([old.ids, tokens], axis=1)
        new_mask = np.ones((len(ids), ids.shape[1] - old.mask.shape[1]), np.int32)
        rows = Rows(ids, np.concatenate([old.mask, new_mask], axis=1), old.extra)
        assert ids.shape[1] <= self.capacity
        logits = self.logits(rows)
        logits.flags.writeable = False  # callers must not change the buffer of an engine
        return logits, rows

    def reorder(self, state: Rows, rows: np.ndarray) -> Rows:
        old = state.use()
        self.reorders += 1
        return Rows(old.ids[rows], old.mask[rows], None if old.extra is None else old.extra[rows])

    def rewind(self, state: Rows, count: int) -> Rows:
        old = state.use()
        return Rows(old.ids[:, :-count], old.mask[:, :-count], old.extra)

    def fork(self, state: Rows) -> Rows:
        return dataclasses.replace(state)


class Toy(Recomputing):
    """An engine whose logits depend on the last two tokens of a row, or are `of(tokens of the row)`."""

    def __init__(self, vocab_size: int = 12, capacity: int = 64, of: Callable[[np.ndarray], np.ndarray] | None = None):
        super().__init__(vocab_size, capacity)
        self.table = np.random.default_rng(0).normal(size=(2, vocab_size, vocab_size)).astype(np.float32)
        self.of = of or (lambda row: self.table[0, row[-1]] + self.table[1, row[-2:][0]])

    def logits(self, rows: Rows) -> np.ndarray:
        real = (ids[mask == 1] for ids, mask in zip(rows.ids, rows.mask, strict=True))
        return np.stack([np.asarray(self.of(row), np.float32) for row in real])[:, None]


class TorchDecoder(Recomputing):
    """A decoder of `transformers`."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.config.vocab_size)
        self.model = model

    def logits(self, rows: Rows) -> np.ndarray:
        import torch

        positions = np.maximum(rows.mask.cumsum(axis=1) - 1, 0)
        ids, mask, positions = (torch.tensor(each, dtype=torch.long) for each in (rows.ids, rows.mask, positions))
        with torch.no_grad():
            return self.model(ids, attention_mask=mask, position_ids=positions).logits[:, -1:].float().numpy()


class TorchEncoderDecoder(Recomputing):
    """An encoder-decoder of `transformers`; `extra` contains the encoder states and the mask, concatenated."""

    is_encoder_decoder = True

    def __init__(self, model: Any) -> None:
        super().__init__(model.config.vocab_size)
        self.model = model

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> Rows:
        import torch

        with torch.no_grad():
            encoded = self.model.encoder(torch.tensor(inputs), torch.tensor(mask)).last_hidden_state.numpy()
        empty = np.zeros((len(inputs), 0), np.int32)
        return Rows(empty, empty, np.concatenate([encoded, mask[..., None].astype(encoded.dtype)], axis=2))

    def logits(self, rows: Rows) -> np.ndarray:
        import torch

        encoded, mask = torch.tensor(rows.extra[..., :-1]), torch.tensor(rows.extra[..., -1])
        with torch.no_grad():
            return (
                self.model(encoder_outputs=(encoded,), attention_mask=mask, decoder_input_ids=torch.tensor(rows.ids))
                .logits[:, -1:]
                .float()
                .numpy()
            )


def tokens_of(step: Step, *arguments: Any) -> Iterator[np.ndarray]:
    """Returns the iterator over the tokens of each step; arguments as for `generate`."""
    return iter(Steps(prepare(step, *arguments)))


_: Step = Toy()  # the type checker verifies that the toy implements the protocol
