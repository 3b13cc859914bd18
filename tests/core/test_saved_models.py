"""Saved models, loaded by another process: every layer in two kinds of models, and every model of the zoo."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import layers, zoo
from tests import shared, tiny_text
from tests.core.layers import composites
from tests.core.layers.cases import CASES
from tests.core.layers.parity import Arrays, functional
from tests.core.zoo.cases import RELATIVES
from tests.open_saved_models import Subclassed, flat

pytestmark = [
    pytest.mark.grid,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the files are the same on every backend"),
]

ROOT = Path(__file__).parents[2]
SIZES = {
    "vocab_size": 203, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "num_key_value_heads": 1, "head_dim": 6,
    "intermediate_dim": 20, "num_decoder_layers": 1, "decoder_num_heads": 3, "decoder_intermediate_dim": 20,
    "max_length": 16, "num_positions": 18, "embedding_dim": 5, "bottleneck_dim": 9, "token_dim": 6,
    "block_size": 1, "num_random_blocks": 1, "convolution_size": 3, "n_languages": 3,
}  # fmt: skip
"""Values of settings, for the architectures that have them."""
RELATIVE = {"relative_attention": True, "relative_terms": "c2p|p2c"}
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("deberta", "deberta-v2"), RELATIVE),
    "gpt_neox": {"rope": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "gptj": {"rotary_dim": 4},
    "marian": {"decoder_start_token_id": 0},
    "qwen3_5_text": {
        "rope": {"rope_theta": 10000.0, "partial_rotary_factor": 0.67},
        "kernel_size": 3,
        "key_dim": 5,
        "value_dim": 4,
        "num_key_heads": 1,
        "num_value_heads": 2,
    },
    "granitemoehybrid": {"num_state_heads": 4, "state_dim": 5, "kernel_size": 3},
    "falcon_h1": {"num_state_heads": 4, "state_size": 20, "state_dim": 5, "kernel_size": 3},
}
"""Further settings of single architectures."""
SEVERAL_HEADS = ("bert", "gpt2", "t5")
"""Architectures that have most heads among them; of the others with layers of their own, one model is enough."""


def main_task(tasks: Iterable[str]) -> list[str]:
    """Returns the task of a model that generates, or else the first one."""
    return sorted(tasks, key=lambda task: "generation" not in task)[:1]


MODELS = [
    (model_type, task)
    for model_type, tasks in zoo.models().items()
    if model_type not in RELATIVES
    for task in (tasks if model_type in SEVERAL_HEADS else main_task(tasks))
    if task != "sentence-similarity" or model_type in ("bert", "gpt2")
]
POSITIONS = {"positions": np.array([[0, 1, 2], [2, 5, 3]], "int32")}
MASK = np.array([[1, 1, 1], [1, 1, 0]], "int32")
WAYS = ["by default", "and padding", "by masks", "by a visibility"]
IDS = {"ids": np.array([[4, 8, 1], [2, 0, 0]], "int32")}
SLOTS = np.array([[1, 2], [0, -1]], "int32")
ALONE: dict[str, tuple[keras.layers.Layer, Arrays]] = {
    "sinusoidal positions": (layers.SinusoidalPositions(9, 12), POSITIONS),
    "relative positions": (
        layers.RelativePositionBias(8, 10, 3, bidirectional=True),
        {"query_positions": np.arange(5, dtype="int32"), "key_positions": np.arange(7, dtype="int32")},
    ),
    "short convolution": (layers.ShortConvolution(12, 3), {"x": np.ones((2, 3, 12), "float32")}),
    "gated delta net": (layers.GatedDeltaNet(12, 4, 2, 3, 5, 3), {"x": np.ones((2, 3, 12), "float32")}),
    "mamba-2": (layers.Mamba2(12, 4, 2, 3, 5, convolution_bias=True), {"x": np.ones((2, 3, 12), "float32")}),
    "attention and mamba-2": (
        layers.ParallelMixer(
            layers.MultiHeadAttention(2, 12, name="attention"),
            layers.Mamba2(12, 4, 2, 3, 5, has_norm=False, input_scales=[0.5, 0.6, 0.7, 0.8, 0.9], name="mamba"),
            *(0.5, 0.9, 1.1),
        ),
        {"x": np.random.default_rng(2).normal(size=(2, 3, 12)).astype("float32")},
    ),
    "gated attention": (
        layers.GatedAttention(2, 12),
        {"query": np.random.default_rng(2).normal(size=(2, 3, 12)).astype("float32")},
    ),
    "feed-forward head": (layers.FeedForwardHead(2, 12, 20), {"x": np.ones((2, 3, 12), "float32")}),
    "output": (
        layers.LMHead(11, tied=False, use_bias=True, scale=0.5, softcap=3.0),
        {"x": np.ones((2, 3, 12), "float32")},
    ),
    "vectors of tokens": (
        layers.MultiVectorHead([layers.Projection(5, None)], unified=True),
        {"x": np.random.default_rng(2).normal(size=(2, 3, 12)).astype("float32"), "attention_mask": MASK},
    ),
    "spans": (
        layers.SpanHead(12, 3),
        {
            "x": np.random.default_rng(2).normal(size=(2, 3, 12)).astype("float32"),
            "word_slots": SLOTS,
            "label_slots": SLOTS,
        },
    ),
}
"""Layers that are not in a row of `CASES`."""


def causal_decoders() -> dict[str, tuple[keras.Model, Arrays]]:
    """Returns functional models of a decoder and of texts of any length, by the way in which it is causal."""
    x, mask = keras.Input((None, 12), name="x"), keras.Input((None,), dtype="int32", name="mask")
    ways: dict[str, dict[str, Any]] = {
        "by default": {"return_attention": True},
        "and padding": {"attention_mask": mask},
        "by masks": {"attention_mask": keras.ops.logical_and(layers.causal_mask(x), layers.padding_mask(mask))},
        "by a visibility": {"visibility": layers.Visibility(causal=True, positions=np.array([[0, 1, 4]], "int32"))},
    }
    models = {}
    for name, arguments in ways.items():
        attention = layers.MultiHeadAttention(3, 12, rotary=layers.Rotary(dim=4))
        decoder = layers.Decoder([layers.DecoderLayer(attention, layers.FeedForward(12, 20))])
        used = {"x": x, "mask": mask} if "attention_mask" in arguments else {"x": x}
        arrays = {"x": np.random.default_rng(1).normal(size=(2, 3, 12)).astype("float32"), "mask": MASK}
        models[name] = keras.Model(used, decoder(x, **arguments)), {name: arrays[name] for name in used}
    return models


def adapted() -> keras.layers.Layer:
    """A layer with low-rank adapters."""
    layer = layers.Dense(5)
    layer.build((None, 12))
    layer.enable_lora(2)
    return layer


def used_layers() -> dict[str, tuple[keras.layers.Layer, Arrays]]:
    """Returns every layer by name, with its inputs."""
    alone = {**ALONE, "low rank": (adapted(), {"x": np.ones((2, 12), "float32")})}
    return {**{case.name: (case.layer(), case.inputs) for case in CASES}, **alone}


def spread(model: keras.Model) -> None:
    """Sets all weights to random numbers; with initial zeros or ones, a missing weight would go unnoticed."""
    random = np.random.default_rng(0)
    for variable in model.weights:
        if "seed" not in variable.path:
            variable.assign(random.normal(size=variable.shape) * 0.4)


def save(model: keras.Model, inputs: Arrays, path: Path) -> None:
    """Saves a model, with inputs and outputs in a second file."""
    model(inputs)
    spread(model)
    np.savez(path.with_suffix(".npz"), _expected=flat(model(inputs)), **inputs)
    model.save(path)


def zoo_model(model_type: str, task: str) -> Any:
    """A small model with a tokenizer and generation settings."""
    known = dataclasses.fields(zoo.architecture(model_type).MODELS[task].backbone_type.config_type)
    sizes = {field.name: SIZES[field.name] for field in known if field.name in SIZES}
    model = zoo.build(model_type, task, **sizes, **SETTINGS.get(model_type, {}))
    model.tokenizer = tiny_text.wordpiece()
    model.generation_config = model.generation_config.replace(max_new_tokens=7, eos_token_id=3)
    return model


def save_and_open(folder: Path) -> None:
    """Saves all models in a folder, with the results of the other process in `opened.json`."""
    (folder / "own").mkdir(parents=True)
    for name, (layer, inputs) in used_layers().items():
        own = type(layer).__module__ == composites.__name__
        target = folder / "own" if own else folder
        save(Subclassed(layer, list(inputs)), inputs, target / f"{name} subclassed.keras")
        twin = type(layer).from_config(layer.get_config())
        save(functional(twin, inputs), inputs, target / f"{name} functional.keras")
    for model_type, task in MODELS:
        model = zoo_model(model_type, task)
        inputs = {name: IDS["ids"] for name in ("input_ids", "decoder_input_ids") if name in model.input_names}
        inputs |= {name: SLOTS for name in ("word_slots", "label_slots") if name in model.input_names}
        save(model, inputs, folder / f"{model_type} {task}.keras")
    for way, (model, inputs) in causal_decoders().items():
        save(model, inputs, folder / f"causal {way}.keras")
    model = zoo_model("bert", "text-classification")
    backbone = type(model.backbone).from_config(model.backbone.get_config())
    save(functional(backbone, IDS), IDS, folder / "backbone.keras")
    whole = {"input_ids": keras.Input((None,), dtype="int32", name="input_ids")}
    save(keras.Model(whole, layers.Dense(4)(model(whole))), {"input_ids": IDS["ids"]}, folder / "whole.keras")
    result = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "open_saved_models.py"), str(folder), str(ROOT)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    (folder / "opened.json").write_text(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def opened() -> dict[str, Any]:
    """Results of the other process for each file."""
    folder = shared.once(f"saved-models-{shared.sources()}", save_and_open)
    return json.loads((folder / "opened.json").read_text())


@pytest.mark.parametrize("kind", ["subclassed", "functional"])
@pytest.mark.parametrize("name", [*(case.name for case in CASES), *ALONE, "low rank"])
def test_layers(opened: dict[str, Any], name: str, kind: str) -> None:
    # Adapters merged in the file are rounded differently from a sum of two products.
    assert opened[f"{name} {kind}"] <= (1e-6 if name == "low rank" else 0.0)


@pytest.mark.parametrize(("model_type", "task"), MODELS)
def test_models_with_tokenizer_and_settings(opened: dict[str, Any], model_type: str, task: str) -> None:
    model = zoo_model(model_type, task)
    found, settings, ids = opened[f"{model_type} {task}"]
    assert found == 0.0
    assert settings == model.generation_config.to_dict() and settings["max_new_tokens"] == 7
    assert ids == model.tokenizer("Hello, world").input_ids.tolist()


@pytest.mark.parametrize("part", ["backbone", "whole"])
def test_a_zoo_model_inside_a_user_model(opened: dict[str, Any], part: str) -> None:
    assert opened[part] == 0.0


@pytest.mark.parametrize("way", WAYS)
def test_functional_causal_decoders(opened: dict[str, Any], way: str) -> None:
    assert opened[f"causal {way}"] == 0.0


def test_every_public_layer_is_covered() -> None:
    public = {
        value for value in vars(layers).values() if isinstance(value, type) and issubclass(value, keras.layers.Layer)
    }
    used = [layer for layer, _ in used_layers().values()]
    shown = {model_type: [*main_task(tasks), "sentence-similarity"] for model_type, tasks in zoo.models().items()}
    used += [zoo_model(model_type, task) for model_type, task in MODELS if task in [*shown[model_type], "fill-mask"]]
    seen = {type(part) for layer in used for part in layer._flatten_layers()}
    assert public - {layers.Composite, layers.RecurrentLayer, layers.TokenMixer} <= seen  # without the base classes
