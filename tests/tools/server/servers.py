"""Servers in a thread of the test, and their clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from kerasformer.tools.server.application import application
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.running import LOOPBACK, listen, settings
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.served_models import ServedModels, open_models
from tests.extras import need


@dataclass
class Running:
    """A running server."""

    port: int
    models: dict[str, ServedModel]
    measurements: Measurements
    every: ServedModels

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Any:
        return need("openai").OpenAI(base_url=f"{self.url}/v1", **{"api_key": "none", "max_retries": 0, **options})

    def async_client(self) -> Any:
        return need("openai").AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)


@contextmanager
def running(
    sources: list[str],
    limits: Limits | None = None,
    adapters: Sequence[str] = (),
    memory_budget: float | None = None,
    **options: Any,
) -> Iterator[Running]:
    limits, measurements = limits or Limits(), Measurements()
    models = open_models(sources, limits, measurements, adapters=adapters, memory_budget=memory_budget)
    app = application(models, limits, measurements, **{"hosts": LOOPBACK, **options})
    with serving(app, limits) as port:
        yield Running(port, {model.name: model for model in models}, measurements, models)


@contextmanager
def serving(app: ASGIApp, limits: Limits) -> Iterator[int]:
    """Runs an application; yields the port."""
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(settings(app, limits))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not hold in time"
        time.sleep(0.005)
