"""Reuse of the caches of a text for a text that starts with the same tokens, as the turns of a conversation do."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

import numpy as np

from kerasformer.basics.arguments import check, integer
from kerasformer.engines.protocols import ResumableStep, State, Step, continues_prompts, read_by_start
from kerasformer.engines.saved_state import SavedState
from kerasformer.errors import CapacityError, InputError, KerasformerError
from kerasformer.generation.wrapped_step import WrappedStep

DEFAULT_BYTES = 2**28
"""Default memory of the copies of a `PrefixCache`, 256 MiB."""
_MIN_COPIED = 32
"""Number of tokens below which reading again takes no longer than a copy."""
_COPIES_PER_READ = 32
"""Number of tokens that can be copied while one is read, at least."""


class TextCache(Protocol):
    """Keeps the caches of texts from one call to the next."""

    def reused_by(self, step: Step) -> AbstractContextManager[Step]:
        """Provides an engine that continues the kept caches; at the end, its caches are kept."""
        ...


@dataclass(frozen=True)
class _Tracked:
    """A state of an engine, and the tokens in its caches.

    Attributes:
        inner: State of the engine.
        ids: Tokens in the caches, int32 `(N,)`, of a single text; `None` for several texts.
    """

    inner: State
    ids: np.ndarray | None


class PrefixCache:
    """Keeps the caches of several texts; a text with the same first tokens is only read from where it differs.

    The caches of the last text stay in the engine, so that a text that continues it copies nothing. Those of earlier
    texts are copies without unused memory, of which the least recently used are dropped. Several threads may use it; a
    thread that finds no caches, because others use them, reads its text as a whole.

    Args:
        max_bytes: Memory for the copies, in addition to the caches of the last text; 0 for no copies.

    Attributes:
        reused: Number of tokens of the last text that were not read again.
        read: Number of tokens of the last prompt that were read.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = check("max_bytes", max_bytes, integer(0))
        self.reused = self.read = 0
        self._last: _Tracked | None = None
        self._engine: tuple[Step, Hashable] | None = None  # and the version of its weights, to which all caches belong
        self._copies: list[SavedState] = []  # the least recently used first
        self._lock = Lock()

    @property
    def num_bytes(self) -> int:
        """Memory of the copies in bytes."""
        return sum(copy.num_bytes for copy in self._copies)

    @contextmanager
    def reused_by(self, step: Step) -> Iterator[Step]:
        """Provides an engine that continues the kept caches; at the end, its caches are kept, too.

        Args:
            step: The engine. One that cannot resume a text is provided unchanged.
        """
        if not isinstance(step, ResumableStep) or not continues_prompts(step):
            yield step
            return
        version = step.version()
        with self._lock:
            last, self._last = self._last, None
            if self._engine != (step, version):
                self._engine, self._copies, last = (step, version), [], None
            copies = tuple(self._copies)

        def keep(copy: SavedState) -> None:
            with self._lock:
                if self._engine == (step, version):
                    self._add(copy)

        reusing = Reusing(step, last, copies, keep if self.max_bytes else None)
        del last, copies  # `reusing` releases those that it does not need
        try:
            yield reusing
        finally:
            self.reused, self.read = reusing.reused, reusing.read
            other: _Tracked | None = None
            with self._lock:
                # Unless a later text has found another engine or other weights.
                if reusing.latest is not None and self._engine == (step, version):
                    other, self._last = self._last, reusing.latest
            if other is not None:
                reusing.keep_copy(other)  # of another thread

    def _add(self, copy: SavedState) -> None:
        """Adds a copy, or marks it as used; drops copies that it continues, and the oldest beyond the memory."""
        if copy.num_bytes > self.max_bytes:
            return
        self._copies = [other for other in self._copies if _common(copy.ids, other.ids) < _length(other.ids)]
        self._copies.append(copy)
        while self.num_bytes > self.max_bytes:
            del self._copies[0]


