"""BigBird, in addition to the cases of all architectures: training on long texts, questions, switches."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.layers import Dropout, SparseBlocks
from kerasformer.models.variables import variables_by_path
from kerasformer.pipelines import pipeline
from kerasformer.tools.testing.comparison import HIDDEN, assert_close, ragged, run, run_reference
from tests import tiny_text
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


def test_answers_are_not_in_the_question_and_segments_follow_it(loaded):
    it = loaded((BIG_BIRD, "question-answering"))
    ids = np.random.default_rng(1).integers(7, 97, (3, 20)).astype("int32")
    ids[0, 6], ids[0, -1], ids[1, 3] = 2, 2, 2  # the third text has no separator
    inputs = {"input_ids": ids}
    outputs, expected = run(it, inputs), run_reference(it.reference, inputs)
    for name, value in outputs.items():
        hidden = value < HIDDEN
        assert hidden.sum(axis=1).tolist() == [6, 3, 0] and not hidden[:, 0].any()
        assert_close({}, value, expected[name])
    segments = (np.arange(20) > np.array([[6], [3], [0]])).astype("int32")
    for name, value in run(it, {**inputs, "token_type_ids": segments}).items():
        np.testing.assert_array_equal(value, outputs[name])
    assert it.model.input_names == ("input_ids", "attention_mask")
    assert "token_type_ids" in it.model.optional_names


def test_pairs_of_the_tokenizer_without_segments():
    """The class of `transformers` returns no segments, so that they are 0 in a pair."""
    tokenizer = tiny_text.wordpiece()
    sizes = {**SIZES, "vocab_size": tokenizer.vocab_size, "initializer_range": 0.4}
    model = zoo.build("big_bird", "text-classification", **sizes)
    model.tokenizer = tokenizer
    pair = {"text": "Rain is expected.", "text_pair": "Is it dry?"}
    with_segments = pipeline(model, "text-classification")([pair])
    model.tokenizer = type(tokenizer)(tokenizer.backend, special_tokens=dict(tokenizer.special_tokens))
    without = pipeline(model, "text-classification")([pair])
    assert with_segments != without


def test_layers_have_seeds_of_their_own():
    model = zoo.build("big_bird", block_size=4, num_random_blocks=2, **SIZES)
    blocks = [layer.attention.spec.blocks for layer in model.backbone.encoder.layers]
    assert blocks == [SparseBlocks(4, 2, 64, seed) for seed in range(2)]
    full = zoo.build("big_bird", attention_type="original_full", **SIZES)
    assert all(layer.attention.spec.blocks is None for layer in full.backbone.encoder.layers)
