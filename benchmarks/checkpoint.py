"""Memory of exporting a large checkpoint in bfloat16, with random weights: `python -m benchmarks.checkpoint onnx int4`.

    python -m benchmarks.checkpoint onnx int4                 # or: onnx int8 | tflite int4 | tflite int8
    python -m benchmarks.checkpoint tflite int4 --layers 2    # a smaller model, to try the script

The model has the sizes of Qwen2.5-1.5B (1.5 billion parameters) in the architecture of LLaMA. Its checkpoint, 3.1 GB in
several files, is written to a temporary folder; the export, and loading in Keras alone, then run in processes of their
own. Their peak resident memory is printed, and that beyond the size of the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HIDDEN, HEADS, KEY_VALUE_HEADS, INTERMEDIATE, VOCABULARY = 1536, 12, 2, 8960, 151936

_EXPORT = """
import dataclasses, sys
from kerasformer.export import export
from kerasformer.export.quantization.recipes import recipe
# With random weights, the best logit is hardly larger than the next.
settings = dataclasses.replace(recipe(sys.argv[4]), min_agreement=0.0, tolerance=10.0)
export(sys.argv[1], sys.argv[2], sys.argv[3], settings, capacity=64)
"""
_LOAD = """
import sys
from kerasformer import zoo
model = zoo.load(sys.argv[1], keep_dtype=sys.argv[2] == "keep")
model({"input_ids": [[1, 2, 3]]})
"""
_PEAK = "\nimport resource; print('PEAK', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def shapes(num_layers: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yields the tensors of each file of the checkpoint: the table of tokens, and a file for every seven layers."""
    keys = HIDDEN // HEADS * KEY_VALUE_HEADS
    layer = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    yield {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for first in range(0, num_layers, 7):
        indices = range(first, min(first + 7, num_layers))
        yield {f"model.layers.{i}.{name}.weight": shape for i in indices for name, shape in layer.items()}


def write(folder: Path, num_layers: int) -> int:
    """Writes a checkpoint and returns its size in bytes."""
    import ml_dtypes

    from kerasformer.models.tensor_files import save_tensors

    random, index = np.random.default_rng(0), {}
    for number, tensors in enumerate(shapes(num_layers)):
        name = f"model-{number:05}.safetensors"
        index |= dict.fromkeys(tensors, name)
        values = {}
        for tensor, shape in tensors.items():
            value = random.standard_normal(shape, np.float32) * np.float32(0.02) + np.float32(len(shape) == 1)
            values[tensor] = value.astype(ml_dtypes.bfloat16)
        save_tensors(values, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "num_hidden_layers": num_layers, "num_attention_heads": HEADS, "num_key_value_heads": KEY_VALUE_HEADS,
        "intermediate_size": INTERMEDIATE, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(program: str, *arguments: str) -> tuple[float, float]:
    """Runs a program in a process of its own; returns its peak resident memory in bytes, and its seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-c", program + _PEAK, *arguments]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("PEAK"))
    return peak, time.perf_counter() - start


def main() -> None:
    """Writes the checkpoint, and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=["onnx", "tflite"])
    parser.add_argument("quantize")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--load", action="store_true", help="also measure loading in Keras alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        source, bundle = Path(name) / "checkpoint", Path(name) / "bundle"
        source.mkdir()
        size = write(source, options.layers)
        print(f"checkpoint {size / 1e9:.2f} GB", flush=True)
        runs = [("load, keep_dtype", _LOAD, "keep"), ("load", _LOAD, "convert")] if options.load else []
        runs += [
            (f"export, {options.format} {options.quantize}", _EXPORT, str(bundle), options.format, options.quantize)
        ]
        for label, program, *arguments in runs:
            peak, seconds = measure(program, str(source), *arguments)
            print(
                f"{label:24} {peak / 1e9:6.2f} GB, {(peak - size) / 1e9:5.2f} beyond it; {seconds:5.0f} s", flush=True
            )
        print(f"bundle {sum(path.stat().st_size for path in bundle.rglob('*') if path.is_file()) / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
