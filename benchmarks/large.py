"""Time and memory of building, exporting and running a large model with random weights, and the size of its files.

    python -m benchmarks.large gpt2-xl onnx int8              # or: int4; tflite
    python -m benchmarks.large gpt2-xl onnx int8 --layers 2   # to try the script
    python -m benchmarks.large m2m-100 tflite int8 --folder FOLDER && python -m benchmarks.memory FOLDER

GPT-2 XL has 1.5 billion parameters and needs about 13 GB of memory and 8 GB of disk, M2M-100 418M half of it. For each
stage, time and peak resident memory are printed. `benchmarks.memory` measures the runtime in a process of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import weight_bytes
from kerasformer.bench.process_memory import peak_mb, reset_peak

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2-xl": ("gpt2", "text-generation", {"hidden_dim": 1600, "num_layers": 48, "num_heads": 25}),
    # The defaults of the configuration are those of the model with 12 layers in each stack.
    "m2m-100": ("m2m_100", "text2text-generation", {"num_layers": 12, "num_decoder_layers": 12}),
}
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("format", choices=("onnx", "tflite"))
    parser.add_argument("quantize")
    parser.add_argument("--layers", type=int, help="layers of each stack, instead of those of the model")
    parser.add_argument("--folder", type=Path, help="where the bundle is kept (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name) / "bundle"
        parameters = _export(folder, arguments.model, arguments.format, arguments.quantize, arguments.layers)
        size = weight_bytes(folder)
        print(f"{'model files':24} {size / 1e6:28.1f} MB, {size / parameters:.3f} bytes for each parameter")
        _run(folder)


def _export(folder: Path, name: str, format: str, quantize: str, layers: int | None) -> int:
    """Writes the bundle and returns the number of parameters."""
    from kerasformer import zoo
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import recipe

    model_type, task, sizes = MODELS[name]
    if layers is not None:
        sizes = {key: layers if key.endswith("layers") else value for key, value in sizes.items()}
    with stage("build"):
        model = zoo.build(model_type, task, **sizes)
    parameters = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    print(f"{'parameters':24} {parameters / 1e6:28.1f} million")
    # With random weights, the best logit is hardly larger than the next.
    settings = dataclasses.replace(recipe(quantize), min_agreement=0.0, tolerance=10.0)
    lengths = {"lengths": (128,)} if model.is_encoder_decoder else {}
    with stage("export and verify"):
        export(model, folder, format, settings, capacity=128, **lengths)
    return parameters


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
