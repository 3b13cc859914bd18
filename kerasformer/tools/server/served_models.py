"""The models of a server by name, which are opened and closed so that they fit into a budget of memory."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf

from kerasformer.bundle import Adapter, read_adapter
from kerasformer.errors import InputError
from kerasformer.files import sources
from kerasformer.tools.server.jobs import POLL
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import ApiError, overloaded
from kerasformer.tools.server.served_model import ServedModel, check_source, name_of, open_pipeline, served, size_of

_GIGABYTE = 1e9


@dataclass(eq=False)
class Entry:
    """A model that may be open.

    Attributes:
        name: Its name.
        open: Opens it.
        size: Memory of its weights in bytes; 0 without a budget.
        adapters: Names of its adapters.
        model: The model while it is open.
        requests: Number of requests that use it.
        last_used: Time of the last one, on the clock of `time.monotonic`.
        created: Time when it was added, in seconds since 1970.
    """

    name: str
    open: Callable[[], ServedModel]
    size: int = 0
    adapters: tuple[str, ...] = ()
    model: ServedModel | None = None
    requests: int = 0
    last_used: float = 0.0
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, model: ServedModel) -> Entry:
        """Returns the entry of an open model."""
        return cls(model.name, lambda: model, adapters=(*model.adapted,), model=model)

    def described(self, name: str) -> dict[str, object]:
        """Returns the description of the model, or of one of its adapters."""
        parent = {} if name == self.name else {"parent": self.name}
        return {"id": name, "object": "model", "created": self.created, "owned_by": "kerasformer", **parent}


class ServedModels:
    """The models of a server by name, and their adapters.

    With a budget, a model is opened for its first request. If its weights do not fit beside those of the others, the
    model that was not used for the longest time is closed; one that a request uses is never closed.

    Args:
        models: Open models, and those that are opened when they are needed.
        budget: Memory for the weights in bytes.
        patience: Seconds in which a request waits for memory until others have ended, and for models that are opened.
        measurements: Figures of the server; those of models that are opened and closed if not `None`.
    Raises:
        InputError: a model does not fit.
    """

    def __init__(
        self,
        models: Sequence[ServedModel | Entry],
        budget: float = inf,
        patience: float = 0.0,
        measurements: Measurements | None = None,
    ) -> None:
        entries = [model if isinstance(model, Entry) else Entry.of(model) for model in models]
        self._entries = {entry.name: entry for entry in entries}
        self._budget, self._patience, self._measurements = budget, patience, measurements
        self._opening = asyncio.Lock()
        self._is_waiting = False
        for entry in entries:
            if entry.size > budget:
                raise InputError(
                    f"The model '{entry.name}' does not fit into the memory budget. Expected: at least "
                    f"{_shown(entry.size)} for its weights. Received: {_shown(budget)}"
                )

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterates over the models that are open."""
        return iter([entry.model for entry in self._entries.values() if entry.model is not None])

    @property
    def descriptions(self) -> list[dict[str, object]]:
        """Descriptions of all models and adapters."""
        return [entry.described(name) for entry in self._entries.values() for name in (entry.name, *entry.adapters)]

    @property
    def names(self) -> list[str]:
        """Names of all models and adapters."""
        return [name for entry in self._entries.values() for name in (entry.name, *entry.adapters)]

    def described(self, name: str) -> dict[str, object]:
        """Returns the description of a model or an adapter.

        Raises:
            ApiError: there is none of this name.
        """
        return self._find(name).described(name)

    async def hold(self, name: str, held: ExitStack) -> ServedModel:
        """Returns a model, which is opened if it is not, and stays open until it is not held any more.

        Args:
            name: Name of a model or an adapter.
            held: Releases the model when it is closed.
        Raises:
            ApiError: there is no such model, or the models in use leave no memory for it.
        """
        entry = self._find(name)
        if entry.model is None or self._is_waiting:  # whoever waits for memory waits for requests that run, not for new
            end = time.monotonic() + self._patience
            try:
                async with asyncio.timeout(self._patience):
                    await self._opening.acquire()
            except TimeoutError:
                if entry.model is None:
                    raise overloaded(
                        f"The model '{entry.name}' is closed and waits behind others for memory, or for a model that "
                        "is being opened. Try again later"
                    ) from None
            else:
                try:
                    entry.model = await self._opened(entry, end)
                finally:
                    self._opening.release()
        entry.requests += 1
        held.callback(self._release, entry)
        entry.last_used = time.monotonic()
        return entry.model if name == entry.name else entry.model.adapted[name]

    async def _opened(self, entry: Entry, end: float) -> ServedModel:
        if entry.model is not None:
            return entry.model
        self._is_waiting = True
        try:
            await self._make_room(entry, end)
        finally:
            self._is_waiting = False
        model = await asyncio.to_thread(entry.open)
        self._count(entry, is_open=True)
        return model

    async def _make_room(self, entry: Entry, end: float) -> None:
        """Closes models until another one fits, or until a time on the clock of `time.monotonic`."""
        while True:
            opened = [each for each in self._entries.values() if each.model is not None]
            if sum(each.size for each in opened) + entry.size <= self._budget:
                return
            idle = [each for each in opened if not each.requests and each.model and not len(each.model.jobs)]
            if idle:
                await self._close(min(idle, key=lambda each: each.last_used))
            elif time.monotonic() > end:
                raise overloaded(
                    f"The model '{entry.name}' needs {_shown(entry.size)} of the {_shown(self._budget)} for models, "
                    f"and {', '.join(each.name for each in opened)} are in use. Try again later"
                )
            else:
                await asyncio.sleep(POLL)

    async def _close(self, entry: Entry) -> None:
        model, entry.model = entry.model, None
        if model is not None:
            await asyncio.to_thread(model.close)
            self._count(entry, is_open=False)
        del model
        await asyncio.to_thread(gc.collect)  # models of Keras refer to themselves

    def _count(self, entry: Entry, is_open: bool) -> None:
        if self._measurements is not None:
            self._measurements.open_models.labels(entry.name).set(is_open)

    def _release(self, entry: Entry) -> None:
        entry.requests -= 1
        entry.last_used = time.monotonic()

    def _find(self, name: str) -> Entry:
        for entry in self._entries.values():
            if name == entry.name or name in entry.adapters:
                return entry
        raise ApiError(
            404,
            f"The model '{name[:80]}' does not exist. Expected one of: {', '.join(self.names)}",
            param="model",
            code="model_not_found",
        )


