from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from keras import backend, ops
from torch.nn import functional

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers.masks import mask_to_bias
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

B, H, T, S, D = 2, 3, 4, 6, 5
QUERY, KEY, VALUE = numbers(B, H, T, D), numbers(B, H, S, D, seed=1), numbers(B, H, S, D, seed=2)
SEEN = numbers(B, H, T, S) > -0.5


@pytest.mark.parametrize("scale", on_jax([None, 1.0, 0.3], chosen=(0.3,)))
@pytest.mark.parametrize(
    "mask",
    [None, SEEN, SEEN[:, :1], SEEN[:1, :1, :1], np.tril(np.ones((T, S), bool), S - T)],
    ids=["none", "full", "for all heads", "for all queries", "two axes"],
)
def test_function_equals_pytorch(mask, scale) -> None:
    context, weights = layers.scaled_dot_product_attention(QUERY, KEY, VALUE, mask, scale)
    tensors = [torch.tensor(a) for a in (QUERY, KEY, VALUE)]
    torch_mask = None if mask is None else torch.tensor(mask)
    assert_close(context, functional.scaled_dot_product_attention(*tensors, attn_mask=torch_mask, scale=scale))
    assert_close(ops.sum(weights, -1), np.ones((B, H, T), "float32"))
    if mask is not None:
        assert as_numpy(weights)[~np.broadcast_to(mask, (B, H, T, S))].max() == 0.0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_query_without_visible_keys_attends_to_all_equally(dtype) -> None:
    tensors = [ops.cast(a, dtype) for a in (QUERY, KEY, VALUE)]
    _, weights = layers.scaled_dot_product_attention(*tensors, np.zeros((1, 1, 1, S), bool))
    # In half precision, scores are rounded to the magnitude of the mask; in float32 they are negligible.
    assert np.isfinite(as_numpy(weights)).all()
    if dtype != "float16":
        assert_close(weights, np.full((B, H, T, S), 1 / S), tolerance=1e-2)


@pytest.mark.skipif(backend.backend() != "tensorflow", reason="the fused operation is TensorFlow's")
def test_a_constant_mask_is_not_slower_than_one_that_is_an_input() -> None:
    """The training step took 60 times as long, by an operation of oneDNN."""
    import tensorflow as tf

    layer, x, ones = layers.MultiHeadAttention(4, 128), tf.ones((8, 64, 128)), tf.ones((8, 64), "int32")
    layer.build(x.shape)

    @tf.function
    def gradients(x, real):
        with tf.GradientTape() as tape:
            output = layer(x, visibility=layers.Visibility.of_text(64, real, causal=True))
            loss = tf.reduce_sum(output * output)
        return tape.gradient(loss, [variable.value for variable in layer.trainable_variables])

    def seconds(*arguments) -> float:  # of the processor, which other programs do not change
        gradients(*arguments)
        times = []
        for _ in range(5):
            start = time.process_time()
            gradients(*arguments)[0].numpy()
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(x, None) < 5 * seconds(x, ones)


@pytest.mark.jax
def test_padding_mask() -> None:
    mask = layers.padding_mask(np.array([[1, 1, 0], [0, 1, 1]], "int32"))
    assert mask.shape == (2, 1, 1, 3)
    assert ops.convert_to_numpy(mask)[:, 0, 0].tolist() == [[True, True, False], [False, True, True]]
    assert ops.convert_to_numpy(layers.padding_mask(np.array([[True, False]]))).tolist() == [[[[True, False]]]]


def test_mask_and_bias_add_up() -> None:
    layer = layers.MultiHeadAttention(H, 12)
    x, bias = numbers(B, T, 12), numbers(1, H, T, T)
    mask = np.tril(np.ones((1, 1, T, T), bool))
    both, weights = layer(x, attention_mask=mask, bias=bias, return_attention=True).values()
    assert_close(both, layer(x, bias=bias + as_numpy(mask_to_bias(mask))))
    assert as_numpy(weights)[..., 0, 1:].max() == 0.0
    assert np.abs(as_numpy(both) - as_numpy(layer(x, attention_mask=mask))).max() > 1e-3


def test_padding_does_not_change_other_tokens() -> None:
    """Real tokens of a row with padding on the left have the same output as without padding."""
    layer = layers.MultiHeadAttention(6, 12, 4, 2, rotary=layers.Rotary(dim=4))
    alone = numbers(1, 3, 12)
    padded = np.concatenate([numbers(1, 2, 12, seed=5), alone], axis=1)
    seen = np.array([[0, 0, 1, 1, 1]], "int32")
    positions = np.array([[0, 0, 0, 1, 2]], "int32")
    output = layer(padded, visibility=layers.Visibility.of_text(5, seen, causal=True, positions=positions))
    assert_close(output[:, 2:], layer(alone, visibility=layers.Visibility.of_text(3, causal=True)))


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"num_heads": 5, "hidden_dim": 12}, "num_heads=5, hidden_dim=12"),
        ({"num_heads": 0, "hidden_dim": 12}, "num_heads=0"),
        ({"num_heads": 6, "hidden_dim": 12, "num_key_value_heads": 4}, "num_key_value_heads=4, num_heads=6"),
        ({"num_heads": 6, "hidden_dim": 12, "num_key_value_heads": 0}, "num_key_value_heads=0"),
    ],
)
def test_impossible_heads_are_refused(arguments, received) -> None:
    with pytest.raises(InputError, match=f"Received: {received}"):
        layers.MultiHeadAttention(**arguments)
