from __future__ import annotations

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import ops

from kerasformer import layers
from kerasformer.bundle import TensorInfo
from kerasformer.export import recipes
from kerasformer.export.functions import Function
from kerasformer.export.recipes import recipe
from kerasformer.export.to_onnx import write_onnx
from kerasformer.layers import GrowingCache, RotaryEmbedding, causal_mask, primitives
from tests.export.onnx_bundles import load, padded, tiny, write
from tests.export.onnx_inventory import operators, per_layer

TOLERANCE = 1e-5  # of the largest value: the order of sums alone


@pytest.fixture(scope="module", autouse=True)
def small_matrices_too():
    """The models of these tests are smaller than what is worth quantizing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "MIN_QUANTIZED", 0)
        yield


# What a layer becomes.

ENCODER = {"BiasGelu": 1, "MatMul": 4, "MultiHeadAttention": 1, "SkipLayerNormalization": 2, "Split": 1}
BIASED = {"Add": 1}  # of the packed projections: no operator takes it
T5_SETTINGS = {"head_dim": 8}
T5_ENCODER = {
    "MatMul": 4,
    "MultiHeadAttention": 1,
    "Relu": 1,
    "SkipSimplifiedLayerNormalization": 2,
    "Split": 1,
}
# The encoded text is projected and added to the cross caches; the last sum of a stack and its norm are one operator.
T5_DECODER = {
    "Concat": 2,
    "GroupQueryAttention": 1,
    "MatMul": 8,
    "MultiHeadAttention": 1,
    "Relu": 1,
    "Reshape": 2,
    "SkipSimplifiedLayerNormalization": 3,
    "Transpose": 2,
}
LAYERS = [
    ("bert", "text-classification", {}, {"model": ENCODER | BIASED}),
    ("distilbert", "text-classification", {}, {"model": ENCODER | BIASED}),
    (
        "albert",
        "text-classification",
        {},
        {"model": {k: v for k, v in ENCODER.items() if k != "BiasGelu"} | BIASED | {"FastGelu": 1}},
    ),
    (
        "gpt2",
        None,
        {},
        {"model": {"FastGelu": 1, "GroupQueryAttention": 1, "MatMul": 4, "SkipLayerNormalization": 2} | BIASED},
    ),
    ("t5", None, T5_SETTINGS, {"encoder_model": T5_ENCODER, "decoder_model_merged": T5_DECODER}),
]


@pytest.mark.parametrize(
    ("model_type", "task", "settings", "expected"), LAYERS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_operators_of_a_layer(tmp_path, model_type, task, settings, expected):
    assert per_layer(tmp_path, model_type, task, **settings) == expected
