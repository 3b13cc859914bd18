"""BigBird, in addition to the cases of all architectures: training on long texts, questions, switches."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.layers import Dropout
from kerasformer.models.variables import variables_by_path
from kerasformer.tools.testing.comparison import assert_close, ragged, run_reference
from tests.core.zoo.cases import CASES

pytestmark = pytest.mark.grid

BIG_BIRD, ODD, FULL = (case for case in CASES if case.model_type == "big_bird")
SIZES = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "intermediate_dim": 20, "max_length": 64}


def long_inputs(it, lengths=(41, 30, 22)) -> dict[str, np.ndarray]:
    """Returns texts that are not a multiple of a block, with padding."""
    random, mask = np.random.default_rng(3), ragged(lengths, "right")
    return {
        "input_ids": random.integers(7, it.model.config.vocab_size, mask.shape).astype("int32"),
        "attention_mask": mask,
    }


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the tape is TensorFlow's")
@pytest.mark.parametrize("case", [BIG_BIRD, ODD], ids=str)
def test_training_of_long_texts_has_the_random_blocks_and_gradients_of_the_reference(loaded, case):
    import tensorflow as tf

    it = loaded((case, "token-classification"))
    inputs = long_inputs(it)
    evaluated = run_reference(it.reference, inputs).logits.numpy()
    it.reference.train()
    state = np.random.get_state()
    try:
        for module in it.reference.modules():  # dropout draws other numbers in PyTorch
            module.train(not isinstance(module, torch.nn.Dropout))
        it.reference.zero_grad()
        logits = it.reference(**{name: torch.tensor(value).long() for name, value in inputs.items()}).logits
        real = inputs["attention_mask"][..., None]
        direction = np.random.default_rng(5).normal(size=logits.shape).astype("float32") * real
        (logits * torch.tensor(direction)).sum().backward()
    finally:
        it.reference.eval()
        np.random.set_state(state)
    model = zoo.load(it.folder)
    for layer in model._flatten_layers():
        if isinstance(layer, Dropout):
            layer.rate = 0.0
    with tf.GradientTape() as tape:
        ours = model(inputs, training=True)
        loss = tf.reduce_sum(ours * direction)
    logits = logits.detach().numpy()
    assert np.abs((logits - evaluated) * real).max() > 1e-2, "random blocks change the answers"
    assert_close(inputs, ours, logits)
    found = tape.gradient(loss, [each.value for each in variables_by_path(model).values()])
    gradients = dict(zip(variables_by_path(model), found, strict=True))
    kernel = "backbone/encoder/layer_0/attention/key/kernel"
    theirs = it.reference.bert.encoder.layer[0].attention.self.key.weight.grad.numpy().T
    assert_close({}, gradients[kernel], theirs, tolerance=1e-4)
