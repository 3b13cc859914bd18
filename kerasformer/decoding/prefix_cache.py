"""Reuse of the caches of a text for a text that starts with the same tokens, as the turns of a conversation do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from kerasformer.decoding.protocols import ResumableStep, State, Step
from kerasformer.errors import InputError


@dataclass(frozen=True)
class _Tracked:
    """A state of an engine, and the tokens in its caches.

    Attributes:
        state: State of the engine.
        ids: Tokens in the caches, int32 `(N,)`, of a single text; `None` for several texts.
    """

    state: State
    ids: np.ndarray | None


@dataclass(frozen=True)
class _Kept:
    """The caches of the last text.

    Attributes:
        step: Engine that the caches belong to.
        version: Version of the engine's weights when the text was read.
        tracked: State and tokens of the text.
    """

    step: Step
    version: Hashable
    tracked: _Tracked


class PrefixCache:
    """Keeps the caches of the last text; a text with the same first tokens is only read from where it differs.

    A thread that finds no caches, because another one uses them, reads its text as a whole.

    Attributes:
        reused: Number of tokens of the last text that were not read again.
        read: Number of tokens of the last prompt that were read.
    """

    def __init__(self) -> None:
        self.reused = self.read = 0
        self._kept: _Kept | None = None
        self._lock = Lock()

    @contextmanager
    def reused_by(self, step: Step) -> Iterator[Step]:
        """Provides an engine that continues the kept caches; at the end, its caches are kept instead.

        Args:
            step: The engine. One that cannot resume a text is provided unchanged.
        """
        if not isinstance(step, ResumableStep) or step.is_encoder_decoder:
            yield step
            return
        version = step.version()
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and (kept.step is not step or kept.version != version):
            kept = None
        reusing = _Reusing(step, None if kept is None else kept.tracked)
        try:
            yield reusing
        finally:
            self.reused, self.read = reusing.reused, reusing.read
            if reusing.latest is not None:
                with self._lock:
                    self._kept = _Kept(step, version, reusing.latest)


class _Reusing:
    """Implements `Step` for one run of generation: `start` continues the caches of an earlier text if it can.

    Attributes:
        latest: State of the single text that was processed last, or of the earlier text; `None` if its caches are gone.
        reused: Number of tokens that `start` did not read.
        read: Number of tokens that `start` read.
    """

    def __init__(self, step: ResumableStep, latest: _Tracked | None) -> None:
        self.step_of_engine, self.latest = step, latest
        self.is_encoder_decoder, self.capacity = step.is_encoder_decoder, step.capacity
        self.vocab_size, self.step_lengths = step.vocab_size, step.step_lengths
        self.reused = self.read = 0

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _Tracked:
        """Reads the prompt, or only its last part; see `Step.start`."""
        ids = inputs[0][mask[0] > 0][:-1] if len(inputs) == 1 and inputs.shape[1] <= self.capacity else None
        common = 0 if ids is None or self.latest is None else _common(ids, self.latest.ids)
        state = None
        if ids is not None and self.latest is not None and common:
            try:
                state = self.step_of_engine.resume(self.latest.state, common, ids[common:])
            except InputError:  # the keys of the common tokens are outside a sliding window
                common = 0
        if state is None:
            state = self.step_of_engine.start(inputs, mask)
        self.reused, self.read = common, int((mask > 0).sum()) - len(mask) - common
        return self._tracked(state, ids)

    def step(self, tokens: np.ndarray, state: _Tracked) -> tuple[np.ndarray, _Tracked]:
        """See `Step.step`."""
        logits, new = self.step_of_engine.step(tokens, state.state)
        return logits, self._tracked(new, None if state.ids is None else np.append(state.ids, tokens[0]))

    def reorder(self, state: _Tracked, rows: np.ndarray) -> _Tracked:
        """See `Step.reorder`."""
        kept = state.ids if np.array_equal(rows, [0]) else None
        return self._tracked(self.step_of_engine.reorder(state.state, rows), kept, replaces=state.ids is not None)

    def rewind(self, state: _Tracked, count: int) -> _Tracked:
        """See `Step.rewind`."""
        ids = None if state.ids is None else state.ids[: len(state.ids) - count]
        return self._tracked(self.step_of_engine.rewind(state.state, count), ids)

    def fork(self, state: _Tracked) -> _Tracked:
        """See `Step.fork`."""
        return _Tracked(self.step_of_engine.fork(state.state), None)

    def _tracked(self, state: State, ids: np.ndarray | None, replaces: bool = False) -> _Tracked:
        tracked = _Tracked(state, ids)
        if ids is not None:
            self.latest = tracked
        elif replaces:  # the caches of the single text were passed on
            self.latest = None
        return tracked


def _common(ids: np.ndarray, others: Any) -> int:
    """Returns the number of first tokens that two texts have in common."""
    length = min(len(ids), len(others))
    differences = np.flatnonzero(ids[:length] != others[:length])
    return int(differences[0]) if len(differences) else length
