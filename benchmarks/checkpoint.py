"""Memory of exporting a large checkpoint in bfloat16, with random weights: `python -m benchmarks.checkpoint`.

    python -m benchmarks.checkpoint                           # all four exports
    python -m benchmarks.checkpoint tflite-int4 --layers 2    # one of a smaller model, to try the script

The model has the sizes of Qwen2.5-1.5B. Its checkpoint, 3.1 GB in five files, is written to a temporary folder; each
export runs in a process of its own. The table has the peak of the resident memory in each stage, in GB.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quiet import quiet_environment
from kerasformer.bench.process_memory import peak_mb, reset_peak
from kerasformer.process import free_tensors

TITLES = {"onnx": "ONNX", "tflite": "TFLite"}
CASES = ("onnx-int4", "tflite-int4", "onnx-int8", "tflite-int8")

HIDDEN, HEADS, KEY_VALUE_HEADS, INTERMEDIATE, VOCABULARY = 1536, 12, 2, 8960, 151936

IMPORT, LOAD, ANSWERS, WRITTEN, VERIFIED = STAGES = (
    "import", "load", "answers of Keras", "files written", "verified",
)  # fmt: skip
_STAGE_OF = {"answer with Keras": ANSWERS, "trace and convert": WRITTEN, "verify": VERIFIED}
"""Stages of the table by the first of the stages of an export that belong to them."""

_AT_ONCE = 1 << 24  # random values in memory


def shapes(num_layers: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yields the tensors of each file of the checkpoint: the table of tokens, and a file for every seven layers."""
    keys = HIDDEN // HEADS * KEY_VALUE_HEADS
    layer = {
        "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "self_attn.q_proj.bias": (HIDDEN,),
        "self_attn.k_proj.weight": (keys, HIDDEN),
        "self_attn.k_proj.bias": (keys,),
        "self_attn.v_proj.weight": (keys, HIDDEN),
        "self_attn.v_proj.bias": (keys,),
        "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
    }
    yield {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for first in range(0, num_layers, 7):
        indices = range(first, min(first + 7, num_layers))
        yield {f"model.layers.{i}.{name}": shape for i in indices for name, shape in layer.items()}


def write(folder: Path, num_layers: int) -> int:
    """Writes a checkpoint and returns its size in bytes."""
    random, index = np.random.default_rng(0), {}
    for number, tensors in enumerate(shapes(num_layers)):
        name = f"model-{number:05}.safetensors"
        index |= dict.fromkeys(tensors, name)
        write_file(folder / name, tensors, random)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "num_hidden_layers": num_layers, "num_attention_heads": HEADS, "num_key_value_heads": KEY_VALUE_HEADS,
        "intermediate_size": INTERMEDIATE, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1,
        "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return size(folder)


def write_file(path: Path, tensors: dict[str, tuple[int, ...]], random: np.random.Generator) -> None:
    """Writes random tensors in bfloat16 as a file of safetensors, a part of a tensor at a time."""
    import ml_dtypes

    header: dict[str, Any] = {}
    end = 0
    for name, shape in tensors.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (start, end)}
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        for name, shape in tensors.items():
            count, middle = math.prod(shape), np.float32(name.endswith("norm.weight"))
            for start in range(0, count, _AT_ONCE):
                values = random.standard_normal(min(_AT_ONCE, count - start), np.float32) * np.float32(0.02) + middle
                file.write(values.astype(ml_dtypes.bfloat16).tobytes())


def size(folder: Path) -> int:
    """Returns the size of the files of a folder in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(source: str, destination: str, format: str, quantize: str, capacity: int) -> dict[str, float]:
    """Exports in this process; returns the peak memory of each stage in MB, and the seconds of the export."""
    free_tensors()  # as `kerasformer export` does
    from kerasformer.export import export
    from kerasformer.export.quantization.recipes import recipe

    peaks, stage = {IMPORT: peak_mb()}, LOAD

    def progress(name: str, done: int, total: int) -> None:
        nonlocal stage
        following = _STAGE_OF.get(name, stage)
        if following != stage:
            peaks[stage], stage = peak_mb(), following
            reset_peak()

    # With random weights, the best logit is hardly larger than the next.
    settings = dataclasses.replace(recipe(quantize), min_agreement=0.0, tolerance=10.0)
    reset_peak()
    start = time.perf_counter()
    export(source, destination, format, settings, capacity=capacity, progress=progress)
    peaks[stage] = peak_mb()
    return {**peaks, "seconds": time.perf_counter() - start}


def report(cases: list[str], num_layers: int, capacity: int) -> None:
    """Writes the checkpoint, exports it in processes of their own, and prints the table."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "checkpoint"
        source.mkdir()
        print(f"checkpoint of {write(source, num_layers) / 1e9:.2f} GB\n")
        print(f"|  | {' | '.join(STAGES)} | bundle | s |\n| --- |{' --: |' * (len(STAGES) + 2)}", flush=True)
        for case in cases:
            format, quantize = case.split("-")
            bundle = Path(name) / case
            command = [sys.executable, "-m", __spec__.name, case, "--capacity", str(capacity)]
            command += ["--measure", str(source), str(bundle)]
            process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=quiet_environment())
            figures = json.loads(process.stdout.splitlines()[-1])
            cells = [f"{figures[stage] / 1e3:.2f}" for stage in STAGES]
            cells += [f"{size(bundle) / 1e9:.2f}", f"{figures['seconds']:.0f}"]
            print(f"| {TITLES[format]}, {quantize} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="FORMAT-RECIPE", help=f"by default {', '.join(CASES)}")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--capacity", type=int, default=64, help="half of it is the number of tokens to be compared")
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "DESTINATION"), help="export in this process")
    options = parser.parse_args()
    cases = options.cases or list(CASES)
    if options.measure:
        print(json.dumps(measure(*options.measure, *cases[0].split("-"), options.capacity)))
    else:
        report(cases, options.layers, options.capacity)


if __name__ == "__main__":
    main()
