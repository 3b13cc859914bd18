"""Linear recurrences against NumPy, and the layers that have one with padding and with caches in each form."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers.linear_recurrence import linear_recurrence
from tests.core.layers.parity import assert_close, numbers

B, T, E, H, K, V = 2, 7, 6, 4, 3, 5


@pytest.fixture(scope="module", params=["GatedDeltaNet", "Mamba2"])
def layer(request):
    bias = request.param == "Mamba2"
    layer = getattr(layers, request.param)(E, H, 2, V, K, kernel_size=3, convolution_bias=bias, epsilon=0.1)
    layer.build((None, None, E))
    for index, variable in enumerate(layer.trainable_variables):
        variable.assign(np.random.default_rng(index).normal(0, 0.5, variable.shape))
    return layer


def inputs(length, same=False, delta=True):
    """Arguments; with `same`, all tokens have one key and little decay, so that errors accumulate."""
    random = np.random.default_rng(length)
    key = random.normal(size=(B, H, 1 if same else length, K)).repeat(length if same else 1, axis=2)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    query, value = (random.normal(size=(B, H, length, size)) for size in (K, V))
    decay, rate = -random.uniform(0, 1e-3 if same else 2, (B, H, length)), random.uniform(size=(B, H, length))
    state = random.normal(size=(B, H, K, V))
    arrays = [x.astype("float32") for x in (query, key, value, decay, rate, state)]
    return arrays if delta else [*arrays[:4], None, state.astype("float32")]


def recurrence(query, key, value, decay, rate, state):
    """The definition, token by token, in float64."""
    query, key, value, decay, state = (x.astype("float64") for x in (query, key, value, decay, state))
    outputs = []
    for t in range(query.shape[2]):
        state = state * np.exp(decay[:, :, t, None, None])
        added = value[:, :, t]
        if rate is not None:
            added = rate[:, :, t, None] * (added - np.einsum("bhk,bhkv->bhv", key[:, :, t], state))
        state = state + np.einsum("bhk,bhv->bhkv", key[:, :, t], added)
        outputs.append(np.einsum("bhk,bhkv->bhv", query[:, :, t], state))
    return np.stack(outputs, axis=2), state


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7, 63, 64, 65, 130])
def test_chunks_equal_the_recurrence(length, delta):
    for same in (False, True):
        arrays = inputs(length, same, delta)
        for received, expected in zip(linear_recurrence(*arrays), recurrence(*arrays), strict=True):
            assert_close(received, expected)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the lengths of other backends are known")
@pytest.mark.parametrize("delta", [True, False])
def test_texts_of_unknown_length(delta):
    import tensorflow as tf

    shapes = [(None, H, None, K), (None, H, None, K), (None, H, None, V), (None, H, None), (None, H, K, V)]
    specs = [tf.TensorSpec(shape) for shape in (*shapes, *([(None, H, None)] if delta else []))]

    def call(query, key, value, decay, state, rate=None):
        return linear_recurrence(query, key, value, decay, rate, state)

    recurrent = tf.function(call, input_signature=specs, autograph=False)
    for length in (1, 5, 64, 130):
        arrays = inputs(length, delta=delta)
        given = [*arrays[:4], arrays[5], *([arrays[4]] if delta else [])]
        for received, expected in zip(recurrent(*given), recurrence(*arrays), strict=True):
            assert_close(received, expected)


def test_tokens_without_rate_and_decay_change_nothing():
    query, key, value, decay, rate, state = inputs(9)
    decay[:, :, 4:], rate[:, :, 4:] = 0, 0
    _, after = linear_recurrence(query, key, value, decay, rate, state)
    _, expected = recurrence(*(x[:, :, :4] for x in (query, key, value, decay, rate)), state)
    assert_close(after, expected)


def test_padding_contributes_nothing_whatever_its_content(layer):
    x = numbers(B, T, E)
    padded = np.concatenate([np.full((B, 3, E), np.nan, "float32"), x, np.full((B, 2, E), np.nan, "float32")], axis=1)
    mask = np.concatenate([np.zeros((B, 3)), np.ones((B, T)), np.zeros((B, 2))], axis=1).astype("int32")
    assert_close(layer(padded, attention_mask=mask)[:, 3:-2], layer(x))
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize("kind", ["static", "rolling", "shifting", "growing", "rows"])
@pytest.mark.parametrize("chunks", [[1] * T, [3, 1, 2, 1], [T]], ids=str)
def test_steps_equal_the_whole_text(layer, kind, chunks):
    # What is in a buffer before a text, here NaN, must not affect the result.
    width, spec, start = layer.cache_spec.size, layer.cache_spec, ops.array(0, "int32")
    wrong = ops.convert_to_tensor(np.full((B, 1, 10, width), np.nan, "float32"))
    state = ops.convert_to_tensor(np.full((B, H, K, V), np.nan, "float32"))

    def opened(tensor, state, make):
        return spec.opened((tensor, state), make)

    caches = {
        "static": lambda: opened(wrong, state, lambda x: layers.StaticCache(x, start)),
        "rolling": lambda: opened(wrong[:, :, :5], state, lambda x: layers.RollingCache(x, start)),
        "shifting": lambda: opened(ops.zeros((B, 1, 2, width)), ops.zeros_like(state), layers.ShiftingCache),
        "growing": lambda: opened(ops.zeros((B, 1, 0, width)), ops.zeros_like(state), layers.GrowingCache),
        "rows": lambda: layers.RowCaches(
            tuple(opened(wrong[:1, :, :5], state[:1], lambda x: layers.RollingCache(x, start)) for _ in range(B))
        ),
    }
    x, cache, read, got = numbers(B, T, E), caches[kind](), 0, []
    for count in chunks:
        slots = layers.Visibility(causal=True, query_slots=ops.arange(read, read + count, dtype="int32"))
        result = layer(x[:, read : read + count], visibility=slots, cache=cache, return_cache=True)
        got.append(ops.convert_to_numpy(result["output"]))
        cache, read = result["cache"], read + count
    assert_close(np.concatenate(got, axis=1), layer(x))


def test_padding_after_a_part_changes_no_state(layer):
    """A part of a prompt with padding at its end, which has the slot -1."""
    x, spec = numbers(B, T, E), layer.cache_spec
    tensors = ops.zeros((B, 1, 12, spec.size)), ops.zeros((B, H, K, V))

    def cache(tensors, position):
        return spec.opened(tensors, lambda slots: layers.StaticCache(slots, ops.array(position, "int32")))

    slots = np.array([[0, 1, 2, -1, -1]] * B, "int32")
    padded = layers.Visibility(causal=True, query_slots=slots, query_mask=(slots >= 0).astype("int32"))
    part = np.concatenate([x[:, :3], np.full((B, 2, E), 9.0, "float32")], axis=1)
    first = layer(part, visibility=padded, cache=cache(tensors, 0), return_cache=True)
    rest = layers.Visibility(causal=True, query_slots=ops.arange(3, T, dtype="int32"))
    second = layer(x[:, 3:], visibility=rest, cache=cache(first["cache"].tensors, 3))
    assert_close(np.concatenate([first["output"][:, :3], second], axis=1), layer(x))


def test_what_it_cannot_follow_is_refused(layer):
    x = numbers(B, T, E)
    with pytest.raises(InputError, match="mask of padding alone.*Received: shape"):
        layer(x, attention_mask=layers.causal_mask(T)[0])
    with pytest.raises(InputError, match="is causal"):
        layer(x, visibility=layers.Visibility(causal=False))
    with pytest.raises(InputError, match="at least 2. Received: kernel_size=1"):
        layers.GatedDeltaNet(E, H, 2, V, K, kernel_size=1)
    with pytest.raises(InputError, match="must divide num_heads. Received: num_key_heads=3"):
        layers.GatedDeltaNet(E, H, 3, V, K)
    with pytest.raises(InputError, match="The layer has states. Expected: a cache of CacheSpec.opened"):
        layer(x, cache=layers.GrowingCache((ops.zeros((B, 1, 0, layer.cache_spec.size)),)))
