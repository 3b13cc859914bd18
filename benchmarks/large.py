"""Time and memory of building, exporting and running a large model, GPT-2 XL (1.5 billion parameters, random weights).

    python -m benchmarks.large onnx int8          # or: onnx int4 | tflite int8
    python -m benchmarks.large onnx int8 2        # two layers only, to try the script

It needs about 13 GB of memory and 8 GB of disk. For each stage, time and peak resident memory are printed.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kerasformer.bench.process_memory import peak_mb, reset_peak

TOKENS = 8
"""Number of tokens of the prompt, and of new tokens."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Prints time and peak memory of the enclosed code."""
    reset_peak()
    start = time.perf_counter()
    yield
    print(f"{name:24} {time.perf_counter() - start:7.1f} s {peak_mb():8.0f} MB", flush=True)


def main() -> None:
    """Builds, exports and runs the model."""
    format, quantize, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "bundle"
        _export(folder, format, quantize, int(rest[0]) if rest else 48)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{'bundle':24} {size / 1e6:28.0f} MB")
        _run(folder)


def _export(folder: Path, format: str, quantize: str, num_layers: int) -> None:
    from kerasformer import zoo
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import recipe

    with stage("build"):
        model = zoo.build("gpt2", "text-generation", hidden_dim=1600, num_layers=num_layers, num_heads=25)
    parameters = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    print(f"{'parameters':24} {parameters / 1e6:28.0f} million")
    # With random weights, the best logit is hardly larger than the next.
    settings = dataclasses.replace(recipe(quantize), min_agreement=0.0, tolerance=10.0)
    with stage("export and verify"):
        export(model, folder, format, settings, capacity=128)


def _run(folder: Path) -> None:
    from kerasformer.runtime import open_engine

    with stage("load"):
        engine = open_engine(folder)
    prompt = np.arange(1, TOKENS + 1, dtype=np.int32)[None]
    with stage("read the prompt"):
        state = engine.start(prompt, np.ones_like(prompt))
    tokens = prompt[:, -1:]
    with stage(f"write {TOKENS} tokens"):
        for _ in range(TOKENS):
            logits, state = engine.step(tokens, state)
            tokens = logits[:, -1].argmax(axis=-1).astype(np.int32)[:, None]


if __name__ == "__main__":
    main()
