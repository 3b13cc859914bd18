"""Small models of the zoo as ONNX files, with a manifest but without tokenizer and card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import onnxruntime

from kerasformer import zoo
from kerasformer.bundle import Manifest
from kerasformer.bundle.recipes import Recipe, recipe
from kerasformer.export.formats.onnx.convert import write_onnx
from kerasformer.export.formats.onnx.signatures import onnx_functions
from kerasformer.layers import CacheScales

ENCODER = {"hidden_dim": 24, "num_layers": 2, "num_heads": 3, "intermediate_dim": 40}
SHORT = {**ENCODER, "max_length": 32}
TINY: dict[str, dict[str, Any]] = {
    "bert": SHORT,
    "distilbert": SHORT,
    "albert": {**SHORT, "embedding_dim": 12},
    "lfm2": {
        **ENCODER, "num_layers": 3, "num_key_value_heads": 1, "intermediate_dim": 60, "multiple_of": 8,
        "convolution_size": 4, "layer_types": ["conv", "full_attention", "conv"],
    },
    "qwen3_5_text": {
        **ENCODER, "num_layers": 3, "num_key_value_heads": 1, "head_dim": 8, "kernel_size": 3, "key_dim": 6,
        "value_dim": 5, "num_key_heads": 2, "num_value_heads": 4, "full_every": 2, "epsilon": 0.1,
    },
    "falcon_h1": {
        **ENCODER, "num_key_value_heads": 1, "head_dim": 8, "kernel_size": 3, "state_size": 20, "num_state_heads": 4,
        "state_dim": 6, "num_groups": 2, "state_part_factors": [0.5, 0.8, 1.2, 1.5, 0.9], "epsilon": 0.1,
    },
    "bloom": {"hidden_dim": 36, "num_layers": 2, "num_heads": 6},
    "big_bird": {**ENCODER, "max_length": 64, "block_size": 4, "num_random_blocks": 1, "sep_token_id": 2},
    "longformer": {
        **ENCODER, "num_positions": 66, "num_segments": 1, "attention_window": [8, 10], "max_global_tokens": 6,
    },
    "mobilebert": {**SHORT, "embedding_dim": 10, "bottleneck_dim": 15, "num_feed_forwards": 2},
    "gpt2": {"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "max_length": 40},
    # Heads that share keys and values, and do not add up to the hidden size.
    "llama": {
        "hidden_dim": 32, "head_dim": 6, "num_layers": 2, "num_heads": 4, "num_key_value_heads": 2,
        "intermediate_dim": 40, "max_length": 40, "epsilon": 1e-3,
    },
    # Heads that do not add up to the hidden size.
    "t5": {"hidden_dim": 20, "head_dim": 6, "num_layers": 2, "num_heads": 3, "intermediate_dim": 36},
}  # fmt: skip


def tiny(model_type: str, task: str | None = None, **settings: Any) -> Any:
    """Returns a small model with weights that give a clear best answer, and without zero biases or unit scales."""
    model = zoo.build(model_type, task, vocab_size=61, **{**TINY[model_type], **settings})
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(generator.normal(0, 1.2 / np.sqrt(variable.shape[-1]), variable.shape))
        else:
            variable.assign(keras.ops.convert_to_numpy(variable) + generator.normal(0, 0.1, variable.shape))
    return model


def write(
    folder: Path,
    model: Any,
    quantize: str | Recipe = "none",
    profile: str = "ort",
    scales: Sequence[CacheScales | None] | None = None,
    **settings: Any,
) -> Manifest:
    """Writes all files of a model into `folder/onnx`.

    `scales` are those of int8 caches; `settings` are those of `write_onnx`.
    """
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    functions = {f"onnx/{function.name}.onnx": function for function in onnx_functions(model, scales=scales)}
    paths = {folder / name: f for name, f in functions.items()}
    in_place = write_onnx(paths, model.variables, recipe(quantize), profile=profile, **settings)
    signatures = {f.name: f.signature(name).with_in_place(in_place[folder / name]) for name, f in functions.items()}
    files = dict.fromkeys(functions, "0" * 64)
    capacity = 40 if model.generates else None
    encoder_capacity = 48 if model.is_encoder_decoder else None
    return Manifest("onnx", model.info(), signatures, capacity, encoder_capacity, files=files)


def load(folder: Path, name: str = "model") -> onnx.ModelProto:
    """A written file."""
    return onnx.load(str(folder / "onnx" / f"{name}.onnx"))


def padded(rows: int, length: int, side: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Returns random ids `(rows, length)` and a mask with increasing padding on one side."""
    ids = np.random.default_rng(seed).integers(2, 61, (rows, length)).astype("int32")
    real = np.arange(length)[None] >= 2 * np.arange(rows)[:, None]
    return ids, (real if side == "left" else real[:, ::-1]).astype("int32")


def session(path: Path, **config: str) -> onnxruntime.InferenceSession:
    """An opened file; `config` are entries of ONNX Runtime's session options, with `_` for the dots."""
    options = onnxruntime.SessionOptions()
    for name, value in config.items():
        options.add_session_config_entry(name.replace("_", ".", 1), value)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path: Path, feeds: dict[str, np.ndarray], **config: str) -> dict[str, np.ndarray]:
    """All outputs of a file."""
    opened = session(path, **config)
    return dict(zip([output.name for output in opened.get_outputs()], opened.run(None, feeds), strict=True))


def feeds_of(model: Any, seed: int = 1) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Returns the inputs of the first step for each file: a padded batch, and caches of length 0."""
    ids, mask = padded(3, 9, "left" if model.generates and not model.is_encoder_decoder else "right", seed)
    ids64, mask64 = ids.astype("int64"), mask.astype("int64")
    feeds = []
    for function in onnx_functions(model):
        given = {
            "input_ids": ids64,
            "attention_mask": mask64,
            "encoder_attention_mask": mask64,
            "token_type_ids": ids64 % 2,
            "position_ids": np.maximum(mask64.cumsum(axis=1) - 1, 0),
        }
        for name, info in function.inputs.items():
            if name.startswith("past_key_values"):
                given[name] = np.zeros((3, info.shape[1], 0, info.shape[3]), "float32")
        if "encoder_hidden_states" in function.inputs:
            given["encoder_hidden_states"] = np.asarray(model.encode(ids, mask))
        feeds.append((function.name, {name: given[name] for name in function.inputs if name not in function.defaults}))
    return feeds


def expected(model: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the answers of the Keras model to `feeds_of` with its default seed."""
    arrays = {name: value.astype("int32") for name, value in feeds.items() if value.dtype == np.int64}
    if not model.is_encoder_decoder:
        return {name: np.asarray(value) for name, value in model.named(model(arrays)).items()}
    if "encoder_hidden_states" not in feeds:
        return {"last_hidden_state": np.asarray(model.encode(arrays["input_ids"], arrays["attention_mask"]))}
    ids, mask = padded(3, 9, "right")
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": arrays["input_ids"]}
    return {"logits": np.asarray(model(inputs))}
