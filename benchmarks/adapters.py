"""Cost of adapters (LoRA) in bundles.

`python -m benchmarks.adapters export FOLDER` exports GPT-2 124M with random weights in each format and recipe, with
inputs for adapters and without, and writes two adapters: of all linear layers, or of those with `--targets`, such as
`c_attn`, PEFT's default for GPT-2.

`python -m benchmarks.adapters run FOLDER` measures, in turn, a bundle with an adapter and the one without inputs for
adapters, which is as large and as fast as a bundle of merged weights: the best and the median of all rounds, and the
least processor time of all threads, which depends little on other programs. It also measures how long it takes to
change the adapter.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.export import MIN_AGREEMENT, TOLERANCE
from benchmarks.shapes import SHAPES, write_checkpoint

NAMES = ("onnx-int8", "tflite-int8", "onnx-none", "tflite-none")
SWAPS = 5
"""Changes of the adapter in each round."""


class Times:
    """Times of one kind of work, in milliseconds: elapsed, and processor time of all threads."""

    def __init__(self) -> None:
        self.elapsed: list[float] = []
        self.processor: list[float] = []

    def of(self, count: int, function: Callable[[], Any]) -> None:
        """Runs a function and adds its time divided by the number of things that it does."""
        start, processor = time.perf_counter(), time.process_time()
        function()
        self.elapsed.append(1e3 * (time.perf_counter() - start) / count)
        self.processor.append(1e3 * (time.process_time() - processor) / count)

    def __str__(self) -> str:
        return f"{min(self.elapsed):9.2f}{statistics.median(self.elapsed):9.2f}{min(self.processor):11.2f}"

    def best(self) -> np.ndarray:
        """Returns the least time, the median and the least processor time."""
        return np.array([min(self.elapsed), statistics.median(self.elapsed), min(self.processor)])


def export_all(folder: Path, names: list[str], rank: int, targets: list[str] | None = None) -> None:
    """Writes the bundles and adapters that do not exist yet."""
    from kerasformer import zoo
    from kerasformer.export import export, recipe

    if not (folder / "checkpoint").exists():
        write_checkpoint(SHAPES["gpt2"], folder / "checkpoint")
    model = zoo.load(folder / "checkpoint")
    for number in (1, 2):
        if not (folder / f"adapter-{number}").exists():
            _write_adapter(model, folder / f"adapter-{number}", rank, targets, number)
    for name in names:
        format, quantize = name.split("-")
        settings = recipe(quantize)
        if not settings.exact:  # with random weights, the best logit is hardly larger than the next
            settings = dataclasses.replace(settings, min_agreement=MIN_AGREEMENT, tolerance=TOLERANCE)
        for bundle, options in ((name, {}), (f"{name}-lora", {"lora_rank": rank, "lora_targets": targets})):
            if not (folder / bundle).exists():
                print(f"export {bundle}", flush=True)
                export(model, folder / bundle, format, settings, **options)


def _write_adapter(model: Any, folder: Path, rank: int, targets: list[str] | None, seed: int) -> None:
    """Writes an adapter with random matrices; a new one would be zero."""
    model.enable_lora(rank, **({} if targets is None else {"target_modules": targets}))
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.01, variable.shape))
    model.save_adapter(folder)
    model.unload_adapter()


def measure(folder: Path, name: str, rounds: int, threads: int) -> None:
    """Prints the table of a format and a recipe."""
    from kerasformer import runtime
    from kerasformer.adapters import read_adapter

    start = time.perf_counter()
    adapters = [read_adapter(folder / f"adapter-{number}") for number in (1, 2)]
    reading = 1e3 * (time.perf_counter() - start) / len(adapters)
    engines: dict[str, Any] = {
        title: runtime.open_engine(folder / bundle, None, threads)
        for title, bundle in (("merged", name), ("with adapter", f"{name}-lora"))
    }
    adaptable, turn = engines["with adapter"], cycle(adapters)
    swap = Times()
    works = {title: {"decode": Times(), "prefill": Times()} for title in engines}
    for number in range(rounds + 1):
        for _ in range(SWAPS):
            swap.of(1, lambda: adaptable.set_adapter(next(turn)))
        # Whoever comes second finds other caches of the processor.
        for title in list(engines)[:: 1 if number % 2 else -1]:
            _round(engines[title], works[title])
        if not number:  # memory that is used for the first time
            swap = Times()
            works = {title: {"decode": Times(), "prefill": Times()} for title in engines}
    print(f"\n{name}, milliseconds{'best':>24}{'median':>9}{'processor':>11}")
    print(f"{'change of the adapter':36}{swap}  (reading it from a file: {reading:.1f})")
    for kind, unit in (("decode", "a token"), ("prefill", "512 tokens")):
        for title in engines:
            print(f"{f'{kind}, {unit}, {title}':36}{works[title][kind]}")
        ratios = works["with adapter"][kind].best() / works["merged"][kind].best()
        print(f"{f'{kind}, with adapter / merged':36}{ratios[0]:9.3f}{ratios[1]:9.3f}{ratios[2]:11.3f}", flush=True)


def _round(engine: Any, times: dict[str, Times]) -> None:
    ids = np.random.default_rng(0).integers(1, engine.vocab_size, (1, 512), "int32")
    times["prefill"].of(1, lambda: engine.start(ids, np.ones_like(ids)))
    state = engine.start(ids[:, :32], np.ones_like(ids[:, :32]))

    def decode() -> None:
        nonlocal state
        token = ids[:, 31:32]
        for _ in range(32):
            logits, state = engine.step(token, state)
            token = logits[:, -1].argmax(-1)[:, None].astype("int32")

    times["decode"].of(32, decode)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=__doc__)
    parser.add_argument("command", choices=("export", "run"))
    parser.add_argument("folder", type=Path, help="folder of the bundles, and of a checkpoint")
    parser.add_argument("--names", nargs="*", choices=NAMES, default=NAMES, help="FORMAT-RECIPE; all by default")
    parser.add_argument("--rank", type=int, default=8, help="rank of the adapters (export)")
    parser.add_argument("--targets", nargs="+", help="names of the linear layers, all by default (export)")
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds after one that is not counted")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="number of CPU threads")
    options = parser.parse_args()
    if options.command == "export":
        export_all(options.folder, list(options.names), options.rank, options.targets)
        return
    for name in options.names:
        measure(options.folder, name, options.rounds, options.threads)


if __name__ == "__main__":
    main()
