"""`ShortConvolution` against PyTorch's `Conv1d`, with padding, and with caches in each form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from keras import ops
from torch.nn import functional

from kerasformer import layers
from kerasformer.errors import InputError
from tests.core.layers.parity import assert_close, numbers

B, T, E, SIZE = 2, 7, 6, 4


@pytest.fixture(scope="module")
def layer():
    layer = layers.ShortConvolution(E, SIZE, use_bias=True)
    layer.build((None, None, E))
    for index, variable in enumerate(layer.trainable_variables):
        variable.assign(np.random.default_rng(index).normal(0, 0.5, variable.shape))
    return layer


def reference(layer, x):
    """The layer in PyTorch, for texts without padding."""
    values = {v.path.split("/", 1)[1]: torch.tensor(np.asarray(v.value)) for v in layer.trainable_variables}
    b, c, y = (torch.tensor(x) @ values["input/kernel"] + values["input/bias"]).chunk(3, dim=-1)
    kernel = values["kernel"].T[:, None]
    y = functional.conv1d((b * y).mT, kernel, values["bias"], padding=SIZE - 1, groups=E)[..., : x.shape[1]].mT
    return ((c * y) @ values["output/kernel"] + values["output/bias"]).numpy()


def test_it_is_a_gated_convolution(layer):
    x = numbers(B, T, E)
    assert_close(layer(x), reference(layer, x))
    again = layers.ShortConvolution.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


def test_padding_contributes_nothing_whatever_its_content(layer):
    x = numbers(B, T, E)
    padded = np.concatenate([np.full((B, 3, E), np.nan, "float32"), x, np.full((B, 2, E), np.nan, "float32")], axis=1)
    mask = np.concatenate([np.zeros((B, 3)), np.ones((B, T)), np.zeros((B, 2))], axis=1).astype("int32")
    assert_close(layer(padded, attention_mask=mask)[:, 3:-2], reference(layer, x))
    starts = layers.Visibility.of_text(T + 5, causal=True)
    starts = layers.Visibility(causal=True, query_slots=starts.query_slots, starts=ops.array([3, 3], "int32"))
    assert_close(layer(padded, visibility=starts)[:, 3:-2], reference(layer, x))


@pytest.mark.parametrize("kind", ["static", "rolling", "shifting", "growing", "rows"])
@pytest.mark.parametrize("chunks", [[1] * T, [3, 1, 2, 1], [T]], ids=str)
def test_steps_equal_the_whole_text(layer, kind, chunks):
    # What is in a buffer before a text, here NaN, must not affect the result.
    state = np.full((B, 1, SIZE + 7, E), np.nan, "float32")
    start = ops.array(0, "int32")
    caches = {
        "static": lambda: layers.StaticCache((ops.convert_to_tensor(state),), start),
        "rolling": lambda: layers.RollingCache((ops.convert_to_tensor(state[:, :, : SIZE + 2]),), start),
        "shifting": lambda: layers.ShiftingCache((ops.zeros((B, 1, SIZE - 1, E)),)),
        "growing": lambda: layers.GrowingCache((ops.zeros((B, 1, 0, E)),)),
        "rows": lambda: layers.RowCaches(
            tuple(layers.RollingCache((ops.convert_to_tensor(state[:1, :, :SIZE]),), start) for _ in range(B))
        ),
    }
    x, cache, read, got = numbers(B, T, E), caches[kind](), 0, []
    for count in chunks:
        slots = layers.Visibility(causal=True, query_slots=ops.arange(read, read + count, dtype="int32"))
        result = layer(x[:, read : read + count], visibility=slots, cache=cache, return_cache=True)
        got.append(ops.convert_to_numpy(result["output"]))
        cache, read = result["cache"], read + count
    assert_close(np.concatenate(got, axis=1), reference(layer, x))


def test_discarded_tokens_do_not_affect_later_ones(layer):
    x, margin = numbers(B, T, E), 2
    cache = layers.RollingCache((ops.zeros((B, 1, layers.RollingCache.num_slots(SIZE, margin), E)),), ops.array(0))

    def read(first, last, cache, x=x):
        slots = layers.Visibility(causal=True, query_slots=ops.arange(first, last, dtype="int32"))
        return layer(x[:, first:last], visibility=slots, cache=cache, return_cache=True)

    cache = read(0, 5, cache)["cache"]
    wrong = read(5, 7, cache, -x)["cache"]
    back = layers.RollingCache(wrong.tensors, wrong.position - margin)
    assert_close(read(5, 7, back)["output"], reference(layer, x)[:, 5:])


def test_what_it_cannot_follow_is_refused(layer):
    x = numbers(B, T, E)
    with pytest.raises(InputError, match="mask of padding alone.*Received: shape"):
        layer(x, attention_mask=layers.causal_mask(T)[0])
    with pytest.raises(InputError, match="is causal"):
        layer(x, visibility=layers.Visibility(causal=False))
    with pytest.raises(InputError, match="at least 2. Received: kernel_size=1"):
        layers.ShortConvolution(E, 1)
