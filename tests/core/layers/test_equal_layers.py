"""Stacks whose equal layers are traced once compute the same as with every layer traced."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.extras import require
from kerasformer.layers import DecoderLayer, StaticCache, Visibility
from kerasformer.layers.equal_layers import EqualLayers
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.keras_forward import KerasForward

SIZES = {"vocab_size": 32, "hidden_dim": 16, "intermediate_dim": 24, "num_heads": 4, "num_key_value_heads": 2}
SLOTS = 8

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports are traced with TensorFlow")


class Lowering(Primitives):
    """Plain primitives that share equal layers, with tensors in place of the variables."""

    def __init__(self, tensors: dict[int, Any], storage: Any) -> None:
        self._layers = EqualLayers([tensors], storage)

    def layer(self, layer: Any, x: Any, arguments: dict[str, Any]) -> Any:
        return self._layers.call(layer, x, arguments)


def answers(model: Any, storage: Any = lambda variable: None) -> Any:
    """Returns the logits and caches of a model that is traced with shared layers, and those without."""
    tf = require("tensorflow", "export")
    tokens = np.arange(3, dtype="int32")[None]
    generator = np.random.default_rng(1)
    shapes = model.cache_shapes(1, SLOTS)
    caches = [tuple(generator.standard_normal((2, *shape)).astype("float32")) for shape in shapes]

    def call(caches: Any) -> Any:
        position = keras.ops.convert_to_tensor(2)
        visibility = Visibility(
            causal=True, query_slots=np.arange(2, 5, dtype="int32"), key_slots=np.arange(SLOTS, dtype="int32")
        )
        logits, new = model.decode(tokens, visibility, [StaticCache(tuple(pair), position) for pair in caches])
        return [logits, *(tensor for cache in new for tensor in (cache.key, cache.value))]

    @tf.function(autograph=False)
    def shared(caches: Any, values: Any) -> Any:
        scope = keras.StatelessScope()
        scope.state_mapping = {id(v): value for v, value in zip(model.variables, values, strict=True)}
        with scope, lowering(Lowering(scope.state_mapping, storage)):
            return call(caches)

    return shared(caches, [variable.value for variable in model.variables]), call(caches)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the layers whose `call` ran."""
    names, original = [], DecoderLayer.call

    def call(self: DecoderLayer, *arguments: Any, **keywords: Any) -> Any:
        names.append(self.name)
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(DecoderLayer, "call", call)
    return names


def windowed() -> Any:
    """Returns a model in which every third layer has no sliding window, and another base of rotary positions."""
    options = {"window_size": 4, "global_every": 3, "head_dim": 4, "max_length": 64}
    return zoo.build("gemma3_text", "text-generation", num_layers=9, **SIZES, **options)


def plain() -> Any:
    return zoo.build("llama", "text-generation", num_layers=5, max_length=64, **SIZES)


@pytest.mark.parametrize(("make", "kinds"), [(plain, 1), (windowed, 2)])
def test_the_same_answers_with_two_traces_of_each_kind(make: Any, kinds: int, traced: list[str]) -> None:
    model = make()
    for variable in model.variables:  # norms, too, differ from layer to layer
        variable.assign(variable + 0.1 * keras.random.normal(variable.shape, seed=len(variable.path)))
    shared, expected = answers(model)
    layers = model.config.num_layers
    assert len(traced) == 2 * kinds + layers  # the expected answers trace nothing
    for received, wanted in zip(shared, expected, strict=True):
        np.testing.assert_allclose(received, wanted, atol=1e-5)


def test_layers_with_other_storage_or_settings_are_not_shared(traced: list[str]) -> None:
    model = plain()
    answers(model, storage=lambda variable: "layer_2" in variable.path)
    assert traced[:3] == ["layer_0", "layer_1", "layer_2"]
    traced.clear()
    model.backbone.decoder.layers[3].attention.spec = type(model.backbone.decoder.layers[3].attention.spec)(
        **{**vars(model.backbone.decoder.layers[3].attention.spec), "scale": 0.3}
    )
    shared, expected = answers(model)
    assert traced[:3] == ["layer_0", "layer_1", "layer_3"]
    np.testing.assert_allclose(shared[0], expected[0], atol=1e-5)


def test_engines_trace_equal_layers_once(traced: list[str]) -> None:
    """A model of thirty layers answers first in half the time."""
    model = plain()
    ids = np.arange(6, dtype="int32")[None]
    received = KerasForward(model).run({"input_ids": ids, "attention_mask": np.ones_like(ids)})["logits"]
    assert len(traced) == 3
    np.testing.assert_allclose(received, model({"input_ids": ids}), atol=1e-5)
    step = KerasStep(model, 16, jit_compile=False)
    traced.clear()
    logits, _ = step.step(ids[:, -1:], step.start(ids, np.ones_like(ids)))
    assert len(traced) == 6  # three for the prompt, and three for a step
    np.testing.assert_allclose(logits[:, -1], received[:, -1], atol=1e-5)
