"""Speed of training on a CPU with and without `kerasformer.process.keep_memory`, in processes that take turns.

    python -m benchmarks.kept_memory

Each process trains an adapter of embedder-bert on made-up texts of 6 to 50 words, in batches of 128; the epoch in which
Keras compiles a step for each length does not count.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import nullcontext

TURNS = 2
BATCHES = 20


def trained(keeps: bool) -> str:
    """Trains, and returns a row of the table."""
    import numpy as np

    import kerasformer as kf
    from kerasformer.process import keep_memory

    words = "the film was a good long bad story of rain and old stones that nobody in this town would ever see".split()
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(words, random.integers(6, 50))) for _ in range(128 * BATCHES)]
    model = kf.load("embedder-bert", "text-classification", labels=["bad", "good"], new_head=True)
    model.enable_lora(rank=16, alpha=32.0)
    data = kf.training.dataset(model, texts, random.integers(0, 2, len(texts)), batch_size=128, pad_to=[16, 32, 64])
    model.compile(kf.training.optimizer(model, 1e-3, steps=2 * len(data)), data.loss)
    with keep_memory() if keeps else nullcontext():
        model.fit(data, verbose=0)
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        model.fit(data, verbose=0)
        step, after = (time.perf_counter() - start) / len(data), resource.getrusage(resource.RUSAGE_SELF)
    share = (after.ru_stime - before.ru_stime) / (after.ru_stime + after.ru_utime - before.ru_stime - before.ru_utime)
    name = "keep_memory()" if keeps else "default"
    return f"| {name} | {step:.2f} | {share:.0%} | {after.ru_maxrss / 1024:.0f} |"


def main() -> None:
    """Prints the table."""
    if len(sys.argv) > 1:
        print(trained(sys.argv[1] == "keep"))
        return
    print("| allocator | seconds a step | time of the system | peak memory, MB |\n|---|--:|--:|--:|", flush=True)
    for _ in range(TURNS):
        for mode in ("default", "keep"):
            command = [sys.executable, "-m", "benchmarks.kept_memory", mode]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            print(done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
