"""Small bundles, and files of rows for them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import keras

import kerasformer as kf
from tests import shared, tiny_text

WORDS = "a warm and funny film about the loud chaotic plot that never ends well".split()


def classifier() -> Path:
    """Returns the bundle of a classifier, made once a session."""

    def make(folder: Path) -> None:
        keras.utils.set_random_seed(3)
        tokenizer = tiny_text.wordpiece()
        sizes = {"hidden_dim": 12, "num_layers": 1, "num_heads": 3, "intermediate_dim": 16, "max_length": 48}
        model = kf.zoo.build("bert", task="text-classification", vocab_size=tokenizer.vocab_size, num_labels=3, **sizes)
        for variable in model.trainable_variables:
            variable.assign(8 * variable)  # so that the classes differ
        model.tokenizer = tokenizer
        model.export(folder, format="onnx")

    return shared.once("integrations-classifier", make)


def writer() -> Path:
    """Returns the bundle of a model that generates, made once a session."""

    def make(folder: Path) -> None:
        keras.utils.set_random_seed(5)
        tokenizer = tiny_text.byte_pairs()
        sizes = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "max_length": 96}
        model = kf.zoo.build("gpt2", vocab_size=tokenizer.vocab_size, **sizes)
        for variable in model.trainable_variables:
            variable.assign(4 * variable)
        model.tokenizer = tokenizer
        model.export(folder, format="onnx")

    return shared.once("integrations-writer", make)


def texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(count)]


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "text": text} for number, text in enumerate(texts(count, seed))]


def write_lines(path: Path, content: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return path


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows of an output folder in order."""
    return [json.loads(line) for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]
