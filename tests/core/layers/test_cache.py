from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from keras import backend, ops

from kerasformer import layers
from kerasformer.layers.masks import mask_to_bias
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

B, E, CAPACITY, WINDOW = 2, 12, 8, 3
CHUNKS = [[1] * 6, [4, 1, 1], [2, 3, 1], [6]]
"""Numbers of tokens in successive calls, six in total."""


def empty(kind: str, heads: int, head_dim: int) -> Any:
    """Creates an empty cache."""
    if kind == "growing":
        return layers.GrowingCache(tuple(np.zeros((2, B, heads, 0, head_dim), "float32")))
    if kind == "rolling":
        return layers.RollingCache(
            tuple(np.full((2, B, heads, WINDOW, head_dim), 7.0, "float32")), ops.array(0, "int32")
        )
    # Slots after the last token must not affect the result, so they are not zero.
    states = np.full((2, B, heads, CAPACITY, head_dim), 7.0, "float32")
    return layers.StaticCache(tuple(map(ops.convert_to_tensor, states)), ops.array(0, "int32"))


def mask_of_step(kind: str, start: int, length: int) -> Any:
    """Returns the causal visibility of tokens in a cache."""
    keys = CAPACITY if kind == "static" else start + length
    return np.arange(keys)[None, None, None, :] <= (start + np.arange(length))[None, None, :, None]


ATTENTIONS = {
    "plain": {"num_heads": 3},
    "grouped": {"num_heads": 6, "head_dim": 4, "num_key_value_heads": 2},
    "one key and value head": {"num_heads": 3, "num_key_value_heads": 1, "use_bias": False},
}


@pytest.mark.parametrize(
    ("kind", "name", "rotary"),
    [
        *((kind, name, False) for kind in ("static", "growing") for name in ATTENTIONS),
        *(
            pytest.param(*each.values, True, marks=each.marks)
            for each in on_jax(["static", "growing"], ATTENTIONS, chosen=[("static", "grouped")])
        ),
    ],
)
def test_step_by_step_equals_the_whole(kind, name, rotary) -> None:
    options = ATTENTIONS[name]
    layer = layers.MultiHeadAttention(hidden_dim=E, **options)
    if rotary:
        layer = layers.MultiHeadAttention(hidden_dim=E, rotary=layers.Rotary(dim=layer.spec.head_dim), **options)
    x, positions = numbers(B, 6, E), np.tile(np.arange(6, dtype="int32"), (B, 1))
    flags = {"return_attention": True, "return_cache": True}
    result = layer(x, visibility=layers.Visibility.of_text(6, causal=True, positions=positions), **flags)
    assert result.keys() == {"output", "attention"}, "there is no cache"
    whole, weights = result.values()
    cache, start = empty(kind, layer.spec.num_key_value_heads, layer.spec.head_dim), 0
    for length in (3, 1, 2):
        part = slice(start, start + length)
        output, step_weights, cache = layer(
            x[:, part],
            attention_mask=mask_of_step(kind, start, length),
            cache=cache,
            visibility=layers.Visibility(positions=positions[:, part]),
            **flags,
        ).values()
        assert_close(output, whole[:, part])
        start += length
        assert_close(step_weights[..., :start], weights[:, :, part, :start])
    assert type(cache).__name__.lower().startswith(kind)


