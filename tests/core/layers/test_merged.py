"""`MergedAttention` against one softmax over both texts, with padding, caches in each form, and parts of the memory."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from kerasformer import layers
from kerasformer.errors import InputError
from tests.core.layers.parity import assert_close, numbers

B, T, M, E, D, WINDOW = 2, 7, 5, 12, 4, 3
MEMORY_MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], "int32")


def made(window: int | None = WINDOW) -> layers.MergedDecoderLayer:
    rotary = layers.Rotary(dim=D)
    attention = layers.MergedAttention(
        4, E, head_dim=D, num_key_value_heads=2, rotary=rotary, query_key_norm=1e-3, window=window
    )
    layer = layers.MergedDecoderLayer(attention, layers.FeedForward(E, 20), norm="rms_norm", order="sandwich_norm")
    layer.build((None, None, E))
    for index, variable in enumerate(layer.trainable_variables):
        variable.assign(np.random.default_rng(index).normal(0.5, 0.5, variable.shape))
    return layer


@pytest.fixture(scope="module")
def layer():
    return made()


def reference(layer: layers.MergedDecoderLayer, x: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the output of the attention and its weights, from one product of queries with all keys."""
    attention = layer.attention
    heads = {"query": 4, "key": 2, "value": 2}

    def split(name: str, y: np.ndarray) -> np.ndarray:
        y = np.asarray(getattr(attention, name)(y)).reshape(B, -1, heads[name], D)
        if name != "value":
            y = np.asarray(getattr(attention, f"{name}_norm")(y))
        y = y.transpose(0, 2, 1, 3)
        return y if name == "query" else y.repeat(2, axis=1)

    cosine, sine = attention.spec.rotary.angles(np.arange(T, dtype="int32")[None])
    query, own = (
        np.asarray(layers.primitives.rotary(ops.convert_to_tensor(split(name, x)), cosine, sine, attention.spec.rotary))
        for name in ("query", "key")
    )
    keys = np.concatenate([own, split("key", memory)], axis=2)
    values = np.concatenate([split("value", x), split("value", memory)], axis=2)
    distance = np.arange(T)[:, None] - np.arange(T)
    seen = (distance >= 0) & (distance < (attention.window or T))
    seen = np.concatenate(
        [np.broadcast_to(seen, (B, T, T)), np.broadcast_to(MEMORY_MASK[:, None] > 0, (B, T, M))], axis=2
    )[:, None]
    scores = np.where(seen, query @ keys.swapaxes(2, 3) / np.sqrt(D), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    context = (weights @ values).transpose(0, 2, 1, 3).reshape(B, T, 4 * D)
    return np.asarray(attention.output_dense(context)), weights


@pytest.mark.parametrize("window", [WINDOW, None])
def test_one_softmax_over_both_texts(window):
    layer, x, memory = made(window), numbers(B, T, E), numbers(B, M, E, seed=1)
    expected, weights = reference(layer, x, memory)
    hidden = layers.Visibility(key_mask=MEMORY_MASK)
    states = layer.attention(x, memory=memory, memory_visibility=hidden, return_attention=True)
    assert_close(states["output"], expected)
    assert_close(states["attention"], weights[..., :T])
    assert_close(states["cross_attention"], weights[..., T:])
    assert_close(layer.attention(x, memory=memory, memory_visibility=hidden), expected)


def test_the_layer_has_one_attention_and_comes_back_from_its_config(layer):
    x, memory = numbers(B, T, E), numbers(B, M, E, seed=1)
    hidden = layers.Visibility(key_mask=MEMORY_MASK)
    y = x + layer.attention_output_norm(
        layer.attention(layer.attention_norm(x), memory=memory, memory_visibility=hidden)
    )
    expected = y + layer.feed_forward_output_norm(layer.feed_forward(layer.feed_forward_norm(y)))
    assert_close(layer(x, memory, memory_mask=MEMORY_MASK), expected)
    assert layer.cross_attention is layer.attention
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.get_config() == layer.get_config()
    with pytest.raises(InputError, match="memory= or a cross cache"):
        layer(x)


def test_a_mask_of_the_encoded_text_may_have_a_row_for_each_query(layer):
    x, memory = numbers(B, T, E), numbers(B, M, E, seed=1)
    seen = np.arange(M) <= np.arange(T)[:, None]
    output = layer(x, memory, memory_mask=np.broadcast_to(seen, (B, T, M)))
    for query in range(T):
        alone = layer(x, memory[:, : query + 1])
        assert_close(output[:, query], alone[:, query])


def caches(kind: str) -> tuple[object, object | None]:
    """Returns empty caches of the own tokens and, unless it is known at once, of the encoded text."""
    slots = WINDOW + T if kind == "rolling" else T
    state = np.full((B, 2, slots, D), 1e3, "float32")
    start, empty = ops.array(0, "int32"), ops.zeros((B, 2, 0, D))
    if kind == "growing":
        return layers.GrowingCache((empty, empty)), layers.GrowingCache((empty, empty))
    of_kind = layers.RollingCache if kind == "rolling" else layers.StaticCache
    if kind == "rows":
        rows = (of_kind((ops.convert_to_tensor(state[i : i + 1]),) * 2, start) for i in range(B))
        return layers.RowCaches(tuple(rows)), None
    return of_kind((ops.convert_to_tensor(state),) * 2, start), None


@pytest.mark.parametrize("kind", ["static", "rolling", "growing", "rows"])
@pytest.mark.parametrize("chunks", [[1] * T, [3, 1, 2, 1], [T]], ids=str)
def test_steps_equal_the_whole_text(layer, kind, chunks):
    x, memory = numbers(B, T, E), numbers(B, M, E, seed=1)
    expected = layer(x, memory, memory_mask=MEMORY_MASK)
    own, cross = caches(kind)
    projected = layer.cross_attention.project(ops.convert_to_tensor(memory))
    if kind == "rows":
        cross = layers.RowCaches(tuple(layers.FixedCache(tuple(y[i : i + 1] for y in projected)) for i in range(B)))
    given = memory if kind == "growing" else None
    cross = layers.FixedCache(projected) if cross is None else cross
    outputs, position = [], 0
    for count in chunks:
        states = layer(
            x[:, position : position + count],
            given,
            memory_mask=MEMORY_MASK,
            cache=own,
            cross_cache=cross,
            return_cache=True,
        )
        outputs.append(states["output"])
        own, cross = states["cache"], states["cross_cache"]
        given = None if given is None else memory[:, M:]  # the cache has it now
        position += count
    assert_close(ops.concatenate(outputs, axis=1), expected)


@pytest.mark.parametrize("length", [4, 9], ids=["within the window", "beyond it"])
def test_a_window_with_one_token_less_before_a_query(length):
    window = 2
    layer = layers.UnevenWindowAttention(2, E, window=window)
    plain = layers.MultiHeadAttention(2, E)
    for each in (layer, plain):
        each.build((None, None, E))
    for index, (mine, other) in enumerate(zip(layer.trainable_variables, plain.trainable_variables, strict=True)):
        mine.assign(np.random.default_rng(index).normal(0, 0.5, mine.shape))
        other.assign(mine)
    x, mask = numbers(1, length, E), np.ones((1, length), "int32")
    mask[:, -1] = 0
    distance = np.arange(length)[:, None] - np.arange(length)
    seen = (distance < window) & (-distance <= window) & (mask > 0)
    expected = plain(x, attention_mask=seen[None])
    assert_close(layer(x, attention_mask=mask)[:, :-1], expected[:, :-1])
