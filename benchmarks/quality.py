"""Divergence of quantized decoders from float32 on a text, beside llama.cpp: `python -m benchmarks.quality SRC TEXT`.

    python -m benchmarks.quality story-gpt2 TEXT --calibration OTHER_TEXT --bundles OUT_1 OUT_2

TEXT is a plain or gzip-compressed file that the model was not trained on. Weights are rounded as the formats store them
and the Keras model computes with them, so that no file has to be written; bundles run in their own runtime. The rows of
llama.cpp need the package `gguf`, which contains its quantization in NumPy: `Q4_0` with a token table in `Q8_0`, as
`llama-quantize` stores one whose width is no multiple of 256 (`Q6_K` otherwise), and vectors and position tables in
float32. llama.cpp also rounds the inputs of products, so that its row is a lower bound of its divergence.

KL is the mean divergence of the distributions of the next token, in nats; agreement, the share of positions with the
same most probable token; MB, the size of all weights.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.layouts import Layout, four_bit_kernels, num_bytes
from kerasformer.export.quantization.model_matrices import ModelMatrix, matrices
from kerasformer.export.quantization.recipes import RECIPES, Recipe
from kerasformer.export.quantization.sample_inputs import read_texts
from kerasformer.export.quantization.sensitivity import Simulation

LAYOUTS: dict[str, Layout] = {"tflite": TfliteLayout(), "onnx": OnnxLayout()}


class LlamaCppLayout:
    """Storage of matrices in GGUF files of the type Q4_0, as a `Layout`."""

    four_bit_tables = False

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """See `Layout.as_stored`."""
        import gguf

        kind, value = self._kind(matrix), np.ascontiguousarray(matrix.value())
        return value if kind is None else gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind)

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """See `Layout.num_bytes`."""
        import gguf

        kind = self._kind(matrix)
        values, size = (1, 4) if kind is None else gguf.GGML_QUANT_SIZES[kind]
        return prod(matrix.rows) * size // values

    def grid(self, matrix: ModelMatrix, recipe: Recipe) -> None:
        """See `Layout.grid`."""

    def _kind(self, matrix: ModelMatrix) -> Any:
        import gguf

        if not matrix.product:
            return None  # a table of positions
        return gguf.GGMLQuantizationType.Q8_0 if matrix.table else gguf.GGMLQuantizationType.Q4_0


class Text:
    """A text and the Keras model's distributions along it.

    Args:
        model: The model in float32.
        path: The text.
        length: Tokens of each row, which the model reads from its first token.
        rows: Number of rows.
    """

    def __init__(self, model: Any, path: Path, length: int, rows: int) -> None:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        ids = np.array(model.tokenizer.encode(text.decode("utf-8", "replace")[: 12 * length * rows]), "int32")
        self.ids = ids[: len(ids) // length * length].reshape(-1, length)[:rows]
        simulation = Simulation(model, [], LAYOUTS["tflite"])
        self.reference = [log_probabilities(simulation, row) for row in self.ids]

    def figures(self, received: Iterator[np.ndarray]) -> str:
        """Returns the columns of a table for the log-probabilities of each row, `(T, V)`."""
        divergence, same, losses = [], [], []
        for ids, expected, found in zip(self.ids, self.reference, received, strict=True):
            divergence.append((np.exp(expected) * (expected - found)).sum(axis=-1))
            same.append(expected.argmax(axis=-1) == found.argmax(axis=-1))
            losses.append(-found[np.arange(len(ids) - 1), ids[1:]])
        agreement, perplexity = np.mean(np.concatenate(same)), np.exp(np.mean(np.concatenate(losses)))
        return f"{np.mean(np.concatenate(divergence)):.5f} | {agreement:.1%} | {perplexity:.2f}"


def normalized(logits: np.ndarray) -> np.ndarray:
    """Returns log-probabilities."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_probabilities(simulation: Simulation, row: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities `(T, V)` along the ids `(T,)`."""
    outputs = simulation.run({"input_ids": row[None], "attention_mask": np.ones_like(row)[None]})
    return normalized(next(iter(outputs.values()))[0])


def of_bundle(folder: Path, ids: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the log-probabilities of each row, of a bundle in its runtime."""
    engine: Any = kf.pipeline("text-generation", folder).model
    for row in ids:
        state, logits = engine.start(row[None, :1], np.ones((1, 1), "int32")), []
        for token in row:
            scores, state = engine.step(token.reshape(1, 1), state)
            logits.append(scores[0, -1])
        yield normalized(np.stack(logits))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a decoder: a preset, a folder or a hub id")
    parser.add_argument("text", type=Path)
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--calibration", type=Path, help="file with one text per line; the default texts without it")
    parser.add_argument("--recipes", nargs="+", default=["int8", "int4", "int4_channel"], choices=RECIPES)
    parser.add_argument("--rounding", nargs="+", default=["nearest", "calibrated"], help="roundings of four bits")
    parser.add_argument("--bundles", nargs="+", type=Path, default=[])
    options = parser.parse_args()

    model = kf.zoo.load(options.source)
    text = Text(model, options.text, options.length, options.rows)
    print("| weights | rounding | MB | KL | agreement | perplexity |\n|---|---|--:|--:|--:|--:|")

    def measure(name: str, rounding: str, layout: Layout, recipe: Recipe, calibration: Any = None) -> None:
        parts = matrices(model, calibration)
        simulation = Simulation(model, parts, layout)
        simulation.store(replace(recipe, activations="float"))
        columns = text.figures(log_probabilities(simulation, row) for row in text.ids)
        size = num_bytes(model, parts, recipe, layout) / 1e6
        print(f"| {name} | {rounding} | {size:.2f} | {columns} |", flush=True)

    measure("float32", "", LAYOUTS["tflite"], RECIPES["none"])
    try:
        measure("llama.cpp Q4_0", "nearest", LlamaCppLayout(), RECIPES["int4"])
    except ImportError:
        print("| llama.cpp Q4_0 | needs the package gguf | | | | |")
    for recipe in (RECIPES[name] for name in options.recipes):
        for rounding in options.rounding if recipe.compensates else ["nearest"]:
            for name, layout in LAYOUTS.items():
                chosen = replace(recipe, rounding=rounding)
                kernels = four_bit_kernels(model, chosen, layout)
                texts = read_texts(options.calibration)
                found = calibrate(model, texts, kernels=kernels) if kernels else None
                measure(f"{name} {recipe.name}", rounding, layout, chosen, found)
    for folder in options.bundles:
        print(f"| {folder} in its runtime | | | {text.figures(of_bundle(folder, text.ids))} |", flush=True)


if __name__ == "__main__":
    main()