@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [2, 5, 2], [9]], ids=str)
@pytest.mark.parametrize("kind", ["static", "growing", "rolling"])
def test_a_sliding_window_over_a_cache(kind, chunks) -> None:
    """Texts longer than the window, with padding on the left, and a cache as long as the window."""
    layer = layers.MultiHeadAttention(6, E, 4, 2, window=WINDOW, rotary=layers.Rotary(dim=4))
    x, starts = numbers(B, 9, E), np.array([0, 2], "int32")
    real = (np.arange(9) >= starts[:, None]).astype("int32")
    whole = as_numpy(layer(x, visibility=layers.Visibility.of_text(9, real, causal=True)))
    cache, start = empty(kind, 2, 4), 0
    if kind == "static":
        cache = layers.StaticCache(tuple(np.full((2, B, 2, 12, 4), 7.0, "float32")), ops.array(0, "int32"))
    for length in chunks:
        slots = np.arange(start, start + length, dtype="int32")
        keys = np.arange(12 if kind == "static" else start + length, dtype="int32")
        visibility = layers.Visibility(causal=True, query_slots=slots, key_slots=keys, starts=starts)
        output, cache = layer(x[:, slots], visibility=visibility, cache=cache, return_cache=True).values()
        seen = real[:, slots] > 0
        assert_close(as_numpy(output)[seen], whole[:, slots][seen])
        start += length


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("margin", [1, 2, 6])
def test_a_rolling_cache_can_discard_the_tokens_of_its_margin(margin, at_once) -> None:
    """Repeatedly, over a text of several windows; with one slot less, an output is wrong."""
    layer = layers.MultiHeadAttention(6, E, 4, 2, window=WINDOW, rotary=layers.Rotary(dim=4))
    x, wrong, starts = numbers(B, 24, E), numbers(B, margin, E, seed=1), np.array([0, 2], "int32")
    real = (np.arange(24) >= starts[:, None]).astype("int32")
    whole = as_numpy(layer(x, visibility=layers.Visibility.of_text(24, real, causal=True)))

    def step(tokens: Any, start: int, cache: Any) -> tuple[Any, Any]:
        slots = np.arange(start, start + tokens.shape[1], dtype="int32")
        visibility = layers.Visibility(causal=True, query_slots=slots, starts=starts)
        return layer(tokens, visibility=visibility, cache=cache, return_cache=True).values()

    def largest_error(size: int) -> float:
        start, errors = 0, []
        cache = layers.RollingCache(tuple(np.full((2, B, 2, size, 4), 7.0, "float32")), ops.array(0, "int32"))
        while start < 24:
            for index in range(0, margin, margin if at_once else 1):
                _, cache = step(wrong[:, index : margin if at_once else index + 1], start + index, cache)
            cache = replace(cache, position=ops.array(start, "int32"))
            length = min(1 + start % 4, 24 - start)
            output, cache = step(x[:, start : start + length], start, cache)
            seen = real[:, start : start + length] > 0
            errors.append(np.abs(as_numpy(output) - whole[:, start : start + length])[seen].max(initial=0.0))
            start += length
        return max(errors)

    size = layers.RollingCache.num_slots(WINDOW, margin)
    assert largest_error(size) < 1e-5
    assert largest_error(size - 1) > 1e-2


@pytest.mark.parametrize("slots", [[5, 2, 3, 4], [[5, 2, 3, 4], [1, 2, 3, -4]]], ids=["one row", "rows"])
def test_slots_of_a_cache_select_columns_of_masks_and_biases(slots) -> None:
    """A mask, a padding mask and a position bias."""
    slots = np.array(slots, "int32")
    given = {
        "key_mask": np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1]], "int32"),
        "mask": numbers(1, 3, 2, 6) > -0.5,
        "position_bias": numbers(1, 3, 2, 6, seed=1),
    }
    visibility = layers.Visibility(causal=True, query_slots=np.array([4, 5], "int32"), **given)
    received = as_numpy(visibility.bias("float32", WINDOW, key_slots=slots))
    whole = as_numpy(replace(visibility, key_slots=np.arange(6, dtype="int32")).bias("float32", WINDOW))
    rows = np.broadcast_to(slots, (B, 4))
    for row, column in np.ndindex(B, 4):
        expected = whole[row, ..., rows[row, column]] if rows[row, column] >= 0 else -1e9
        np.testing.assert_allclose(received[row, ..., column], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "chunks"),
    on_jax(
        ["static", "growing", "rolling", "rows", "rolling and static"],
        CHUNKS,
        chosen=[("growing", [2, 3, 1]), ("rolling and static", [2, 3, 1])],
    ),
    ids=str,
)
def test_a_decoder_is_causal_after_the_tokens_of_its_cache(kind, chunks) -> None:
    """Without mask and visibility: the caches determine the slots."""
    windows = {"rolling": (WINDOW, WINDOW), "rolling and static": (WINDOW, None)}.get(kind, (None, None))
    attentions = [layers.MultiHeadAttention(3, E, window=window) for window in windows]
    decoder = layers.Decoder([layers.DecoderLayer(attention, layers.FeedForward(E, 20)) for attention in attentions])
    kinds = [name if kind == "rolling and static" else kind for name in ("rolling", "static")]
    caches = [_rows() if name == "rows" else empty(name, 3, 4) for name in kinds]
    x, start = numbers(B, 6, E), 0
    whole = decoder(x)
    for length in chunks:
        part = slice(start, start + length)
        step = decoder(x[:, part], caches=caches, return_cache=True)
        assert_close(step["output"], whole[:, part])
        caches, start = step["caches"], start + length


