"""Protocols that every engine implements (Keras, LiteRT, ONNX Runtime, SavedModel), with NumPy arrays in and out.

Shape letters: `B` batch, `T` tokens of one call, `P` prompt length, `S` cache capacity, `V` vocabulary.

Called by `generation`, which knows engines by these protocols alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kerasformer.bundle.adapters import Adapter
from kerasformer.engines.saved_state import SavedState
from kerasformer.errors import CapacityError

DEFAULT_CAPACITY = 1024
"""Default number of slots of a decoder cache."""
MIN_REWIND = 16
"""Number of tokens of `step` that every engine can discard. An engine whose caches are little longer than a sliding
window may refuse to discard more."""

State = Any
"""Opaque state of an engine between steps. A state is used once: `step`, `reorder` and `rewind` reuse its buffers and
return a new state."""


def default_capacity(limit: int | None) -> int:
    """Returns the default number of cache slots of a model with `limit` positions (`None`: unlimited)."""
    return DEFAULT_CAPACITY if limit is None else min(limit, DEFAULT_CAPACITY)


@runtime_checkable
class Forward(Protocol):
    """A model that computes its outputs in one call, such as an encoder with a task head."""

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs of a batch.

        Args:
            inputs: `(B, T)` int32 arrays under their Hugging Face names.
        Returns:
            Named float32 arrays.
        """
        ...


@runtime_checkable
class Step(Protocol):
    """A generative model: `start` reads a prompt, and each `step` continues it.

    Attributes:
        is_encoder_decoder: Whether `start` reads an encoder input, so that the first `step` reads the start token.
        capacity: Number of slots of the decoder cache, for prompt and generated tokens together.
        vocab_size: Vocabulary size, the last dimension of the logits.
        step_lengths: Values of `T` that `step` accepts, in ascending order, always including 1.
    """

    is_encoder_decoder: bool
    capacity: int
    vocab_size: int
    step_lengths: tuple[int, ...]

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """Reads the prompt.

        Args:
            inputs: `(B, P)` int32 ids. A decoder receives a left-padded prompt and reads its part `read_by_start`; the
                caller passes the last token to the first `step`. An encoder-decoder receives the right-padded encoder
                input, encodes it and fills its cross-attention caches.
            mask: `(B, P)` int32, 1 for real tokens.
        Raises:
            CapacityError: the prompt does not fit into the cache.
        """
        ...

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Reads the next `T` tokens of each row.

        Args:
            tokens: `(B, T)` int32, where `T` is one of `step_lengths`. The ids are not checked: they are chosen from
                logits, or were checked by `decoding.arrays` when the text was read. Reading several tokens at once is
                faster and gives the same logits as reading them one by one, up to rounding (see `docs/bundles.md` for
                int8).
            state: Unusable afterwards, unless an error is raised.

        Returns:
            Logits `(B, T, V)` float32 after each token, and the next state.

        Raises:
            CapacityError: the tokens do not fit into the cache; none of them was read.
            InputError: tokens of a wrong shape.
        """
        ...

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """Returns the state of the given rows, for example after a step of beam search or when rows have ended.

        Engines avoid copying rows that only move; repeated rows are copied.

        Args:
            state: Unusable afterwards.
            rows: `(B',)` integers, in the new order; rows may be repeated or omitted.
        """
        ...

    def rewind(self, state: State, count: int) -> State:
        """Returns the state before the last `count` tokens that `step` has read, for speculative decoding.

        Raises:
            InputError: `step` has read fewer than `count` tokens, or the engine no longer has the keys of the remaining
                text. It always has them for `MIN_REWIND` tokens and for as many as one step reads, unless `can_rewind`
                is false for it.
        """
        ...

    def fork(self, state: State) -> State:
        """Returns an independent copy; both states stay usable."""
        ...


def input_vocab_size(step: Step) -> int:
    """Returns the number of ids of prompts, the attribute `input_vocab_size`; by default that of the vocabulary.

    An encoder-decoder may have separate vocabularies for the text that it reads and for the one that it writes.
    """
    return int(getattr(step, "input_vocab_size", step.vocab_size))


def read_by_start(step: Step, prompts: np.ndarray) -> np.ndarray:
    """Returns the part of prompts, or of their mask, `(…, P)`, that is in a decoder's cache after `Step.start`.

    It is all but the last token, which the first step reads, since only steps compute logits. The decoder of an
    encoder-decoder has read nothing.
    """
    return prompts[..., :0] if step.is_encoder_decoder else prompts[..., :-1]


def check_capacity(step: Step, length: int) -> None:
    """Checks that a number of tokens fits into the cache.

    Raises:
        CapacityError: `length` exceeds the capacity.
    """
    if length > step.capacity:
        raise CapacityError(
            f"The text is longer than the cache. Expected at most {step.capacity} tokens. Received: {length}. Shorten "
            "it, request fewer tokens, or load or export the model with a larger capacity"
        )


def continues_prompts(step: Step) -> bool:
    """Returns whether the state after the first tokens of a prompt is a part of the state after the whole prompt.

    It is not if the engine's attribute `prefix_lm` is true: the tokens of a prompt then attend to each other in both
    directions, so that a prompt is read as a whole, and no earlier text can be continued. It is false by default.
    """
    return not (step.is_encoder_decoder or getattr(step, "prefix_lm", False))


def can_rewind(step: Step | Forward) -> bool:
    """Returns whether an engine can discard tokens, its attribute `rewinds`; not if a layer has a recurrent state."""
    return bool(getattr(step, "rewinds", True))


@runtime_checkable
class ResumableStep(Step, Protocol):
    """An engine whose states can be kept: to continue another text that begins the same, and outside of the engine."""

    def resume(self, state: State, length: int, tokens: np.ndarray) -> State:
        """Returns the state of a text that begins with the same tokens as an earlier one.

        Args:
            state: State of a single text without padding. Unusable afterwards, unless an error is raised.
            length: Number of first tokens to keep, at least 1.
            tokens: `(N,)` int32, the tokens after them; no logits are computed. `N` may be 0. The ids are not checked.

        Raises:
            InputError: the engine cannot discard so many tokens, because some layers keep only the last ones.
            CapacityError: the tokens do not fit into the cache.
        """
        ...

    def save(self, state: State) -> SavedState:
        """Returns a copy of a state, which stays usable. It takes as much memory as the slots in use.

        Steps after a restored state have the logits of steps after this one, bit for bit.
        """
        ...

    def restore(self, saved: SavedState) -> State:
        """Returns a state that is independent of others restored from the same copy; memory is copied, no token read.

        Raises:
            InputError: the state was saved by an engine of another model, or before its weights or its adapter were
                changed.
            CapacityError: the text does not fit into the cache.
        """
        ...

    def version(self) -> Hashable:
        """Returns a value that changes with the weights and the adapter, which make earlier caches invalid.

        Its `repr` must be the same in every process, since it is part of the identity.
        """
        ...

    def identity(self) -> str:
        """Returns a digest of the model, its weights and the layout of its caches, the same in every process."""
        ...


@runtime_checkable
class AdaptableEngine(Protocol):
    """An engine whose model can run with a low-rank adapter."""

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter instead of the one that it has.

        The caches of texts that were read before are not valid afterwards: `ResumableStep.version` changes.

        Args:
            adapter: The adapter; `None` for the base model.
        Raises:
            CheckpointError: the adapter does not match the model, which is unchanged; the message lists all mismatches.
        """
        ...