def open_models(
    models: Sequence[str | os.PathLike[str]],
    limits: Limits,
    measurements: Measurements,
    num_threads: int | None = None,
    *,
    adapters: Sequence[str] = (),
    memory_budget: float | None = None,
) -> ServedModels:
    """Opens sources.

    Args:
        models: Presets, checkpoint folders, hub ids and bundles; `NAME=SOURCE` sets the name.
        limits: Limits of the server.
        measurements: Figures of the server.
        num_threads: Number of CPU threads of each bundle; the runtime's default if `None`.
        adapters: `NAME=FOLDER` for each adapter, or `NAME=MODEL:FOLDER` if there are several models.
        memory_budget: Gigabytes for the weights of open models; without it, all models are opened now.
    Raises:
        InputError: no source, two with the same name, an adapter without a model, or a model that does not fit.
        SourceError: a source was not found, or is a web page.
        CheckpointError: an adapter belongs to another model.
    """
    named = [name_of(model) for model in models]
    if not named:
        raise InputError("A server needs at least one model. Received: none")
    of_model = _adapters_of([name for name, _ in named], adapters)
    names = [name for name, _ in named] + [name for each in of_model.values() for name in each]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"Each model and adapter needs its own name. Received: {', '.join(repeated)} several times. Pass "
            "NAME=SOURCE"
        )
    for _, source in named:
        check_source(source)

    def opening(name: str, source: str) -> Callable[[], ServedModel]:
        return lambda: served(name, open_pipeline(source, num_threads), limits, measurements, of_model[name])

    if memory_budget is not None:
        entries = [Entry(name, opening(name, source), size_of(source), tuple(of_model[name])) for name, source in named]
        return ServedModels(entries, memory_budget * _GIGABYTE, limits.timeout, measurements)
    opened: list[ServedModel] = []
    try:
        for name, source in named:
            opened.append(opening(name, source)())
    except BaseException:
        for model in opened:
            model.close()
        raise
    return ServedModels(opened)


def _adapters_of(models: Sequence[str], adapters: Sequence[str]) -> Mapping[str, dict[str, Adapter]]:
    """Returns the adapters of each model by name."""
    of_model: dict[str, dict[str, Adapter]] = {model: {} for model in models}
    for pair in adapters:
        name, separator, source = pair.partition("=")
        model, colon, folder = source.partition(":")
        if not colon or model not in of_model:
            model, folder = models[0], source
            if len(models) > 1:
                raise InputError(
                    f"An adapter needs its model if there are several. Expected: NAME=MODEL:FOLDER, with one of "
                    f"{', '.join(models)}. Received: {pair}"
                )
        if not (name and separator and folder):
            raise InputError(f"An adapter must be NAME=FOLDER. Received: {pair}")
        if name in of_model[model]:
            raise InputError(f"Each adapter needs its own name. Received: {name} several times")
        of_model[model][name] = read_adapter(sources.resolve(folder))
    return of_model


def _shown(size: float) -> str:
    return f"{size / _GIGABYTE:.3g} GB"
