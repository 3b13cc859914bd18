"""Rotation of hidden states: the model computes the same, and eight bits lose less if it has enormous channels."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from kerasformer.bundle.recipes import recipe
from kerasformer.export import export
from kerasformer.export.api import _rotates as rotates_in
from kerasformer.export.graph.variable_values import value_of
from kerasformer.export.quantization.rotation import Rotation, rotated, rotates
from kerasformer.models.variables import release_weights
from kerasformer.zoo import load
from tests.core.export.text_models import ROWS

ROTATED = {"llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "phi3"}
GENERATING = [name for name in ROWS if name.endswith("-text-generation")]


def outputs(model):
    return np.asarray(model({"input_ids": np.array([[3, 9, 27, 81, 16, 48]])}, training=False))


def with_enormous_channels(model):
    """Makes three channels of the inputs of products a hundred times as large, and their weights as much smaller."""
    channels, factor = [1, 40, 70], 100.0
    for layer in model.backbone.decoder.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        for norm, parts in (
            (layer.attention_norm, (attention.query, attention.key, attention.value)),
            (layer.feed_forward_norm, (feed_forward.gate, feed_forward.up)),
        ):
            for variable, change in ((norm.scale, factor), *((part.kernel, 1 / factor) for part in parts)):
                value = np.asarray(variable).copy()
                value[channels] *= change
                variable.assign(value)
    return model


@pytest.mark.parametrize("size", [1, 64, 72, 96, 128, 576, 2048])
def test_rotations_are_orthogonal_and_spread_each_channel(size):
    matrix = Rotation(size).of_rows(np.eye(size, dtype="float32"))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-5)
    assert np.abs(matrix).max() <= 1.42 / np.sqrt(size)
    values = np.random.default_rng(0).standard_normal((size, 5)).astype("float32")
    np.testing.assert_allclose(Rotation(size).of_columns(values), matrix.T @ values, atol=1e-4)


@pytest.mark.parametrize("name", GENERATING)
def test_a_rotated_model_computes_the_same(name):
    model = ROWS[name].model()
    assert rotates(model, recipe("int8")) == (name.removesuffix("-text-generation") in ROTATED)
    assert not rotates(model, recipe("none")) and not rotates(model, recipe("fp16"))
    if not rotates(model, recipe("int8")):
        return
    before, variables = outputs(model), [variable.path for variable in model.variables]
    table = np.asarray(model.backbone.tokens.embeddings)
    with rotated(model):
        received = outputs(model)
        assert np.abs(np.asarray(model.backbone.tokens.embeddings) - table).max() > 0.1
    assert np.abs(received - before).max() <= 1e-5 * np.abs(before).max()
    np.testing.assert_array_equal(outputs(model), before)
    assert [variable.path for variable in model.variables] == variables


@pytest.mark.parametrize("keep", [True, False])
def test_weights_that_are_read_again_are_rotated(keep, tmp_path):
    ROWS["llama-text-generation"].model().save_pretrained(tmp_path)
    model = load(tmp_path)
    before = outputs(model)
    with rotated(model, keep):
        values = [np.asarray(value_of(variable)) for variable in model.variables]
        release_weights(model)
        for variable, value in zip(model.variables, values, strict=True):
            np.testing.assert_allclose(value_of(variable), value, atol=1e-6)
        assert np.abs(outputs(model) - before).max() <= 1e-5 * np.abs(before).max()
    np.testing.assert_array_equal(outputs(model), before)


@pytest.mark.grid
@pytest.mark.parametrize("format", [pytest.param("tflite", marks=pytest.mark.release), "onnx"])
def test_eight_bits_lose_less_with_enormous_channels(format, tmp_path, monkeypatch):
    model = with_enormous_channels(ROWS["llama-text-generation"].model())
    lenient = dataclasses.replace(recipe("int8"), tolerance=1e9, min_agreement=0.0)
    divergences = []
    for name, rotation in (("rotated", True), ("plain", False)):
        if not rotation:
            monkeypatch.setattr("kerasformer.export.api._rotates", lambda job: False)
        manifest = export(model, tmp_path / name, format, lenient, capacity=64).manifest
        divergences.append(manifest.fidelity["divergence"])
        assert manifest.recipe["rounding"] == ("calibrated" if rotation else "nearest")
    assert divergences[0] < divergences[1] / 10


def test_adapters_prevent_rotation():
    model = ROWS["llama-text-generation"].model()
    for rank, expected in ((None, True), (4, False)):
        assert rotates_in(SimpleNamespace(model=model, lora_rank=rank, recipe=recipe("int8"))) is expected