@runtime_checkable
class GreedyStep(Step, Protocol):
    """An engine that can choose the most probable tokens by itself, so that one call generates several."""

    def continue_greedily(
        self, tokens: np.ndarray, state: State, count: int, ended: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, State]:
        """Continues each row with its most probable tokens, those that `step` and the greatest logit give one by one.

        Args:
            tokens: `(B, 1)` int32, the next token of each row.
            state: Unusable afterwards, unless an error is raised.
            count: Maximum number `N` of new tokens, for which the cache must have room.
            ended: `(B,)` boolean, true for rows whose new tokens are not needed.
            ends: `(E,)` int32, end tokens. There are fewer than `count` tokens if all rows have ended before.

        Returns:
            New tokens `(B, N)` int32, their logits `(B, N)` float32, and the next state, which has read all new tokens
            but the last. Tokens of a row after its end have no meaning.

        Raises:
            CapacityError: the tokens do not fit into the cache; none of them was read.
        """
        ...


@runtime_checkable
class JointStep(Step, Protocol):
    """An engine whose texts have separate positions, so that one step continues texts of different lengths."""

    def step_together(self, texts: Sequence[tuple[np.ndarray, State]]) -> list[tuple[np.ndarray, State]]:
        """Reads the next token of texts with separate states; the result of each is that of `step`, to the bit.

        Args:
            texts: Tokens `(B, 1)` and state of each text or batch of texts. The states are unusable afterwards, unless
                an error is raised.

        Returns:
            Logits `(B, 1, V)` and the next state of each.

        Raises:
            CapacityError: a token does not fit into its cache; none of them was read.
            InputError: tokens of a wrong shape.
        """
        ...
