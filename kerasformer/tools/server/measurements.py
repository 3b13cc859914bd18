"""Figures of a server in the format of Prometheus. None of them contains a text."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

_FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_NEXT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


class Measurements:
    """The figures of one server, which other servers of the process do not share."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kerasformer_{name}", text, labels or ("model",), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"kerasformer_{name}", text, ("model",), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"kerasformer_{name}", text, ("model",), registry=registry, buckets=buckets)

        self.requests = counter("requests", "Answered requests.", "endpoint", "status")
        self.open_models = gauge("open_models", "Whether a model is open, with a memory budget.")
        self.running = gauge("running_requests", "Requests that are being computed.")
        self.waiting = gauge("waiting_requests", "Requests that wait for others.")
        self.cancelled = counter("cancelled_requests", "Requests whose client left before the end.")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts and texts.")
        self.reused_tokens = counter("reused_prompt_tokens", "Tokens of prompts that were not read again.")
        self.new_tokens = counter("generated_tokens", "Generated tokens.")
        self.first_token = histogram("time_to_first_token_seconds", "Time from a request to its first token.", _FIRST)
        self.next_token = histogram("time_per_token_seconds", "Time of each further token.", _NEXT)
        self.step_rows = histogram("step_rows", "Number of texts that one step of the engine continues.", _ROWS)

    def collect(self) -> Iterable[Metric]:
        """Returns the figures."""
        return self._registry.collect()

    def text(self) -> tuple[bytes, str]:
        """Returns the figures and their content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4
