"""Requests that are computed in threads, while the event loop serves the clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.queues import FairQueue
from kerasformer.tools.server.replies import overloaded

_GRACE = 5.0
"""Seconds after the timeout in which a thread can still end a text by itself."""

POLL = 0.1
"""Seconds between two checks whether a job that waits for other texts was cancelled."""

Compute = Callable[["Job"], Generator[object, None, None]]
"""Computes the events of a job, in a thread."""


class Job:
    """A request that a thread computes, and its events for the event loop.

    Args:
        compute: Returns the events; called in the thread.
        timeout: Seconds from now to the end.

    Attributes:
        arrival: Time of the request, on the clock of `time.monotonic`.
    """

    def __init__(self, compute: Compute, timeout: float) -> None:
        self.arrival = time.monotonic()
        self._compute, self._deadline = compute, self.arrival + timeout
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[object, BaseException | None, bool]] = asyncio.Queue()
        self._cancelled = threading.Event()
        self._withdraw: Callable[[Job], object] = lambda job: None
        self._has_ended = False

    @property
    def remaining(self) -> float:
        """Seconds until the end."""
        return self._deadline - time.monotonic()

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the events any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ends the job unless it has ended: at once if it waits, and otherwise after the current token."""
        if not self._has_ended:
            self._cancelled.set()
            self._withdraw(self)

    def fail(self, error: BaseException) -> None:
        """Ends a job that was not computed."""
        self._has_ended = True
        self._put(error=error)

    def wait_in(self, withdraw: Callable[[Job], object]) -> None:
        """Sets what takes the job from a queue when it is cancelled."""
        self._withdraw = withdraw

    async def events(self) -> AsyncGenerator[Any, None]:
        """Yields the events; the job is cancelled if the caller stops before the end.

        Raises:
            ApiError: the timeout has passed before the first event.
            BaseException: the error of the computation.
        """
        try:
            while True:
                async with asyncio.timeout(max(0.0, self.remaining) + _GRACE):
                    event, error, is_last = await self._events.get()
                if error is not None:
                    raise error
                if is_last:
                    return
                yield event
        except TimeoutError:
            raise overloaded("The request was not answered in time. Try again later, or ask for less") from None
        finally:
            self.cancel()

    async def result(self) -> Any:
        """Returns the only event; see `events`."""
        (result,) = [event async for event in self.events()]
        return result

    def run(self) -> None:
        """Computes the events, in a thread."""
        try:
            with closing(self._compute(self)) as events:
                for event in events:
                    if self.is_cancelled():
                        return
                    self._put(event)
        except BaseException as error:
            self.fail(error)
        else:
            self._has_ended = True
            self._put(is_last=True)

    def _put(self, event: object = None, error: BaseException | None = None, is_last: bool = False) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, (event, error, is_last))


class _Rows:
    """The texts that may be generated at the same time.

    Args:
        limit: Their number.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._changed = threading.Condition()

    def take(self, count: int, job: Job) -> None:
        """Waits until this number of texts is free.

        Raises:
            ApiError: the time of the job has passed, or it was cancelled.
        """
        count = min(count, self._limit)
        with self._changed:
            while self._free < count and job.remaining > 0 and not job.is_cancelled():
                self._changed.wait(min(POLL, job.remaining))
            if self._free < count or job.remaining <= 0:
                raise overloaded("The server is busy, and the request has waited too long. Try again later")
            self._free -= count

    def release(self, count: int) -> None:
        """Ends this number of texts."""
        with self._changed:
            self._free += min(count, self._limit)
            self._changed.notify_all()


class Jobs:
    """The jobs of one model: some are computed, some wait, and more are refused.

    Args:
        model: Name of the model.
        limits: Limits of the server.
        measurements: Figures of the server.
    """

    def __init__(self, model: str, limits: Limits, measurements: Measurements) -> None:
        self._limits = limits
        self._executor = ThreadPoolExecutor(limits.max_running, thread_name_prefix="kerasformer-request")
        self._running, self._waiting = measurements.running.labels(model), measurements.waiting.labels(model)
        self._cancelled = measurements.cancelled.labels(model)
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._queue = FairQueue[Job]()
        self._rows = _Rows(limits.max_rows)

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, compute: Compute, rows: int = 1, client: str = "") -> Job:
        """Starts a job; the clients take turns if jobs wait.

        Args:
            compute: Computes its events.
            rows: Number of texts that it generates at the same time.
            client: Who has sent it. If too many jobs wait, the last one of the client with the most is refused instead
                of this one, unless this client has as many.
        Raises:
            ApiError: too many jobs wait.
        """
        job, refused = Job(self._counted(compute, rows), self._limits.timeout), None
        job.wait_in(self._withdraw)
        with self._lock:
            if len(self._jobs) >= self._limits.max_running + self._limits.max_waiting:
                refused = self._queue.surplus(client)
                if refused is None:
                    raise overloaded("The server is busy with other requests. Try again later")
                self._remove(refused)
            self._jobs.add(job)
            self._queue.put(client, job)
            self._waiting.inc()
        if refused is not None:
            refused.fail(overloaded("The server is busy with requests of other clients. Try again later"))
        self._executor.submit(self._run_next)
        return job

    def close(self) -> None:
        """Cancels all jobs and waits for their threads."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _counted(self, compute: Compute, rows: int) -> Compute:
        """Counts a job as running while it is computed."""

        def run(job: Job) -> Generator[Any, None, None]:
            try:
                self._rows.take(rows, job)
            finally:
                self._waiting.dec()
            self._running.inc()
            try:
                yield from compute(job)
            finally:
                self._running.dec()
                self._rows.release(rows)

        return run

    def _run_next(self) -> None:
        with self._lock:
            job = self._queue.take()
        if job is None:  # it was cancelled, or refused, while it waited
            return
        try:
            job.run()
        finally:
            with self._lock:
                self._jobs.discard(job)
            if job.is_cancelled():
                self._cancelled.inc()

    def _withdraw(self, job: Job) -> None:
        """Removes a job that is cancelled from the queue, if it waits there."""
        with self._lock:
            if self._remove(job):
                self._cancelled.inc()

    def _remove(self, job: Job) -> bool:
        if not self._queue.remove(job):
            return False
        self._jobs.discard(job)
        self._waiting.dec()
        return True