class Reusing(WrappedStep):
    """Implements `Step` for one run of generation: `start` continues the caches of an earlier text if it can.

    Args:
        engine: The engine.
        latest: The last text, whose caches may be changed; optional.
        copies: Copies of earlier texts, with their tokens.
        keep: Receives copies to keep, and those that were used; `None` to make none.

    Attributes:
        latest: State of the single text that was processed last, or of the earlier text; `None` if its caches are gone.
        reused: Number of tokens that `start` did not read.
        read: Number of tokens that `start` read.
    """

    def __init__(
        self,
        engine: ResumableStep,
        latest: _Tracked | None,
        copies: Sequence[SavedState] = (),
        keep: Callable[[SavedState], None] | None = None,
    ) -> None:
        super().__init__(engine)
        self._resumable, self.latest = engine, latest
        self.reused = self.read = 0
        self._copies, self._keep = copies, keep

    @property
    def num_reused(self) -> int:
        """See `WrappedStep.num_reused`."""
        return self.reused

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> _Tracked:
        """Reads the prompt, or only its last part; see `Step.start`."""
        single = len(inputs) == 1 and inputs.shape[1] <= self.capacity
        ids = read_by_start(self, inputs[0][mask[0] > 0]) if single else None
        common, state = (0, None) if ids is None else self._resumed(ids)
        if state is None:
            state = self.engine.start(inputs, mask)
        self._copies = ()  # while the text is generated, the cache may drop them to free their memory
        self.reused, self.read = common, int((read_by_start(self, mask) > 0).sum()) - common
        return self._tracked(state, ids)

    def _resumed(self, ids: np.ndarray) -> tuple[int, State | None]:
        """Returns the number of first tokens of a text that were in earlier caches, and its state, or 0 and `None`."""
        latest, step = self.latest, self._resumable
        texts: list[_Tracked | SavedState] = [] if latest is None else [latest]
        # With equally many common tokens, the last text and then the most recent copy.
        for text in sorted(texts + [*reversed(self._copies)], key=lambda text: -_common(ids, text.ids)):
            common = _common(ids, text.ids)
            if not common or (isinstance(text, SavedState) and common * _COPIES_PER_READ < _length(text.ids)):
                continue
            self._set_aside(common if text is latest else 0)
            try:
                if isinstance(text, SavedState):
                    state = step.resume(step.restore(text), common, ids[common:])
                    if self._keep is not None:
                        self._keep(text)
                else:
                    state = step.resume(text.inner, common, ids[common:])
            except (InputError, CapacityError):  # keys outside a sliding window; a text from an engine with more slots
                continue
            return common, state
        self._set_aside(0)
        return 0, None

    def _set_aside(self, common: int) -> None:
        """Copies the caches of the last text, once, unless few of its tokens are lost after the common ones."""
        latest, self.latest = self.latest, None
        if latest is not None and _length(latest.ids) - common > _MIN_COPIED:
            self.keep_copy(latest)

    def keep_copy(self, text: _Tracked) -> None:
        """Passes a copy of a single text to `keep`."""
        if self._keep is not None and text.ids is not None:
            self._keep(replace(self._resumable.save(text.inner), ids=text.ids))

    def step(self, tokens: np.ndarray, state: _Tracked) -> tuple[np.ndarray, _Tracked]:
        """See `Step.step`."""
        try:
            logits, new = self.engine.step(tokens, state.inner)
        except KerasformerError:  # nothing was read
            raise
        except BaseException:  # an interrupted step leaves its caches undefined
            if state is self.latest:
                self.latest = None
            raise
        return logits, self._tracked(new, None if state.ids is None else np.append(state.ids, tokens[0]))

    def reorder(self, state: _Tracked, rows: np.ndarray) -> _Tracked:
        """See `Step.reorder`."""
        if np.array_equal(rows, [0]):
            return self._tracked(self.engine.reorder(state.inner, rows), state.ids)
        if state.ids is not None:  # the caches of the single text are passed on
            self.keep_copy(state)
            self.latest = None
        return self._tracked(self.engine.reorder(state.inner, rows), None)

    def rewind(self, state: _Tracked, count: int) -> _Tracked:
        """See `Step.rewind`."""
        ids = None if state.ids is None else state.ids[: len(state.ids) - count]
        return self._tracked(self.engine.rewind(state.inner, count), ids)

    def fork(self, state: _Tracked) -> _Tracked:
        """See `Step.fork`."""
        return _Tracked(self.engine.fork(state.inner), None)

    def _tracked(self, state: State, ids: np.ndarray | None) -> _Tracked:
        tracked = _Tracked(state, ids)
        if ids is not None:
            self.latest = tracked
        return tracked


def _length(ids: np.ndarray | None) -> int:
    return 0 if ids is None else len(ids)


def _common(ids: np.ndarray | None, others: np.ndarray | None) -> int:
    """Returns the number of first tokens that two texts have in common; 0 if one of them is unknown."""
    if ids is None or others is None:
        return 0
    length = min(len(ids), len(others))
    differences = np.flatnonzero(ids[:length] != others[:length])
    return int(differences[0]) if len(differences) else length
