"""An engine that several threads use at the same time: one thread runs it, and texts take turns step by step."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

import numpy as np

from kerasformer.engines import JointStep, ResumableStep, SavedState, State, Step, continues_prompts, read_by_start
from kerasformer.errors import InputError, KerasformerError
from kerasformer.generation import WrappedStep

CHUNK = 128
"""Number of tokens of a prompt that are read between two steps of other texts."""
_PATIENCE = 0.5
"""Time to wait for the texts of the last step, relative to its duration. A text that has ended costs this once."""


class _Call:
    """A call of the engine that a thread waits for."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._future: Future[Any] = Future()
        self.function, self.arguments = function, arguments

    def run(self) -> None:
        """Calls the engine."""
        try:
            self.finish(self.function(*self.arguments))
        except BaseException as error:
            self.fail(error)

    def finish(self, result: object) -> None:
        """Passes the result to the thread that waits."""
        self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Raises an error in the thread that waits, unless it has a result."""
        if not self._future.done():
            self._future.set_exception(error)

    def result(self) -> Any:
        """Waits for the result."""
        try:
            return self._future.result()
        finally:
            self.arguments = ()  # a state holds the memory of its caches


class SharedStep(WrappedStep):
    """Implements `Step` for several threads.

    All texts that are ready for their next token get it in one step, if the engine can do this (`JointStep`), and
    otherwise one after another.

    Args:
        engine: The engine; no other thread may use it.
        observe: Called with the number of texts of each step.
    """

    def __init__(self, engine: Step, observe: Callable[[int], object]) -> None:
        super().__init__(engine)
        self._observe = observe
        self._condition = threading.Condition()
        self._steps: list[_Call] = []
        self._others: deque[_Call] = deque()
        self._closed = False
        self._expected, self._patience = 1, 0.0
        self._thread = threading.Thread(target=self._run, name="kerasformer-engine", daemon=True)
        self._thread.start()

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """Reads the prompt; see `Step.start`."""
        return self._other(self.engine.start, inputs, mask)

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Reads the next tokens; see `Step.step`."""
        call = _Call(self.engine.step, tokens, state)
        result: tuple[np.ndarray, State] = self._wait(call, is_step=tokens.ndim == 2 and tokens.shape[1] == 1)
        return result

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """Selects rows; see `Step.reorder`."""
        return self._other(self.engine.reorder, state, rows)

    def rewind(self, state: State, count: int) -> State:
        """Removes the last tokens; see `Step.rewind`."""
        return self._other(self.engine.rewind, state, count)

    def fork(self, state: State) -> State:
        """Copies a state; see `Step.fork`."""
        return self._other(self.engine.fork, state)

    def close(self) -> None:
        """Ends the thread; calls that wait raise an error."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()

    def _other(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._wait(_Call(function, *arguments), is_step=False)

    def _wait(self, call: _Call, is_step: bool) -> Any:
        with self._condition:
            if self._closed:
                raise InputError("The server is stopping. Expected: a running engine. Try again later")
            (self._steps if is_step else self._others).append(call)
            self._condition.notify()
        return call.result()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._steps or self._others or self._closed)
                if self._steps and self._patience:
                    # Texts of the last step are about to be ready, too: their threads choose tokens one after another.
                    self._condition.wait_for(
                        lambda: len(self._steps) >= self._expected or self._closed, timeout=self._patience
                    )
                if self._closed:
                    break
                steps, self._steps = self._steps, []
                other = self._others.popleft() if self._others else None
            if steps:
                try:
                    self._step(steps)
                except BaseException as error:  # the thread goes on for the others
                    for call in steps:
                        call.fail(error)
            if other is not None:
                other.run()
            del steps, other  # and the caches that they hold, before the thread waits
        for call in (*self._steps, *self._others):
            call.fail(InputError("The server is stopping. Expected: a running engine. Try again later"))

    def _step(self, calls: list[_Call]) -> None:
        """Computes the next token of several texts."""
        if not isinstance(self.engine, JointStep):
            for call in calls:
                self._observe(1)
                call.run()
            return
        self._observe(len(calls))
        start = time.monotonic()
        results = self._results(self.engine, calls)
        with self._condition:  # the next step can have these texts, and those that became ready meanwhile
            self._expected = len(calls) + len(self._steps)
            self._patience = _PATIENCE * (time.monotonic() - start) if self._expected > 1 else 0.0
        for call, result in zip(calls, results, strict=True):
            if isinstance(result, BaseException):
                call.fail(result)
            else:
                call.finish(result)

    @staticmethod
    def _results(engine: JointStep, calls: list[_Call]) -> list[object]:
        """Returns the result of each call, or its error."""
        try:
            return [*engine.step_together([call.arguments for call in calls])]
        except KerasformerError as error:
            if len(calls) == 1:
                return [error]
            # Such as the full cache of one text; none was read.
            return [result for call in calls for result in SharedStep._results(engine, [call])]
        except BaseException as error:
            return [error] * len(calls)


class ResumableSharedStep(SharedStep):
    """`SharedStep` of an engine that can continue earlier texts; arguments as for `SharedStep`.

    A prompt is read in chunks between the steps of other texts, and the chunks do not depend on them.
    """

    def __init__(self, engine: ResumableStep, observe: Callable[[int], object]) -> None:
        super().__init__(engine, observe)
        self._resumable = engine

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """Reads the prompt; see `Step.start`."""
        ids = read_by_start(self, inputs[0][mask[0] > 0])
        if len(inputs) > 1 or not continues_prompts(self) or not CHUNK < len(ids) < self.capacity:
            return super().start(inputs, mask)
        first = ids[None, : CHUNK + 1]
        return self.resume(super().start(first, np.ones_like(first)), CHUNK, ids[CHUNK:])

    def resume(self, state: State, length: int, tokens: np.ndarray) -> State:
        """Continues an earlier text; see `ResumableStep.resume`."""
        while True:
            part, tokens = tokens[:CHUNK], tokens[CHUNK:]
            state = self._other(self._resumable.resume, state, length, part)
            length += len(part)
            if not len(tokens):
                return state

    def save(self, state: State) -> SavedState:
        """Copies a state; see `ResumableStep.save`."""
        saved: SavedState = self._other(self._resumable.save, state)
        return saved

    def restore(self, saved: SavedState) -> State:
        """Returns a state from a copy; see `ResumableStep.restore`."""
        return self._other(self._resumable.restore, saved)

    def version(self) -> Hashable:
        """Returns the version of the weights; see `ResumableStep.version`."""
        return self._resumable.version()

    def identity(self) -> str:
        """Returns a digest of the model; see `ResumableStep.identity`."""
        return self._resumable.identity()


def shared_step(engine: Step, observe: Callable[[int], object] = lambda rows: None) -> SharedStep:
    """Returns an engine for several threads; arguments as for `SharedStep`."""
    if isinstance(engine, ResumableStep):
        return ResumableSharedStep(engine, observe)
    return SharedStep(engine, observe)
