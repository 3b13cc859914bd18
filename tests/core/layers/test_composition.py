"""Combinations of layers by users: kinds of masks, decoders of encoder layers, low-rank matrices, XLA."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from kerasformer import layers
from kerasformer.errors import InputError
from kerasformer.layers.core import merged_lora
from tests.core.layers.cases import decoder_layer, encoder, encoder_layer
from tests.core.layers.parity import as_numpy, assert_close, integers, numbers
from tests.grids import on_jax

x, memory = numbers(3, 5, 12), numbers(3, 7, 12, seed=1)
real = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], "int32")
memory_real = np.array([[1] * 7, [1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]], "int32")
causal = np.tril(np.ones((5, 5), bool))


PADDED = {
    "head": lambda: layers.AttentionHead(4),
    "attention": lambda: layers.MultiHeadAttention(3, 12),
    "encoder layer": encoder_layer(),
    "encoder": encoder,
}


@pytest.mark.parametrize("name", on_jax(PADDED, chosen=("encoder",)))
def test_a_padding_mask_may_have_two_axes(name) -> None:
    layer = PADDED[name]()
    expected = layer(x, attention_mask=layers.padding_mask(real))
    assert_close(layer(x, attention_mask=real), expected)
    assert_close(layer(x, attention_mask=real[:, None, :]), expected)
    assert np.abs(as_numpy(expected) - as_numpy(layer(x))).max() > 1e-3
    with pytest.raises(InputError, match=r"\(B, S\).*Expected: \(3, 5\). Received: shape \(5, 5\)"):
        layer(x, attention_mask=causal)
    with pytest.raises(InputError, match="Received: shape"):
        layer(x, attention_mask=real[0])


@pytest.mark.parametrize("stacked", on_jax([False, True], chosen=(True,)), ids=["layer", "stack"])
def test_a_decoder_is_causal_and_requires_a_memory(stacked) -> None:
    layer = layers.Decoder([decoder_layer()()]) if stacked else decoder_layer()()
    mask = {"attention_mask": causal[None]}
    expected = layer(x, memory=memory, memory_mask=layers.padding_mask(memory_real), **mask)
    assert_close(layer(x, memory=memory, memory_mask=memory_real), expected)
    assert_close(layer(x, memory=memory, memory_mask=memory_real, **mask), expected)
    with pytest.raises(InputError, match="has cross attention. Expected: memory="):
        layer(x, **mask)


DECODERS = {
    "layer": lambda: layers.DecoderLayer(layers.MultiHeadAttention(3, 12), layers.FeedForward(12, 20)),
    "stack": lambda: layers.Decoder([DECODERS["layer"](), DECODERS["layer"]()]),
    "stack of encoder layers": lambda: layers.Decoder([encoder_layer(name=f"layer_{i}")() for i in range(2)]),
}
prefix = causal | (np.arange(5) < 2)
MASKS = {
    "none": ({}, causal),
    "padding": ({"attention_mask": real}, causal & (real[:, None] > 0)),
    "padding of three axes": ({"attention_mask": real[:, None]}, causal & (real[:, None] > 0)),
    "padding of four axes": ({"attention_mask": layers.padding_mask(real)}, causal & (real[:, None] > 0)),
    "a row for each query": ({"attention_mask": prefix[None]}, prefix[None]),
    "positions": ({"visibility": layers.Visibility(positions=np.arange(5, dtype="int32")[None])}, causal),
    "key mask": ({"visibility": layers.Visibility(key_mask=real)}, causal & (real[:, None] > 0)),
    "causal": ({"visibility": layers.Visibility(causal=True)}, causal),
    "not causal": ({"visibility": layers.Visibility(causal=False)}, np.ones((5, 5), bool)),
}
"""Arguments of a decoder's call, and the keys that each query attends to."""


@pytest.mark.parametrize(
    ("made", "mask"),
    on_jax(
        DECODERS, MASKS, chosen=[("layer", "padding"), ("stack", "causal"), ("stack of encoder layers", "positions")]
    ),
)
def test_a_decoder_is_causal_unless_its_arguments_specify_otherwise(made, mask) -> None:
    layer, (arguments, expected) = DECODERS[made](), MASKS[mask]
    visibility = layers.Visibility(causal=False, mask=np.broadcast_to(expected, (3, 5, 5))[:, None])
    assert_close(layer(x, **arguments), layer(x, visibility=visibility))