def _rows() -> layers.RowCaches:
    whole = empty("static", 3, 4)
    rows = (replace(whole, tensors=tuple(tensor[row : row + 1] for tensor in whole.tensors)) for row in range(B))
    return layers.RowCaches(tuple(rows))


def test_updates_do_not_change_the_previous_cache() -> None:
    new = numbers(B, 3, 2, 4)
    static = layers.StaticCache(tuple(np.zeros((2, B, 3, 5, 4), "float32")), ops.array(1, "int32"))
    (keys, values), after = static.update(new, -new)
    expected = np.zeros((B, 3, 5, 4), "float32")
    expected[:, :, 1:3] = new
    assert_close(keys, expected)
    assert_close(values, -expected)
    assert (int(static.position), int(after.position)) == (1, 3)
    assert np.abs(static.key).max() == 0.0
    assert after.key is keys

    growing = layers.GrowingCache((expected, -expected))
    (keys, values), after = growing.update(new, -new)
    assert_close(keys, np.concatenate([expected, new], 2))
    assert_close(after.value, np.concatenate([-expected, -new], 2))
    assert growing.key.shape[2] == 5

    fixed = layers.FixedCache((expected, -expected))
    (keys, values), after = fixed.update(new, new)
    assert keys is fixed.key and values is fixed.value and after is fixed


def test_static_cache_keeps_its_type() -> None:
    """A cache in half precision keeps its data type when float32 keys are added."""
    states = [ops.zeros((B, 3, 5, 4), "float16") for _ in range(2)]
    _, after = layers.StaticCache(tuple(states), ops.array(0, "int32")).update(numbers(B, 3, 2, 4), numbers(B, 3, 2, 4))
    assert backend.standardize_dtype(after.key.dtype) == "float16"


@pytest.mark.skipif(backend.backend() != "tensorflow", reason="a graph of unknown lengths is TensorFlow's")
@pytest.mark.parametrize("kind", ["static", "growing"])
def test_one_graph_for_all_lengths(kind) -> None:
    import tensorflow as tf

    layer = layers.MultiHeadAttention(3, E)
    x = numbers(B, 6, E)
    whole = layer(x, attention_mask=layers.causal_mask(6))
    cache_type = {"static": layers.StaticCache, "growing": layers.GrowingCache}[kind]
    spec = tf.TensorSpec((None, 3, None, 4))

    @tf.function(input_signature=[tf.TensorSpec((None, None, E)), spec, spec, tf.TensorSpec((), tf.int32)])
    def step(piece, key, value, position):
        cache = cache_type((key, value), position) if kind == "static" else cache_type((key, value))
        length = tf.shape(piece)[1]
        keys = tf.shape(key)[2] + (0 if kind == "static" else length)
        seen = tf.range(keys)[None, None, None, :] <= (position + tf.range(length))[None, None, :, None]
        output, cache = layer(piece, bias=mask_to_bias(seen), cache=cache, return_cache=True).values()
        return output, cache.key, cache.value, position + length

    first = empty(kind, 3, 4)
    state = [tf.constant(first.key), tf.constant(first.value), tf.constant(0)]
    for start, length in ((0, 4), (4, 2)):
        output, *state = step(tf.constant(x[:, start : start + length]), *state)
        assert_close(output, whole[:, start : start + length])
