"""Sliding window attention: computation in blocks equals the dense form."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from keras import backend, ops
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers import banded
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.visibility import Visibility
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

E, W = 12, 4
DENSE, SHORTEST = 3 * W, 3 * W + 1

OPTIONS = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2, "num_heads": 6},
    "softcap": {"softcap": 1.5, "scale": 0.9},
    "rotary": {"rotary": layers.Rotary(dim=2), "query_key_norm": 1e-3},
}


def padded(length: int) -> np.ndarray:
    """Three texts: without padding, with padding on the right, and with padding on the left."""
    columns = np.arange(length)
    return np.stack([columns >= 0, columns < max(length - W - 2, 1), columns >= min(3, length - 1)]).astype("int32")


def marked(length: int) -> np.ndarray:
    """Global tokens of three texts: none; one that is padding and one that is not; several in the last block."""
    mask = np.zeros((3, length), "int32")
    mask[1, [0, -1]] = 1
    mask[2, length // 2 :: 3] = 1
    return mask


def both(layer, x, visibility):
    """Returns the results in blocks and in the dense form, which is used if weights are requested."""
    dense = layer(x, visibility=visibility(), return_attention=True)
    return layer(x, visibility=visibility()), dense["output"], dense["attention"]


ON_JAX = on_jax(OPTIONS, [4 * W], [False, True], chosen=[("grouped", 4 * W, True)])


@pytest.mark.parametrize(
    ("name", "length", "with_global"), [*product(OPTIONS, [SHORTEST, 5 * W + 3], [False, True]), *ON_JAX]
)
def test_blocks_equal_the_dense_form(name, length, with_global) -> None:
    layer = layers.MultiHeadAttention(**{"num_heads": 3, "hidden_dim": E, "window": W, **OPTIONS[name]})
    x, real, mask = numbers(3, length, E), padded(length), marked(length) if with_global else None
    blocks, dense, weights = both(
        layer, x, lambda: Visibility.of_text(length, real, global_mask=mask, max_global_tokens=7)
    )
    seen = np.abs(np.arange(length)[:, None] - np.arange(length)) <= W
    seen = np.repeat(seen[None], 3, axis=0)
    if mask is not None:
        marked_and_real = mask & real
        seen |= (marked_and_real[:, None, :] | marked_and_real[:, :, None]) > 0
    seen &= real[:, None, :] > 0
    # A query that sees no key, which is padding far from the text, averages arbitrary values.
    defined = seen.any(axis=-1)
    assert defined[real > 0].all() and defined.all() == with_global
    assert_close(as_numpy(blocks)[defined], as_numpy(dense)[defined])
    np.testing.assert_array_equal((as_numpy(weights).max(axis=1) > 0)[defined], seen[defined])


def test_a_mask_of_keys_equals_the_key_mask_of_a_visibility() -> None:
    layer = layers.MultiHeadAttention(3, E, window=W)
    x, real = numbers(3, 17, E), padded(17)
    expected = layer(x, visibility=Visibility.of_text(17, real))
    assert_close(layer(x, attention_mask=real), expected)
    assert_close(layer(x, attention_mask=real[:, None, None], visibility=Visibility()), expected)


def test_other_masks_and_biases_are_added_to_the_window() -> None:
    layer = layers.MultiHeadAttention(3, E, window=W)
    x, bias = numbers(1, 17, E), numbers(1, 3, 17, 17)
    window = np.abs(np.arange(17)[:, None] - np.arange(17)) <= W
    unlimited = layers.MultiHeadAttention(3, E)
    unlimited.build(x.shape)
    layer.build(x.shape)
    unlimited.set_weights(layer.get_weights())
    assert_close(layer(x, bias=bias), unlimited(x, bias=bias, attention_mask=window[None, None]))
    mask = numbers(1, 3, 17, 17) > -1
    assert_close(layer(x, attention_mask=mask), unlimited(x, attention_mask=mask & window))


@pytest.fixture(scope="module")
def reference():
    config = LongformerConfig(hidden_size=E, num_attention_heads=3, num_hidden_layers=1, attention_window=[2 * W])
    torch.manual_seed(0)
    theirs = LongformerSelfAttention(config, 0).eval()
    ours = layers.GlobalMultiHeadAttention(3, E, W)
    ours.build((None, None, E))
    names = ("query", "key", "value", "query_global", "key_global", "value_global")
    for name in names:
        linear, dense = getattr(theirs, name), getattr(ours, name)
        dense.set_weights([linear.weight.detach().numpy().T, linear.bias.detach().numpy()])
    ours.output_dense.set_weights([np.eye(E, dtype="float32"), np.zeros(E, "float32")])
    return theirs, ours


MARKS = [(), (0,), (3, 9, 14)]


@pytest.mark.parametrize(
    ("length", "marks"),
    [*product([5, DENSE, SHORTEST], MARKS), *on_jax([27], MARKS, chosen=[(27, (3, 9, 14))])],
    ids=str,
)
def test_results_are_those_of_transformers_at_padding_too(reference, length, marks) -> None:
    theirs, ours = reference
    x, real, mask = numbers(3, length, E), padded(length), np.zeros((3, length), "int32")
    for row, mark in enumerate(marks):
        mask[: row + 1, min(mark, length - 1 - row)] = 1
    missing = -length % (2 * W)
    states = torch.tensor(np.pad(x, ((0, 0), (0, missing), (0, 0))))
    merged = torch.tensor(np.pad(real * (mask + 1), ((0, 0), (0, missing)))) - 1.0
    with torch.no_grad():
        expected = theirs(
            states, merged, is_index_masked=merged < 0, is_index_global_attn=merged > 0, is_global_attn=bool(marks)
        )[0][:, :length]
    visibility = Visibility.of_text(length, real, global_mask=mask if marks else None, max_global_tokens=5)
    assert_close(ours(x, visibility=visibility), expected.numpy())


def test_dense_weights_of_both_projections_are_probabilities(reference) -> None:
    _, ours = reference
    visibility = Visibility.of_text(17, global_mask=marked(17))
    result = ours(numbers(3, 17, E), visibility=visibility, return_attention=True)
    assert_close(ops.sum(result["attention"], axis=-1), np.ones((3, 3, 17), "float32"))
    heads = as_numpy(result["attention"])
    assert heads[1, :, 0, 2 * W :].min() > 0, "a global token attends to all tokens"


def test_only_the_first_tokens() -> None:
    layer = layers.EncoderLayer(layers.GlobalMultiHeadAttention(3, E, W), layers.FeedForward(E, 20))
    x, real, mask = numbers(3, 17, E), padded(17), marked(17)
    visibility = Visibility.of_text(17, real, global_mask=mask, max_global_tokens=4)
    whole = layer(x, visibility=visibility)
    for count in (1, 6):
        assert_close(layer(x, visibility=visibility, count=count), whole[:, :count])


@pytest.mark.skipif(backend.backend() != "tensorflow", reason="a length that is not known while TensorFlow traces")
@pytest.mark.parametrize("length", [1, 2, W, W + 1, 2 * W, 17])
@pytest.mark.grid
def test_unknown_length_while_tracing(reference, length) -> None:
    import tensorflow as tf

    _, ours = reference

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, E)), *[tf.TensorSpec((None, None), "int32")] * 2],
        reduce_retracing=True,
    )
    def traced(x, real, mask):
        visibility = Visibility.of_text(ops.shape(x)[1], real, global_mask=mask, max_global_tokens=5)
        return ours(x, visibility=visibility)

    x, real, mask = numbers(3, length, E), padded(length), marked(length)
    expected = ours(x, visibility=Visibility.of_text(length, real, global_mask=mask))
    assert_close(traced(x, real, mask), expected)


def largest(layer, length: int) -> int:
    """Returns the size of the largest tensor in the graph of the layer."""
    import tensorflow as tf

    spec = [tf.TensorSpec((1, length, E)), tf.TensorSpec((1, length), "int32"), tf.TensorSpec((1, length), "int32")]

    def call(x, real, mask):
        return layer(x, visibility=Visibility.of_text(length, real, global_mask=mask, max_global_tokens=3))

    graph = tf.function(call).get_concrete_function(*spec).graph
    return max(tensor.shape.num_elements() or 0 for op in graph.get_operations() for tensor in op.outputs)


@pytest.mark.skipif(backend.backend() != "tensorflow", reason="reads a graph of TensorFlow")
def test_no_tensor_grows_faster_than_the_text(reference) -> None:
    sizes = [largest(reference[1], length) for length in (16 * W, 32 * W, 64 * W)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0]) > 0


def test_more_global_tokens_than_the_maximum_are_local() -> None:
    layer = layers.MultiHeadAttention(3, E, window=W)
    x, mask = numbers(1, 17, E), np.array([[1, 0, 1, 0, 1] + [0] * 12], "int32")
    fewer = mask * (np.arange(17) < 4)
    limited = Visibility.of_text(17, global_mask=mask, max_global_tokens=2)
    assert_close(layer(x, visibility=limited), layer(x, visibility=Visibility.of_text(17, global_mask=fewer)))
    dense = layer(x, visibility=limited, return_attention=True)["output"]
    assert_close(dense, layer(x, visibility=limited))


def test_errors() -> None:
    with pytest.raises(InputError, match="rotary"):
        layers.GlobalMultiHeadAttention(3, E, W, rotary=layers.Rotary(dim=2))
    spec = layers.MultiHeadAttention(3, E).spec
    x = numbers(1, 5, E)
    with pytest.raises(InputError, match="window=None, causal=False"):
        banded.multi_head_attention(AttentionCall(x, x, x, spec, Visibility()))
