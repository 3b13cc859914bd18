"""Throughput and memory of the HTTP server: `python -m benchmarks.server BUNDLE… [--clients 1 4 8]`.

For each bundle of a model that generates text, clients send requests of random tokens, each the next one as soon as it
has its answer. The same server computes them with and without steps that several texts share, in turn, and the best
round counts. A table shows the new tokens per second of all clients, the mean time to the first token and of each
further token, and how many texts a step had on average; and, in the same rounds, the pipeline without a server.

`--visits 1000` measures memory instead: clients that read an answer, leave in the middle of one, or send nonsense; the
resident size after each tenth of them. Without a bundle, GPT-2 124M with random weights is exported in int8 for LiteRT
and ONNX Runtime.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

import kerasformer as kf
from benchmarks.shapes import SHAPES, export_bundles, write_checkpoint
from kerasformer.bench.machine import resident_mb
from kerasformer.bench.rounds import in_turns
from kerasformer.decoding.protocols import JointStep
from kerasformer.decoding.wrapped_step import WrappedStep
from kerasformer.server.application import application
from kerasformer.server.limits import Limits
from kerasformer.server.measurements import Measurements
from kerasformer.server.running import listen, settings
from kerasformer.server.served_model import ServedModel
from kerasformer.server.served_models import ServedModels


class Separate(WrappedStep):
    """An engine whose texts take turns, although they could share steps."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        for name in ("start", "step", "reorder", "rewind", "fork", "resume", "save", "restore", "version", "identity"):
            setattr(self, name, getattr(engine, name))


@dataclass(frozen=True)
class Figures:
    """Figures of one round, or of all rounds until now.

    Attributes:
        seconds: Duration.
        tokens: New tokens of all clients.
        first: Number of first tokens, and the sum of their times in seconds.
        following: The same of further tokens.
        steps: Number of steps, and the sum of their texts.
    """

    seconds: float
    tokens: float
    first: tuple[float, float] = (0, 0)
    following: tuple[float, float] = (0, 0)
    steps: tuple[float, float] = (0, 0)

    @classmethod
    def now(cls, measurements: Measurements) -> Figures:
        """Returns the figures of a server until now."""
        values = {
            (sample.name.removeprefix("kerasformer_")): sample.value
            for family in measurements.collect()
            for sample in family.samples
            if "le" not in sample.labels
        }
        names = ("time_to_first_token_seconds", "time_per_token_seconds", "step_rows")
        pairs = [(values.get(f"{name}_count", 0.0), values.get(f"{name}_sum", 0.0)) for name in names]
        return cls(time.perf_counter(), values.get("generated_tokens_total", 0.0), *pairs)

    def since(self, before: Figures) -> Figures:
        """Returns the figures since an earlier time."""
        pairs = zip(
            (self.first, self.following, self.steps), (before.first, before.following, before.steps), strict=True
        )
        differences = [(new[0] - old[0], new[1] - old[1]) for new, old in pairs]
        return Figures(self.seconds - before.seconds, self.tokens - before.tokens, *differences)


def mean(pair: tuple[float, float]) -> float:
    """Returns the mean of a number of values and their sum."""
    return pair[1] / pair[0]


@contextmanager
def running(bundle: Path, limits: Limits, threads: int | None) -> Iterator[tuple[str, ServedModel, Measurements]]:
    """Runs a server in a thread; yields its address, its model and its figures."""
    measurements = Measurements()
    # Figures do not depend on the tokenizer, which bundles of random weights lack.
    pipe = kf.pipeline(bundle, tokenizer="story-gpt2", num_threads=threads)
    model = ServedModel("model", pipe, limits, measurements)
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


async def round_of(url: str, count: int, requests: int, prompt: int, new_tokens: int, vocab_size: int) -> None:
    """Runs some clients at the same time."""
    prompts = np.random.default_rng(0).integers(100, min(vocab_size, 1900), (count, requests, prompt)).tolist()
    async with httpx.AsyncClient(timeout=600) as http:
        await asyncio.gather(*(client(http, url, each, new_tokens) for each in prompts))


def without_server(model: ServedModel, engine: Any, options: argparse.Namespace) -> Figures:
    """Returns the time and new tokens of the pipeline in this thread, on the engine itself."""
    pipe, shared = model.pipe, model.pipe.model
    prompts = np.random.default_rng(0).integers(100, 1900, (options.requests, options.prompt)).tolist()
    pipe.model = engine
    start, count = time.perf_counter(), 0
    try:
        for each in prompts:
            steps = pipe.prompt(each, max_new_tokens=options.new_tokens, do_sample=False).steps(reuse=False)
            count += sum(map(len, steps))
    finally:
        pipe.model = shared
    return Figures(time.perf_counter() - start, count)


