from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

from kerasformer import layers
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.layers.activations import _ACTIVATIONS
from tests.core.layers.cases import decoder, decoder_layer, encoder_layer
from tests.core.layers.parity import as_numpy, assert_close, numbers
from tests.grids import on_jax

# Includes the range in which the exact and the approximate GELU differ.
RANGE = np.linspace(-6, 6, 97).astype("float32")


@pytest.mark.parametrize("name", on_jax(sorted(_ACTIVATIONS), chosen=("gelu", "gelu_new")))
def test_activation_is_that_of_the_same_name(name) -> None:
    assert_close(layers.activation(name)(RANGE), ACT2FN[name](torch.tensor(RANGE)))


def test_every_activation_of_transformers_without_weights_exists() -> None:
    assert {*ACT2FN} - {"prelu", "xielu"} <= {*_ACTIVATIONS}
    extremes = np.array([-200.0, -90.0, 90.0, 200.0], "float32")
    for name in ("mish", "sqrtsoftplus"):
        assert_close(layers.activation(name)(extremes), ACT2FN[name](torch.tensor(extremes)))


def test_no_activation_is_the_identity() -> None:
    assert layers.activation(None)(RANGE) is RANGE


def test_norm_of_equal_numbers_is_finite() -> None:
    assert as_numpy(layers.LayerNormalization()(np.full((2, 4), 3.0, "float32"))).tolist() == [[0.0] * 4] * 2
    assert as_numpy(layers.RMSNormalization()(np.zeros((2, 4), "float32"))).tolist() == [[0.0] * 4] * 2


@pytest.mark.jax
def test_norms_are_computed_in_float32() -> None:
    """The squares of these values exceed the range of float16; their norms do not."""
    x = (1000.0 * numbers(3, 12)).astype("float16")
    for layer in (layers.LayerNormalization(dtype="mixed_float16"), layers.RMSNormalization(dtype="mixed_float16")):
        exact = type(layer)(layer.epsilon)
        assert_close(layer(x), exact(x.astype("float32")), tolerance=2e-3)


def test_a_decoder_needs_no_memory() -> None:
    """Without cross attention, a decoder layer equals an encoder layer."""
    decoding = layers.DecoderLayer(layers.MultiHeadAttention(3, 12), layers.FeedForward(12, 20))
    encoding, x = encoder_layer()(), numbers(2, 3, 12)
    decoding(x), encoding(x)
    decoding.set_weights(encoding.get_weights())
    mask = layers.causal_mask(3)
    assert_close(layers.Decoder([decoding])(x, attention_mask=mask), encoding(x, attention_mask=mask))


@pytest.mark.parametrize(
    ("make", "error", "received"),
    [
        (lambda: layers.activation("gellu"), UnsupportedConfigError, "'gellu'"),
        (lambda: layers.Dense(3, activation="nothing"), UnsupportedConfigError, "'nothing'"),
        (lambda: layers.normalization("batch_norm", 1e-5), InputError, "'batch_norm'"),
        (lambda: encoder_layer(norm="none")(), InputError, "'none'"),
        (lambda: layers.Encoder([encoder_layer()()], schedule=[0, 1]), InputError, r"schedule=\[0, 1\]"),
        (lambda: layers.Decoder([decoder_layer()()], schedule=[-1]), InputError, r"schedule=\[-1\]"),
    ],
)
def test_bad_arguments_are_refused(make, error, received) -> None:
    with pytest.raises(error, match=f"Received: {received}"):
        make()


def test_the_wrong_number_of_caches_is_refused() -> None:
    stack = decoder().decoder
    with pytest.raises(InputError, match="one cache for each layer: 2. Received: 1 caches, 2 cross caches"):
        stack(numbers(2, 3, 12), memory=numbers(2, 3, 12), caches=[None])
