from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import Variable, backend, ops

from kerasformer import layers
from kerasformer.layers import primitives
from kerasformer.layers import tensor as tensors
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.recurrent import LSTM
from tests.core.layers.composites import LlamaLayer, TiedLM
from tests.core.layers.parity import as_numpy, assert_close, integers, numbers
from tests.grids import on_jax

TUPLES = {"attention": (None,), "multi_head_attention": (None, None), "linear_recurrence": (None,)}
"""Primitives with several results, and the results after the first."""
NAMES = [
    *("linear", "adapted_linear", "embedding", "residual", "layer_norm", "rms_norm", "gelu", "rotary", "lstm"),
    *TUPLES,
]
"""All operations that an exporter may override, except for `CASTS`."""
CASTS = ["to_int8", "from_int8"]
"""Conversions of int8 caches, which tests/core/export/test_int8_caches.py covers."""


class Recorder(Primitives):
    """Records calls of primitives with their arguments, and computes them as usual."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []


def _recorded(name: str) -> Any:
    def method(self: Recorder, *arguments: Any, **named: Any) -> Any:
        self.calls.append((name, arguments))
        return getattr(Primitives, name)(self, *arguments, **named)

    return method


for _name in NAMES:
    setattr(Recorder, _name, _recorded(_name))


def encoder_of_bert(ids: Any) -> Any:
    """A model of embeddings, a layer and a prediction head."""
    layer = layers.EncoderLayer(layers.MultiHeadAttention(2, 8), layers.FeedForward(8, 12))
    return layer(layers.TransformerEmbeddings(11, 9, 8, num_segments=2)(ids))


IDS = integers(11, 2, 5)
POSITIONS = np.tile(np.arange(5, dtype="int32"), (2, 1))
ATTENTION = {"multi_head_attention": 1, "attention": 1}
MODELS = {
    "BERT": (
        lambda: encoder_of_bert(IDS),
        {"linear": 6, "embedding": 3, "layer_norm": 3, "gelu": 1, "residual": 2, **ATTENTION},
    ),
    "tied": (lambda: TiedLM()(IDS), {"linear": 2, "embedding": 1, "layer_norm": 1, "gelu": 1}),
    "LLaMA": (
        lambda: LlamaLayer()(numbers(2, 5, 18), POSITIONS),
        {"linear": 7, "rms_norm": 2, "rotary": 2, "residual": 2, **ATTENTION},
    ),
}


def test_these_are_all_primitives() -> None:
    assert sorted(name for name in vars(Primitives) if not name.startswith("_")) == sorted([*NAMES, *CASTS, "layer"])


@pytest.mark.jax_release
@pytest.mark.parametrize("model", MODELS)
def test_a_lowering_is_called_for_every_primitive(model) -> None:
    run, expected = MODELS[model]
    recorder = Recorder()
    with lowering(recorder):
        run()
    called = [name for name, _ in recorder.calls]
    assert {name: called.count(name) for name in called} == expected
    run()
    assert len(recorder.calls) == len(called)


@pytest.mark.jax_release
def test_weights_are_passed_as_variables() -> None:
    """A lowering identifies a weight by its variable."""
    recorder = Recorder()
    with lowering(recorder):
        encoder_of_bert(IDS)
        TiedLM()(IDS)
    weights = {"linear": (1, 2), "embedding": (0,), "layer_norm": (1, 2)}
    for name, arguments in recorder.calls:
        for index in weights.get(name, ()):
            assert isinstance(arguments[index], Variable), (name, index)


def adapted_layer() -> layers.Dense:
    layer = layers.Dense(3)
    layer.build((None, 4))
    layer.enable_lora(2)
    return layer


SPEC = layers.AttentionSpec(num_heads=2, num_key_value_heads=2, head_dim=4, scale=1.0)
CALLS: dict[str, Any] = {
    "linear": lambda: layers.Dense(3)(numbers(2, 4)),
    "adapted_linear": lambda: adapted_layer()(numbers(2, 4)),
    "embedding": lambda: layers.Embedding(5, 4)(np.array([1, 2], "int32")),
    "layer_norm": lambda: layers.LayerNormalization()(numbers(2, 4)),
    "rms_norm": lambda: layers.RMSNormalization()(numbers(2, 4)),
    "gelu": lambda: layers.activation("gelu")(ops.convert_to_tensor(numbers(2, 4))),
    "residual": lambda: primitives.residual(numbers(2, 4), numbers(2, 4)),
    "multi_head_attention": lambda: primitives.multi_head_attention(*numbers(3, 2, 4, 8), SPEC, layers.Visibility())[0],
    "attention": lambda: layers.scaled_dot_product_attention(*numbers(3, 2, 1, 4, 4))[0],
    "rotary": lambda: primitives.rotary(*numbers(3, 2, 1, 3, 4), layers.Rotary(dim=4)),
    "lstm": lambda: LSTM(2)(numbers(2, 3, 4)),
    "linear_recurrence": lambda: primitives.linear_recurrence(
        *numbers(3, 2, 1, 3, 4), *numbers(2, 2, 1, 3), numbers(2, 1, 4, 4)
    )[0],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_result_of_a_lowering_is_used(name) -> None:
    shape = CALLS[name]().shape
    answer = ops.full(shape, 42.0)
    own = type("Own", (Primitives,), {name: lambda *_, **__: (answer, *TUPLES[name]) if name in TUPLES else answer})
    with lowering(own()):
        assert as_numpy(CALLS[name]()).tolist() == np.full(shape, 42.0).tolist()
    assert (as_numpy(CALLS[name]()) != 42.0).all()


def test_the_default_primitives_are_restored_after_an_error() -> None:
    recorder = Recorder()
    with pytest.raises(RuntimeError), lowering(recorder):
        raise RuntimeError
    CALLS["gelu"]()
    assert not recorder.calls


def test_a_fused_attention_has_no_weights() -> None:
    class Fused(Primitives):
        def attention(self, *arguments: Any, **named: Any) -> Any:
            return super().attention(*arguments, **named)[0], None

    layer, x = layers.MultiHeadAttention(2, 8), numbers(2, 3, 8)
    expected = layer(x)
    with lowering(Fused()):
        given = layer(x, return_attention=True)
    assert given.keys() == {"output"}
    assert_close(given["output"], expected)


def ancestors(op: Any) -> list[str]:
    """Returns the types of the operations that precede another one in a graph of TensorFlow."""
    found, pending = {}, [op]
    while pending:
        last = pending.pop()
        before = [*(tensor.op for tensor in last.inputs), *last.control_inputs]
        pending += [each for each in before if each.name not in found]
        found |= {each.name: each.type for each in before}
    return list(found.values())


@pytest.mark.parametrize("transposed", on_jax([False, True], chosen=(True,)))
def test_a_wide_matrix_of_16_bits_is_converted_in_parts(transposed, monkeypatch) -> None:
    """Only a part of the matrix is in float32 at a time: in a graph, each waits for the product with the last one."""
    x = ops.convert_to_tensor(numbers(2, 3, 8))
    kernel = Variable(numbers(11, 8) if transposed else numbers(8, 11), dtype="bfloat16")
    whole = as_numpy(primitives.linear(x, kernel, transposed=transposed))
    monkeypatch.setattr(tensors, "_CONVERTED_AT_ONCE", 8 * 4)
    received = as_numpy(primitives.linear(x, kernel, transposed=transposed))
    assert received.shape == (2, 3, 11)
    assert_close(received, whole)
    if backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    graph = tf.function(lambda x: primitives.linear(x, kernel, transposed=transposed)).get_concrete_function(x).graph
    conversions = [op for op in graph.get_operations() if op.type == "Cast"]
    assert [op.outputs[0].shape.num_elements() for op in conversions] == [8 * 4, 8 * 4, 8 * 3]
    assert [ancestors(op).count("MatMul") for op in conversions] == [0, 1, 2]