def throughput(bundle: Path, options: argparse.Namespace) -> None:
    """Prints the rows of one bundle."""
    limits = Limits(max_running=max(options.clients))
    with running(bundle, limits, options.threads) as (url, model, measurements):
        shared, engine = model.pipe.model, model.pipe.model.engine

        def served(step: Any, clients: int) -> Figures:
            shared.engine = step
            before = Figures.now(measurements)
            sizes = options.requests, options.prompt, options.new_tokens, engine.vocab_size
            asyncio.run(round_of(url, clients, *sizes))
            return Figures.now(measurements).since(before)

        for clients in options.clients:
            candidates = {
                "no server": partial(without_server, model, engine, options),
                "one after another": partial(served, Separate(engine), clients),
            }
            if isinstance(engine, JointStep):
                candidates["shared steps"] = partial(served, engine, clients)
            for way, found in in_turns(candidates, options.rounds).items():
                best = min(found, key=lambda figures: figures.seconds)
                cells = [f"{best.tokens / best.seconds:.0f}", "", "", ""]
                if way != "no server":
                    cells[1:] = [f"{1000 * mean(best.first):.0f}", f"{1000 * mean(best.following):.1f}"]
                    cells.append(f"{mean(best.steps):.1f}")
                print(f"| {bundle.name} | {clients} | {way} | {' | '.join(cells)} |", flush=True)


async def visits(url: str, count: int, vocab_size: int) -> None:
    """Sends requests of all kinds, twenty at a time."""
    random = np.random.default_rng(0)

    async def visit(http: httpx.AsyncClient, number: int) -> None:
        prompt = random.integers(100, min(vocab_size, 1900), int(random.integers(4, 60))).tolist()
        body = {"model": "model", "prompt": prompt, "max_tokens": 16, "temperature": 0}
        if number % 4 == 0:
            await http.post(f"{url}/completions", json=body)
        elif number % 4 == 1:
            async with http.stream("POST", f"{url}/completions", json=body | {"stream": True}) as answer:
                async for _ in answer.aiter_lines():
                    break
        elif number % 4 == 2:
            task = asyncio.create_task(http.post(f"{url}/completions", json=body))
            await asyncio.sleep(float(random.random()) * 0.2)
            task.cancel()
        else:
            await http.post(f"{url}/completions", content=b"{" * 100_000)

    async with httpx.AsyncClient(timeout=600) as http:
        for start in range(0, count, 20):
            await asyncio.gather(*(visit(http, start + number) for number in range(20)))


def memory(bundle: Path, arguments: argparse.Namespace) -> None:
    """Prints the memory of one bundle."""
    with running(bundle, Limits(), arguments.threads) as (url, model, _):
        sizes = [resident_mb()]
        for _ in range(10):
            asyncio.run(visits(url, arguments.visits // 10, model.pipe.model.vocab_size))
            while len(model.jobs):
                time.sleep(0.01)
            sizes.append(resident_mb())
        print(f"| {bundle.name} | " + " | ".join(f"{size:.0f}" for size in sizes) + f" | {threading.active_count()} |")


def exported(folder: Path) -> list[Path]:
    """Exports GPT-2 124M with random weights."""
    write_checkpoint(SHAPES["gpt2"], folder / "gpt2")
    options = {"quantize": "int8", "capacity": 512}
    variants = {f"gpt2-{format}-int8": {"format": format, **options} for format in ("tflite", "onnx")}
    return export_bundles(folder / "gpt2", folder, variants)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="*")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--requests", type=int, default=2, help="requests of each client in a round")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--visits", type=int, default=0, help="measure memory with this number of requests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundles = arguments.bundles or exported(Path(folder))
        if arguments.visits:
            print("| bundle | MB at the start |" + " |" * 10 + " threads |\n|" + "---|" * 13)
        else:
            print("| bundle | clients | steps | tokens/s | first token, ms | next token, ms | texts of a step |")
            print("|---|---|---|---|---|---|---|")
        for bundle in bundles:
            (memory if arguments.visits else throughput)(bundle, arguments)


if __name__ == "__main__":
    main()
