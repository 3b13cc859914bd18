"""Int8 caches against caches of float32, and their refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import layers
from kerasformer.bundle.interface import growing_caches
from kerasformer.engines import Step
from kerasformer.engines.onnx import OnnxStep
from kerasformer.errors import InputError
from kerasformer.export import export
from kerasformer.export.quantization.cache_scales import measure_cache_scales
from kerasformer.layers import CacheScales, GrowingCache
from tests.core.engines.test_steps import ROWS, VOCAB, model, scales, written

ENGINES = ["litert", "onnx", "onnx-portable"]


def logits(step: Any, ids: np.ndarray) -> np.ndarray:
    """Returns the logits after each token except the first four, which the engine reads at once."""
    state, rows = step.start(ids[:, :5], np.ones((len(ids), 5), np.int32)), []
    for column in ids[:, 4:].T:
        scores, state = step.step(column[:, None], state)
        rows.append(scores)
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.grid
def test_logits_are_near_those_of_float32(engine: str) -> None:
    ids = np.random.default_rng(3).integers(2, VOCAB, (2, 24), "int32")
    expected = logits(ROWS["keras"].opened("gpt2"), ids)
    step = ROWS[f"{engine}-int8-caches"].opened("gpt2")
    assert isinstance(step, Step)
    errors = np.abs(logits(step, ids) - expected) / np.abs(expected).max()
    # Half a level of each key and value, of which some cancel.
    assert 1e-5 < errors.max() < 0.02


def test_the_manifest_has_the_type_and_the_size() -> None:
    ROWS["onnx-int8-caches"].opened("gpt2")
    _, manifest = written("onnx-ort-none-int8-gpt2", lambda folder: pytest.fail("written before"))
    name, _ = growing_caches(0)
    assert manifest.signatures["model"].inputs[name].dtype == manifest.cache_dtype == "int8"
    config = model("gpt2").config
    # Keys and values of 40 slots, of one byte each.
    assert manifest.cache_bytes == 2 * config.num_layers * config.hidden_dim * 40


def test_a_saved_state_of_int8_has_a_quarter_of_the_bytes_and_is_its_own() -> None:
    ids = np.full((1, 20), 7, np.int32)
    states = []
    for name in ("onnx", "onnx-int8-caches"):
        step = ROWS[name].opened("gpt2")
        assert isinstance(step, OnnxStep)
        saved = step.save(step.start(ids, np.ones_like(ids)))
        names = {name for layer in range(2) for name in growing_caches(layer)}
        states.append({name: array for name, array in saved.arrays.items() if name in names})
        float32 = replace(saved, arrays=dict(saved.arrays) | states[0])
    assert 4 * sum(x.nbytes for x in states[1].values()) == sum(x.nbytes for x in states[0].values())
    with pytest.raises(InputError, match="with the data type int8.*Read the text again"):
        step.restore(float32)


def test_scales_cover_the_texts() -> None:
    made = model("gpt2")
    measured = scales("gpt2")
    again = measure_cache_scales(made, ["a text"] * 8)
    shape = (made.config.num_heads, 1, made.config.hidden_dim // made.config.num_heads)
    assert len(measured) == made.config.num_layers
    for one, other in zip(measured, again, strict=True):
        assert one.key.shape == one.value.shape == shape and one.key.dtype == np.float32
        assert (one.key > 0).all() and (one.value > 0).all()
        np.testing.assert_array_equal(one.key, other.key)


def test_groups_that_share_heads_and_numbers_beyond_the_range() -> None:
    keras.utils.set_random_seed(0)
    attention = layers.MultiHeadAttention(4, 32, num_key_value_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 9, 32)).astype("float32")
    attention(x)
    empty = np.zeros((2, 2, 2, 0, 8), "float32")
    full = attention(x, cache=GrowingCache(tuple(empty)), return_cache=True)
    key, value = (keras.ops.convert_to_numpy(tensor) for tensor in (full["cache"].key, full["cache"].value))

    def of(share: float) -> dict[str, Any]:
        found = CacheScales(*(share * np.abs(y).max(axis=(0, 2))[:, None] / 127 for y in (key, value)))
        cache = GrowingCache(tuple(empty.astype("int8")), scales=found)
        return dict(attention(x, cache=cache, return_cache=True), scales=found)

    within = of(1.0)
    restored = keras.ops.convert_to_numpy(within["cache"].key).astype("float32") * within["scales"].key
    assert np.abs(restored - key).max() <= 0.501 * within["scales"].key.max()
    outputs = [keras.ops.convert_to_numpy(each["output"]) for each in (within, full)]
    np.testing.assert_allclose(*outputs, atol=0.02 * np.abs(outputs[1]).max())
    limited = keras.ops.convert_to_numpy(of(0.5)["cache"].key)
    assert limited.dtype == np.int8 and limited.min() == -127 and limited.max() == 127  # and not overflowed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "sentiment-bert"}, "cache_dtype is only for decoders"),
        ({"format": None, "target": "transformers.js"}, "passes caches of float32"),
        ({"format": "saved-model"}, "passes caches of float32"),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str, tmp_path: Any) -> None:
    settings = {"model": "story-gpt2", "format": "onnx", "cache_dtype": "int8", **arguments}
    with pytest.raises(InputError, match=message):
        export(destination=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()
