"""How threads of ONNX Runtime wait for each other, and what it costs: `python -m benchmarks.spinning BUNDLE…`.

    python -m benchmarks.spinning OUT --threads 2 --rounds 9

Each way of waiting generates in turn, in one process. Elapsed times of a token need an idle machine; the processor time
of all threads shows what spinning costs others.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from kerasformer import bundle
from kerasformer.decoding import GenerationConfig, stream
from kerasformer.runtime.onnx import session
from kerasformer.runtime.onnx.step import OnnxStep

_ALLOWED, _DURATION, _STOP = (
    "session.intra_op.allow_spinning",
    "session.intra_op.spin_duration_us",
    "session.force_spinning_stop",
)
WAYS: dict[str, dict[str, str]] = {
    "never": {_ALLOWED: "0"},
    "50 µs": {_ALLOWED: "1", _DURATION: "50", _STOP: "1"},
    "200 µs": {_ALLOWED: "1", _DURATION: "200", _STOP: "1"},
    "1 ms": {_ALLOWED: "1", _DURATION: "1000", _STOP: "1"},
    "1 ms, between runs too": {_ALLOWED: "1", _DURATION: "1000", _STOP: "0"},
    "ONNX Runtime's default": {},
}
"""Session options by the time for which threads spin before they sleep."""


def opened(folder: Path, threads: int, way: dict[str, str]) -> OnnxStep:
    """Returns an engine whose threads wait in this way."""

    def options(num_threads: int | None) -> Any:
        import onnxruntime

        chosen = onnxruntime.SessionOptions()
        chosen.log_severity_level = 3
        chosen.intra_op_num_threads = num_threads
        for key, value in way.items():
            chosen.add_session_config_entry(key, value)
        return chosen

    with mock.patch.object(session, "_options", options):
        return OnnxStep(folder, bundle.read(folder, check=False), threads)


def token_times(engine: OnnxStep, tokens: int) -> tuple[list[float], float]:
    """Returns the elapsed time of each token after the first, and the processor time of all threads for one, in ms."""
    marks, config = [], GenerationConfig(max_new_tokens=tokens)
    prompt = np.random.default_rng(0).integers(0, engine.vocab_size, (1, 32), dtype="int32")
    start = 0.0
    for _ in stream(engine, prompt, None, config):
        marks.append(time.perf_counter())
        start = start or time.process_time()
    return list(1e3 * np.diff(marks)), 1e3 * (time.process_time() - start) / (tokens - 1)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path, help="bundles of decoders for ONNX Runtime")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each answer")
    options = parser.parse_args()

    print("| bundle | threads spin | a token, ms: best tenth | median | processor time, ms: least |")
    print("|---|---|--:|--:|--:|")
    for folder in options.bundles:
        engines = {name: opened(folder, options.threads, way) for name, way in WAYS.items()}
        for engine in engines.values():
            token_times(engine, options.tokens)
        found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in engines}
        for _ in range(options.rounds):
            for name, engine in engines.items():
                elapsed, processor = token_times(engine, options.tokens)
                found[name][0].extend(elapsed)
                found[name][1].append(processor)
        for name, (elapsed, times) in found.items():
            best, median = np.quantile(elapsed, [0.1, 0.5])
            print(f"| {folder.name} | {name} | {best:.2f} | {median:.2f} | {min(times):.2f} |", flush=True)


if __name__ == "__main__":
    main()
