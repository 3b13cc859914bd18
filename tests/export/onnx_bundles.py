"""Small models of the zoo written as ONNX files, with the manifest that a runtime needs; no tokenizer, no card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx

from kerasformer import zoo
from kerasformer.bundle import Manifest, Signature
from kerasformer.export.onnx_signatures import onnx_functions
from kerasformer.export.recipes import recipe
from kerasformer.export.to_onnx import write_onnx

TINY = {
    "bert": {"hidden_dim": 24, "num_layers": 2, "num_heads": 3, "intermediate_dim": 40, "max_length": 32},
    "gpt2": {"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "max_length": 40},
    # Heads that do not add up to the hidden size.
    "t5": {"hidden_dim": 20, "head_dim": 6, "num_layers": 2, "num_heads": 3, "intermediate_dim": 36},
}


def tiny(model_type: str, task: str | None = None, **settings: Any) -> Any:
    """A small model with weights of which the best answer stands out, and no bias 0 or scale 1."""
    model = zoo.build(model_type, task, vocab_size=61, **{**TINY[model_type], **settings})
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(generator.normal(0, 1.2 / np.sqrt(variable.shape[-1]), variable.shape))
        else:
            variable.assign(keras.ops.convert_to_numpy(variable) + generator.normal(0, 0.1, variable.shape))
    return model


def write(folder: Path, model: Any, quantize: str = "none", profile: str = "ort") -> Manifest:
    """Writes all files of a model into `folder/onnx`."""
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    functions = {f"onnx/{function.name}.onnx": function for function in onnx_functions(model)}
    write_onnx({folder / name: f for name, f in functions.items()}, model.variables, recipe(quantize), profile=profile)
    signatures = {f.name: Signature(name, f.inputs, f.outputs) for name, f in functions.items()}
    files = dict.fromkeys(functions, "0" * 64)
    capacity = 40 if model.generates else None
    encoder_capacity = 48 if model.is_encoder_decoder else None
    return Manifest("onnx", model.info(), signatures, capacity, encoder_capacity, files=files)


def load(folder: Path, name: str = "model") -> onnx.ModelProto:
    """A written file."""
    return onnx.load(str(folder / "onnx" / f"{name}.onnx"))


def padded(rows: int, length: int, side: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Random ids `(rows, length)` and a mask with ever more padding on one side."""
    ids = np.random.default_rng(seed).integers(2, 61, (rows, length)).astype("int32")
    real = np.arange(length)[None] >= 2 * np.arange(rows)[:, None]
    return ids, (real if side == "left" else real[:, ::-1]).astype("int32")
