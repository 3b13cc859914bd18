"""Turns of requests for different adapters of one model, since an engine has one adapter at a time."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from kerasformer.bundle import Adapter
from kerasformer.engines import AdaptableEngine
from kerasformer.tools.server.jobs import POLL, Compute, Job
from kerasformer.tools.server.replies import overloaded


class AdapterTurns:
    """Requests with the same adapter run together; those with another one wait until these have ended.

    Requests enter in the order of their arrival, so that none waits forever.

    Args:
        engine: Engine of the model, which has no adapter yet.
        adapters: Adapters by name.
    Raises:
        InputError: the engine runs no adapters.
        CheckpointError: an adapter belongs to another model.
    """

    def __init__(self, engine: AdaptableEngine, adapters: Mapping[str, Adapter]) -> None:
        self._engine, self._adapters = engine, dict(adapters)
        self._changed = threading.Condition()
        self._current: object = None
        self._running, self._waiting = 0, list[object]()
        for adapter in self._adapters.values():
            engine.set_adapter(adapter)
        engine.set_adapter(None)

    def taking(self, name: str | None, compute: Compute) -> Compute:
        """Returns a computation that waits for its turn.

        Args:
            name: Name of the adapter; `None` for the base model.
            compute: Computes the events of the job.
        """

        def run(job: Job) -> Generator[object, None, None]:
            with self._turn(name, job):
                yield from compute(job)

        return run

    @contextmanager
    def _turn(self, name: str | None, job: Job) -> Generator[None, None, None]:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or (self._running and self._current != name):
                    if job.remaining <= 0 or job.is_cancelled():
                        raise overloaded("The server is busy with other adapters of this model. Try again later")
                    self._changed.wait(min(POLL, job.remaining))
                if self._current != name:
                    self._current = ticket  # neither of both, if the next line fails
                    self._engine.set_adapter(None if name is None else self._adapters[name])
                    self._current = name
                self._running += 1
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
