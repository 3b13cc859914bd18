"""Throughput of the HTTP server: `python -m benchmarks.server BUNDLE… [--clients 1 4 8]`.

For each bundle of a model that generates text, clients send requests of random tokens, each the next one as soon as it
has its answer. The same server computes them with and without steps that several texts share, in turn, and the best
round counts. A table shows the new tokens per second of all clients, the mean time to the first token and of each
further token, and how many texts a step had on average; and, in the same rounds, the pipeline without a server.

Without a bundle, GPT-2 124M with random weights is exported in int8 for LiteRT and ONNX Runtime.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

import kerasformer as kf
from benchmarks.shapes import SHAPES, export_bundles, write_checkpoint
from kerasformer.engines.protocols import JointStep
from kerasformer.generation.wrapped_step import WrappedStep
from kerasformer.tools.bench.rounds import in_turns
from kerasformer.tools.server.application import application
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.running import listen, settings
from kerasformer.tools.server.served_model import ServedModel, served
from kerasformer.tools.server.served_models import ServedModels


class Separate(WrappedStep):
    """An engine whose texts take turns, although they could share steps."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        for name in ("start", "step", "reorder", "rewind", "fork", "resume", "save", "restore", "version", "identity"):
            setattr(self, name, getattr(engine, name))


_MEANS = ("time_to_first_token_seconds", "time_per_token_seconds", "step_rows")


def counters(measurements: Measurements) -> tuple[float, ...]:
    """Returns the time in seconds, the new tokens of all clients until now, and count and sum of each of `_MEANS`."""
    values = {
        sample.name.removeprefix("kerasformer_"): sample.value
        for family in measurements.collect()
        for sample in family.samples
        if "le" not in sample.labels
    }
    names = ("generated_tokens_total", *(f"{name}_{part}" for name in _MEANS for part in ("count", "sum")))
    return time.perf_counter(), *(values.get(name, 0.0) for name in names)


@contextmanager
def running(bundle: Path, limits: Limits, threads: int | None) -> Iterator[tuple[str, ServedModel, Measurements]]:
    """Runs a server in a thread; yields its address, its model and its figures."""
    measurements = Measurements()
    # Figures do not depend on the tokenizer, which bundles of random weights lack.
    pipe = kf.pipeline(bundle, tokenizer="story-gpt2", num_threads=threads)
    model = served("model", pipe, limits, measurements)
    app = application(ServedModels([model]), limits, measurements, reuse=False)
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(settings(app, limits))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", model, measurements
        finally:
            server.should_exit = True
            thread.join()


async def client(http: httpx.AsyncClient, url: str, prompts: Sequence[list[int]], new_tokens: int) -> None:
    """Sends requests one after another, and reads the streams of their answers."""
    for prompt in prompts:
        body = {"model": "model", "prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "stream": True}
        async with http.stream("POST", f"{url}/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if '"error"' in line:
                    raise RuntimeError(line)


async def round_of(url: str, count: int, options: argparse.Namespace, vocab_size: int) -> None:
    shape = (count, options.requests, options.prompt)
    prompts = np.random.default_rng(0).integers(100, min(vocab_size, 1900), shape).tolist()
    async with httpx.AsyncClient(timeout=600) as http:
        await asyncio.gather(*(client(http, url, each, options.new_tokens) for each in prompts))


def without_server(model: ServedModel, engine: Any, options: argparse.Namespace) -> tuple[float, ...]:
    """Returns the time and new tokens of the pipeline in this thread, on the engine itself."""
    pipe, shared = model.pipe, model.pipe.model
    prompts = np.random.default_rng(0).integers(100, 1900, (options.requests, options.prompt)).tolist()
    pipe.model = engine
    start, count = time.perf_counter(), 0
    try:
        for prompt in prompts:
            steps = pipe.prompt(prompt, max_new_tokens=options.new_tokens, do_sample=False).steps(reuse=False)
            count += sum(map(len, steps))
    finally:
        pipe.model = shared
    return time.perf_counter() - start, count


def throughput(bundle: Path, options: argparse.Namespace) -> None:
    limits = Limits(max_running=max(options.clients))
    with running(bundle, limits, options.threads) as (url, model, measurements):
        shared, engine = model.pipe.model, model.pipe.model.engine

        def served(step: Any, clients: int) -> tuple[float, ...]:
            shared.engine = step
            before = counters(measurements)
            asyncio.run(round_of(url, clients, options, engine.vocab_size))
            return tuple(new - old for new, old in zip(counters(measurements), before, strict=True))

        for clients in options.clients:
            candidates = {
                "no server": partial(without_server, model, engine, options),
                "one after another": partial(served, Separate(engine), clients),
            }
            if isinstance(engine, JointStep):
                candidates["shared steps"] = partial(served, engine, clients)
            for way, found in in_turns(candidates, options.rounds).items():
                seconds, tokens, *pairs = min(found)
                means = [total / count for count, total in zip(pairs[::2], pairs[1::2], strict=True)]
                cells = ["", "", ""]
                if means:
                    cells = [f"{1000 * means[0]:.0f}", f"{1000 * means[1]:.1f}", f"{means[2]:.1f}"]
                row = [bundle.name, str(clients), way, f"{tokens / seconds:.0f}", *cells]
                print(f"| {' | '.join(row)} |", flush=True)


def exported(folder: Path) -> list[Path]:
    write_checkpoint(SHAPES["gpt2"], folder / "gpt2")
    options = {"quantize": "int8", "capacity": 512}
    variants = {f"gpt2-{format}-int8": {"format": format, **options} for format in ("tflite", "onnx")}
    return export_bundles(folder / "gpt2", folder, variants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="*")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--requests", type=int, default=2, help="requests of each client in a round")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    print("| bundle | clients | steps | tokens/s | first token, ms | next token, ms | texts of a step |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for bundle in options.bundles or exported(Path(folder)):
            throughput(bundle, options)


if __name__ == "__main__":
    main()
