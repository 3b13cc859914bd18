from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

from tests.core.layers.cases import CASES
from tests.core.layers.parity import (
    Case,
    assert_close,
    call_layer,
    call_twin,
    loaded_layer,
    numbers,
    seeded_twin,
    torch_inputs,
    translate,
    variables,
)
from tests.grids import on_jax

every_case = pytest.mark.parametrize("case", CASES, ids=str)

HALF_PRECISION = {"mixed_float16": 1e-2, "mixed_bfloat16": 8e-2}
"""About ten roundings of 2^-11 and 2^-8."""

USUAL = {"encoder", "decoder"}
"""Cases of which mixed precision is tested without marks, and on the second backend, which compiles each operation."""


@pytest.fixture(params=HALF_PRECISION)
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield keras.config.dtype_policy()
    keras.config.set_dtype_policy(before)


KINDS = {
    "dense without bias, activated", "embedding", "layer norm", "rms norm", "one head", "attention both masks",
    "attention float bias", "attention cross to another size, padding mask", "attention grouped heads",
    "feed-forward SwiGLU", "classification head with a hidden layer", "encoder", "decoder",
}  # fmt: skip
"""A case of each kind of layer, which CI also compares on the second backend."""


@pytest.mark.parametrize("case", on_jax(CASES, chosen=lambda case: case.name in KINDS), ids=str)
def test_forward(case: Case) -> None:
    twin = seeded_twin(case)
    layer, expected = loaded_layer(case, twin), call_twin(twin, torch_inputs(case.inputs))
    more = {"return_attention": True} if len(expected) > 1 else {}
    outputs = call_layer(layer, case.inputs, **more)
    assert len(outputs) == len(expected)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert_close(ours, theirs)


@every_case
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="records gradients on TensorFlow's tape")
def test_gradients(case: Case) -> None:
    import tensorflow as tf

    twin = seeded_twin(case)
    layer = loaded_layer(case, twin)
    theirs = torch_inputs(case.inputs)
    expected = call_twin(twin, theirs)[0]
    direction = numbers(*expected.shape, seed=7)
    (expected * torch.tensor(direction)).sum().backward()

    ours = {name: tf.constant(array) for name, array in case.inputs.items()}
    watched = {name: x for name, x in ours.items() if x.dtype.is_floating}
    weights = {path: variable.value for path, variable in variables(layer).items()}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = tf.reduce_sum(call_layer(layer, ours)[0] * direction)
    got, got_weights = tape.gradient(loss, (watched, weights))

    expected_gradients = {name: theirs[name].grad.numpy() for name in watched}
    expected_weights = translate(case, layer, {name: p.grad.numpy() for name, p in twin.named_parameters()})
    # The bias of keys shifts all scores of a query equally, so that its gradient is only rounding noise of others.
    largest = max(float(np.abs(x).max()) for x in [*expected_gradients.values(), *expected_weights.values()])
    for name, gradient in {**expected_gradients, **expected_weights}.items():
        ours_here = tf.convert_to_tensor(got[name] if name in got else got_weights[name])
        assert_close(ours_here, gradient, scale=largest if name.endswith("key/bias") else None, what=name)


@pytest.mark.parametrize(
    "case",
    [
        *on_jax([case for case in CASES if case.name in USUAL], chosen=lambda case: case.name == "encoder"),
        *(pytest.param(case, marks=pytest.mark.grid) for case in CASES if case.name not in USUAL),
    ],
    ids=str,
)
def test_mixed_precision(case: Case, policy) -> None:
    twin = seeded_twin(case)
    layer = loaded_layer(case, twin)
    outputs = call_layer(layer, case.inputs)
    assert {keras.backend.standardize_dtype(x.dtype) for x in outputs} == {policy.compute_dtype}
    assert {v.dtype for v in layer.trainable_variables} == {"float32"}
    assert_close(outputs[0], call_twin(twin, torch_inputs(case.inputs))[0], HALF_PRECISION[policy.name])
