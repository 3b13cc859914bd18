"""Memory and time of an encoder with blockwise and dense attention: `python -m benchmarks.long_texts`.

The model has the base size, few layers, and a head for question answering. Longformer has both local attention (in a
window of 512 tokens) and global attention (of up to 64 tokens); its dense variant has a window that covers the whole
text. BigBird (`--model big_bird`) has blocks of 64 tokens, or full attention. Each measurement runs in a separate
process with two threads; the memory is the increase of the peak resident size after the model was loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import peak

LENGTHS = (512, 1024, 2048, 4096)
_LONGFORMER = {"num_positions": 4098, "num_segments": 1}
MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "longformer": {
        "blocks": {**_LONGFORMER, "attention_window": 512},
        "dense": {**_LONGFORMER, "attention_window": 8192},
    },
    "big_bird": {
        "blocks": {"sep_token_id": 2},
        "dense": {"sep_token_id": 2, "attention_type": "original_full"},
    },
}
"""Settings of both variants of each model."""
FORMS = ("blocks", "dense")
ENGINES = ("keras", "litert", "onnx")
THREADS = 2


def model(form: str, layers: int) -> Any:
    """Returns the model with random weights; `form` names the model and the variant, such as `longformer dense`."""
    from kerasformer import zoo

    name, variant = form.split()
    return zoo.build(name, "question-answering", vocab_size=1000, num_layers=layers, **MODELS[name][variant])


def write(folder: Path, engine: str, form: str, layers: int, length: int) -> None:
    """Writes the model file of an engine."""
    from kerasformer.export.formats.onnx.convert import write_onnx
    from kerasformer.export.formats.onnx.signatures import onnx_functions
    from kerasformer.export.formats.tflite.convert import write_tflite
    from kerasformer.export.formats.tflite.signatures import tflite_functions
    from kerasformer.export.quantization.recipes import recipe

    encoder = model(form, layers)
    if engine == "litert":
        functions = tflite_functions(encoder, None, None, [length])
        write_tflite(functions, encoder.variables, recipe("none"), folder / "model.tflite")
    else:
        (function,) = onnx_functions(encoder)
        write_onnx({folder / "model.onnx": function}, encoder.variables, recipe("none"), profile="ort")


def opened(folder: Path, engine: str, form: str, layers: int, length: int) -> Callable[[dict[str, Any]], Any]:
    """Loads the model and returns it as a function of its inputs."""
    if engine == "litert":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(folder / "model.tflite"), num_threads=THREADS).get_signature_runner(
            f"forward_{length}"
        )
        return lambda inputs: runner(**inputs)
    if engine == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, {name: value.astype("int64") for name, value in inputs.items()})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    encoder = model(form, layers)
    function = tf.function(lambda inputs: encoder(inputs))
    spec = {name: tf.TensorSpec((1, length), "int32") for name in encoder.input_names}
    traced = function.get_concrete_function(spec)
    return lambda inputs: traced({name: tf.constant(value) for name, value in inputs.items()}).numpy()


def measure(folder: Path, engine: str, form: str, layers: int, length: int, rounds: int) -> dict[str, float]:
    """Measures the time in seconds and the memory in bytes of this process."""
    import numpy as np

    ids = np.random.default_rng(0).integers(10, 1000, (1, length)).astype("int32")
    ids[:, [20, 21, -1]] = 2
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    run, times = opened(folder, engine, form, layers, length), []
    before = peak()
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run(inputs)
        times.append(time.perf_counter() - start)
    return {"seconds": min(times[1:]), "memory": peak() - before}


def main() -> None:
    """Prints a table of all engines, variants and lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="longformer", choices=MODELS)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--step", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        action, folder, engine, form, length = options.step
        arguments = Path(folder), engine, form, options.layers, int(length)
        if action == "write":
            write(*arguments)
        else:
            print(json.dumps(measure(*arguments, options.rounds)))
        return

    def step(*arguments: Any) -> str:
        command = [sys.executable, "-m", "benchmarks.long_texts", "--layers", str(options.layers)]
        command += ["--rounds", str(options.rounds), "--step", *map(str, arguments)]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
        return process.stdout.strip().rpartition("\n")[2]

    print(f"{options.layers} layers, float32, {THREADS} threads, best of {options.rounds}: memory in MB / time in ms")
    print("| | " + " | ".join(f"{length:,}" for length in options.lengths) + " |")
    for engine in options.engines:
        for form in FORMS:
            cells = []
            with tempfile.TemporaryDirectory() as folder:
                for length in options.lengths:
                    if engine == "litert" or (engine == "onnx" and not cells):
                        step("write", folder, engine, f"{options.model} {form}", length)
                    figures = json.loads(step("measure", folder, engine, f"{options.model} {form}", length))
                    cells.append(f"{figures['memory'] / 1e6:,.0f} / {1000 * figures['seconds']:,.0f}")
            print(f"| {engine}, {form} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
