"""Training with Keras: gradients equal those of PyTorch, and `fit` reduces the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import keras
import numpy as np
import pytest
import torch

from kerasformer.models.layouts import Offset, SideBySide
from kerasformer.models.variables import variables_by_path
from kerasformer.tools.testing.comparison import further_inputs, make_inputs
from tests.core.zoo.cases import DISTINCT, FIRST
from tests.core.zoo.harness import of_heads, rows

pytestmark = pytest.mark.grid

GRADIENT_TOLERANCE = 1e-4
"""Relative to the largest gradient of a tensor; twice as many sums contribute as in the forward pass."""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the tape is TensorFlow's")
@pytest.mark.parametrize(
    "row", of_heads(rows(DISTINCT, ("fill-mask", "text-generation", "text2text-generation"), on_jax=False))
)
def test_gradients(loaded, row):
    import tensorflow as tf

    it = loaded(row)
    inputs = make_inputs(it)
    if "global_attention_mask" in it.model.optional_names:  # without global tokens, some weights have no gradient
        inputs["global_attention_mask"] = np.eye(3, 9, 1, dtype="int32")
    mask = inputs["decoder_attention_mask" if it.model.is_encoder_decoder else "attention_mask"][..., None]
    # A loss of real tokens only, with a different weight for each score.
    direction = np.random.default_rng(3).normal(size=(*mask.shape[:2], 97)).astype("float32") * mask
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(it.model(inputs) * direction)
    variables = variables_by_path(it.model)
    found = tape.gradient(loss, [variable.value for variable in variables.values()])
    gradients = {
        path: tf.convert_to_tensor(gradient).numpy()
        for path, gradient in zip(variables, found, strict=True)
        if gradient is not None
    }
    it.reference.zero_grad()
    with torch.enable_grad():
        further = further_inputs(it.reference, inputs["input_ids"])
        output = it.reference(**{name: torch.tensor(value).long() for name, value in inputs.items()}, **further)
        (output.logits * torch.tensor(direction)).sum().backward()
    theirs = dict(it.reference.named_parameters(remove_duplicate=False))  # tied tensors under both names
    for table_row in it.model.rows():
        name = (
            table_row.tensor
            if table_row.tensor in theirs
            else table_row.tensor.removeprefix(it.model.backbone.names.prefix)
        )
        name = {"embed_out.weight": "lm_head.weight"}.get(name, name)  # transformers renames it on loading and saving
        if name not in theirs or not theirs[name].requires_grad:  # a buffer or a constant in the reference
            assert not any(variables[path].trainable for path in table_row.variables)
            continue
        expected = theirs[name].grad.numpy()
        if isinstance(table_row.layout, Offset):
            table_row = replace(table_row, layout=SideBySide())  # the derivative of 1 + w
        actual = table_row.to_hf([gradients[path] for path in table_row.variables])
        # The gradient of a key's bias is only rounding noise, since it shifts all scores of a query equally.
        if np.abs(expected).max() > 1e-3:
            error = np.abs(actual - expected).max() / np.abs(expected).max()
            assert error < GRADIENT_TOLERANCE, f"{name}: {error:.1e}"


def test_dropout_is_in_training_alone(loaded):
    it = loaded((FIRST[-1], "text-classification"))
    inputs = make_inputs(it)
    still = [np.asarray(it.model(inputs)) for _ in range(2)]
    moving = [np.asarray(it.model(inputs, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(*still)
    assert np.abs(moving[0] - moving[1]).max() > 1e-3 and np.abs(moving[0] - still[0]).max() > 1e-3


RATES = {
    ("bert", "text-classification"): {"attention/dropout": 0.12, "head/dropout": 0.13, "feed_forward/dropout": 0.0},
    ("bert", "question-answering"): {"attention/dropout": 0.12, "head/dropout": 0.0, "feed_forward/dropout": 0.0},
    ("distilbert", "text-classification"): {
        "attention/dropout": 0.12, "head/dropout": 0.13, "feed_forward/dropout": 0.0,
    },
    ("distilbert", "token-classification"): {"attention/dropout": 0.12, "feed_forward/dropout": 0.0},
    ("distilbert", "question-answering"): {
        "attention/dropout": 0.12, "head/dropout": 0.14, "feed_forward/dropout": 0.0,
    },
    ("albert", "text-classification"): {"attention/dropout": 0.12, "head/dropout": 0.13, "feed_forward/dropout": 0.0},
    ("albert", "pretraining"): {"attention/dropout": 0.12, "relation/dropout": 0.13, "feed_forward/dropout": 0.0},
    ("electra", "text-classification"): {
        "attention/dropout": 0.12, "head/dropout": 0.13, "head/input_dropout": 0.13, "feed_forward/dropout": 0.0,
    },
    ("mobilebert", "text-classification"): {
        "attention/dropout": 0.12, "head/dropout": 0.13, "feed_forward/dropout": 0.0, "inner_0/dropout": 0.0,
        "inner_1/dropout": 0.0, "/residual_dropout": 0.0, "reduction/dropout": 0.0,
    },
    ("deberta-v3", "text-classification"): {
        "attention/dropout": 0.12, "head/input_dropout": 0.13, "feed_forward/dropout": 0.0,
    },
    ("gpt2", "text-generation"): {"attention/dropout": 0.12, "backbone/dropout": 0.13, "feed_forward/dropout": 0.0},
    ("t5", "text2text-generation"): {},
    ("marian", "text2text-generation"): {"attention/dropout": 0.12, "feed_forward/dropout": 0.13},
    ("bart", "text-classification"): {
        "attention/dropout": 0.12, "feed_forward/dropout": 0.13, "head/dropout": 0.14, "head/input_dropout": 0.14,
    },
}  # fmt: skip
"""Suffixes of the paths of dropout layers whose rate is not 0.11."""


def dropouts(layer: keras.layers.Layer, path: str = "") -> Iterator[tuple[str, float]]:
    """Returns the path and rate of every dropout below a layer."""
    for part in layer._layers:
        if isinstance(part, keras.layers.Dropout):
            yield f"{path}/{part.name}", part.rate
        yield from dropouts(part, f"{path}/{part.name}")


@pytest.mark.parametrize(("row", "others"), RATES.items(), ids=str)
def test_dropouts_have_the_rates_of_the_configuration(loaded, row, others):
    name, task = row
    model = loaded((next(case for case in FIRST if case.name == name), task)).model
    rates = dict(dropouts(model))
    assert len(rates) >= 4 and all(any(path.endswith(end) for path in rates) for end in others)
    for path, rate in rates.items():
        assert rate == next((other for end, other in others.items() if path.endswith(end)), 0.11), path
