"""Embeddings of texts from the backbone of every architecture."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.bundle import architectures
from kerasformer.errors import CheckpointError
from kerasformer.layers import Projection, SentenceHead, SentencePooling
from kerasformer.layers.sentence import POOLINGS
from kerasformer.tools.testing.comparison import assert_close, make_inputs, ragged, run_reference
from tests.core.zoo.cases import DISTINCT, FIRST
from tests.core.zoo.harness import of_heads, rows

SETTINGS = zoo.SentenceSettings(("mean", "lasttoken"), ("normalize",))


def pooled(mode: str, states: np.ndarray) -> np.ndarray:
    """Returns the vector of the states `(T, E)` of a text without padding."""
    weights = np.arange(1, len(states) + 1)[:, None]
    return {
        "cls": lambda: states[0],
        "lasttoken": lambda: states[-1],
        "max": lambda: states.max(axis=0),
        "mean": lambda: states.mean(axis=0),
        "mean_sqrt_len_tokens": lambda: states.sum(axis=0) / np.sqrt(len(states)),
        "weightedmean": lambda: (states * weights).sum(axis=0) / weights.sum(),
    }[mode]()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("mode", POOLINGS)
def test_poolings(mode, side):
    mask = ragged((7, 1, 4), side)
    states = np.random.default_rng(2).normal(-3, 1, (3, 7, 5)).astype("float32")
    expected = np.stack([pooled(mode, row[real > 0]) for row, real in zip(states, mask, strict=True)])
    layer = SentencePooling([mode])
    tolerance = 1e-6 * np.abs(expected).max()  # sums of seven numbers, which round by 6e-8 of their size
    received = keras.ops.convert_to_numpy(layer(states, attention_mask=mask))
    np.testing.assert_allclose(received, expected, rtol=0, atol=tolerance)
    everything = np.stack([pooled(mode, row) for row in states])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(states)), everything, rtol=0, atol=tolerance)


def test_half_precision():
    """Sums and lengths of long texts are beyond the range of float16."""
    states = np.full((2, 300, 8), 250.0, "float16")
    head = SentenceHead(["mean", "max"], [Projection(6, None), "normalize"], dtype="float16")
    found = keras.ops.convert_to_numpy(head(states, attention_mask=np.ones((2, 300), "int32")))
    assert found.dtype == np.float16 and np.allclose(np.linalg.norm(found.astype("float32"), axis=1), 1, atol=2e-3)
    assert (keras.ops.convert_to_numpy(SentencePooling()(states)) == 250).all()


@pytest.mark.parametrize("row", of_heads(rows(DISTINCT, tasks=("feature-extraction",), on_jax=False)))
def test_every_architecture_computes_embeddings(loaded, row):
    it = loaded(row)
    model = zoo.load(it.folder, "sentence-similarity", sentence=SETTINGS)
    assert model.task == "sentence-similarity" and type(model) is type(it.model)
    inputs = make_inputs(it)
    output = run_reference(it.reference, inputs)
    states = output[it.model.output_name].numpy()
    expected = []
    for text, real in zip(states, inputs["attention_mask"] > 0, strict=True):
        vector = np.concatenate([pooled(mode, text[real]) for mode in SETTINGS.pooling])
        expected.append(vector / np.linalg.norm(vector))
    named = model.named(model(inputs))
    assert list(named) == ["sentence_embedding"]
    assert_close({}, keras.ops.convert_to_numpy(named["sentence_embedding"]), np.stack(expected))
    assert model.info().embedding.dimension == 2 * model.config.hidden_dim


def test_architectures_list_the_task():
    for model_type, tasks in zoo.models().items():
        assert list(tasks) == architectures.models()[model_type]
        assert ("sentence-similarity" in tasks) == ("feature-extraction" in tasks)


def test_a_projection_that_the_checkpoint_lacks(loaded):
    it = loaded((FIRST[0], "feature-extraction"))
    settings = zoo.SentenceSettings(("cls",), (Projection(4),))
    with pytest.raises(CheckpointError, match="missing: 2_Dense/linear.weight.*\n.*\n.*pass new_head=True"):
        zoo.load(it.folder, "sentence-similarity", sentence=settings)
    model = zoo.load(it.folder, "sentence-similarity", sentence=settings, new_head=True)
    assert set(model.new_variables) == {"head/projection_0/kernel", "head/projection_0/bias"}
