"""Relative positions of DeBERTa: buckets, conversion of scores of distances, half precision."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers.disentangled import log_buckets
from tests.core.layers.parity import numbers


@pytest.mark.parametrize(
    ("buckets", "longest"), [(256, 512), (6, 41), (8, 10), (32, 128), (7, 100), (128, 4096), (2, 9)]
)
def test_buckets_are_those_of_the_reference(buckets, longest):
    distances = np.arange(-2 * longest, 2 * longest)
    expected = make_log_bucket_position(torch.tensor(distances), buckets, longest).long().numpy()
    np.testing.assert_array_equal(log_buckets(distances, buckets, longest), expected)


def test_half_precision_is_finite_with_padding():
    policy = "float16"
    relative = layers.RelativeEmbeddings(9, 12, num_buckets=4, initializer="ones", dtype=policy)
    attention = layers.DisentangledAttention(3, 12, kernel_initializer="ones", dtype=policy)
    x = keras.ops.cast(5 * numbers(2, 9, 12), "float16")
    mask = np.array([[1] * 9, [0] * 4 + [1] * 5], "int32")
    visibility = layers.Visibility(key_mask=mask, query_mask=mask)
    result = attention(x, visibility=visibility, return_attention=True, **relative(x))
    output, weights = (keras.ops.convert_to_numpy(result[name]) for name in ("output", "attention"))
    assert output.dtype == "float16" and np.isfinite(output).all()
    assert np.allclose(weights[1, :, 4:, :4], 0) and np.allclose(weights.sum(-1), 1, atol=1e-2)


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="num_buckets must be at least 2.*num_buckets=20, max_distance=9"):
        layers.RelativeEmbeddings(9, 12, num_buckets=20)
    with pytest.raises(InputError, match="Expected: relative=RelativeText. Received: None"):
        layers.DisentangledAttention(3, 12)(numbers(2, 9, 12))
    with pytest.raises(InputError, match="positive and odd. Received: kernel_size=4"):
        layers.ConvolutionEncoderLayer(layers.MultiHeadAttention(3, 12), layers.FeedForward(12, 20), kernel_size=4)