@pytest.mark.jax
def test_a_causal_decoder_in_a_functional_model_of_any_length() -> None:
    inputs = {"x": keras.Input((None, 12), name="x"), "mask": keras.Input((None,), dtype="int32", name="mask")}
    decoder, mask = DECODERS["stack"](), np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], "int32")
    expected = as_numpy(decoder(x, attention_mask=mask))
    both = ops.logical_and(layers.causal_mask(inputs["x"]), layers.padding_mask(inputs["mask"]))
    for arguments in (
        {"attention_mask": inputs["mask"]},
        {"attention_mask": both},
        {"attention_mask": layers.padding_mask(inputs["mask"]), "visibility": layers.Visibility(causal=True)},
    ):
        model = keras.Model(inputs, decoder(inputs["x"], **arguments))
        assert model.output_shape == (None, None, 12)
        assert_close(model({"x": x, "mask": mask}), expected)
        assert_close(model({"x": x[:, :3], "mask": mask[:, :3]}), expected[:, :3])
    with pytest.raises(InputError, match="Expected: a number, or a tensor .* Received: None"):
        layers.causal_mask(inputs["x"].shape[1])
    with pytest.raises(
        InputError, match="Expected: attention_mask= and bias= of the layer. Received: symbolic key_mask"
    ):
        layers.Visibility(key_mask=inputs["mask"])


def test_functional_models_return_requested_states() -> None:
    inputs = {name: keras.Input(a.shape[1:], name=name) for name, a in {"x": x, "memory": memory}.items()}
    decoder = layers.Decoder([decoder_layer(name=f"layer_{i}")() for i in range(2)])
    flags = {"return_attention": True, "return_hidden_states": True}
    mask = layers.causal_mask(5)
    model = keras.Model(inputs, decoder(inputs["x"], memory=inputs["memory"], attention_mask=mask, **flags))
    given, expected = model({"x": x, "memory": memory}), decoder(x, memory=memory, attention_mask=mask, **flags)
    assert given.keys() == expected.keys() == {"output", "attentions", "cross_attentions", "hidden_states"}
    for name in given:
        assert_close(np.stack(keras.tree.flatten(given[name])), np.stack(keras.tree.flatten(expected[name])))


LOW_RANK = {
    "dense": (lambda: layers.Dense(5, activation="tanh"), numbers(3, 12)),
    "embedding": (lambda: layers.Embedding(11, 6), integers(11, 3, 4)),
}


@pytest.mark.parametrize(("make", "inputs"), LOW_RANK.values(), ids=LOW_RANK)
def test_low_rank_matrices_are_those_of_keras(make, inputs, tmp_path) -> None:
    layer = make()
    before = layer(inputs)
    stock = keras.layers.Dense(5, "tanh") if isinstance(layer, layers.Dense) else keras.layers.Embedding(11, 6)
    stock.build(inputs.shape)
    stock.set_weights(layer.get_weights())
    with pytest.raises(InputError, match="rank must be a positive integer. Received: rank=0"):
        layer.enable_lora(0)
    for each in (layer, stock):
        each.enable_lora(2, lora_alpha=3)
    assert_close(layer(inputs), before)
    assert [v.shape for v in layer.trainable_variables] == [v.shape for v in stock.trainable_variables]
    for ours, theirs in zip(layer.trainable_variables, stock.trainable_variables, strict=True):
        theirs.assign(numbers(*theirs.shape, seed=4))
        ours.assign(theirs)
    assert_close(layer(inputs), stock(inputs))
    model = keras.Sequential([keras.Input(inputs.shape[1:], dtype=str(inputs.dtype)), layer])
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_close(loaded(inputs), layer(inputs))
    assert loaded.layers[-1].lora_enabled and not as_numpy(loaded.layers[-1].lora_b).any()
    own, expected = layer.get_weights(), layer(inputs)
    with merged_lora(model):
        assert_close(layer(inputs), expected)
    for a, b in zip(layer.get_weights(), own, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="already has low-rank matrices"):
        layer.enable_lora(2)


def test_a_tied_output_has_the_low_rank_matrices_of_its_table() -> None:
    table, hidden = layers.Embedding(11, 6), numbers(2, 3, 6)
    table.build()
    table.enable_lora(2)
    table.lora_b.assign(numbers(2, 6))
    scores = table.project(hidden)
    with merged_lora(table):
        assert_close(scores, table.project(hidden))


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="the choice of a generator is TensorFlow's")
def test_dropout_avoids_an_operation_that_is_slow_with_xla() -> None:
    """An operation of the dropout of Keras makes training steps several times as long on CPUs."""
    import tensorflow as tf

    layer, ones = layers.Dropout(0.3, seed=5), tf.ones((40, 50))
    run = tf.function(lambda x: layer(x, training=True), jit_compile=True)
    kinds = {operation.type for operation in run.get_concrete_function(ones).graph.get_operations()}
    assert "StatelessRandomUniformV2" in kinds and "StatelessRandomGetKeyCounter" not in kinds
    for dropped in (run(ones), layer(ones, training=True)):
        zeros = as_numpy(dropped) == 0
        assert 0.25 < zeros.mean() < 0.35 and np.allclose(as_numpy(dropped)[~zeros], 1 / 0.7)
    assert np.abs(as_numpy(run(ones)) - as_numpy(run(ones))).max() > 0
    assert_close(layer(ones), ones)
