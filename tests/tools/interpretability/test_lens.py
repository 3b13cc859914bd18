"""The logit lens is the head of `transformers` on each of its hidden states, and ends with the model's own output."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.models.creation import create
from kerasformer.tools.interpretability.lens import layer_logits
from kerasformer.tools.interpretability.reading import opened, read
from tests.core.export.text_models import shared_bundle, shared_model
from tests.tools.interpretability import references

TEXT = "The sea was calm."


@pytest.mark.parametrize("name", [pytest.param("next", marks=pytest.mark.jax), "masks"])
def test_layers_are_those_of_pytorch(name):
    reference, model = references.pair(name)
    inputs = read(opened(model), TEXT).inputs
    received = list(layer_logits(model, inputs))[::-1]
    with torch.no_grad():
        states = reference(
            **{key: torch.as_tensor(array) for key, array in inputs.items()}, output_hidden_states=True
        ).hidden_states
        if name == "next":
            expected = [reference.lm_head(reference.transformer.ln_f(state)) for state in states[:-1]]
            expected.append(reference.lm_head(states[-1]))
        else:
            expected = [reference.cls(state) for state in states]
    assert len(received) == len(expected)
    for layer, logits in zip(received, expected, strict=True):
        assert np.abs(layer - logits[0].numpy()).max() < 1e-4 * float(logits.abs().max())


@pytest.mark.parametrize("name", ["gpt2-text-generation", "opt-text-generation", "modernbert-fill-mask"])
def test_the_last_layer_is_the_output_of_the_model(name):
    model = shared_model(name) if "modern" not in name else _modernbert()
    inputs = read(opened(model), TEXT).inputs
    logits = keras.ops.convert_to_numpy(model(inputs))[0]
    *_, embeddings = layers = list(layer_logits(model, inputs))
    assert np.array_equal(layers[0], logits) and not np.allclose(embeddings, logits)
    lens = kf.logit_lens(model, TEXT, top_k=3)
    assert np.array_equal(lens.ids[-1, :, 0], logits.argmax(-1)) and (lens.ranks[-1] == 0).all()
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    best = (powers / powers.sum(-1, keepdims=True)).max(-1)
    np.testing.assert_allclose(lens.probabilities[-1, :, 0], best, rtol=1e-5)
    assert (np.diff(lens.probabilities, axis=-1) <= 0).all() and lens.ids.shape[-1] == 3
    assert len(lens.layers) == len(layers) == model.config.num_layers + 1


def _modernbert():
    base = shared_model("modernbert-token-classification")
    model = create(zoo.architecture("modernbert").MODELS["fill-mask"], base.config)
    model.set_tokenizer(base.tokenizer)
    return model


def test_the_first_layer_that_agrees_stays(tmp_path):
    lens = kf.logit_lens(references.pair("next")[1], TEXT)
    for position in range(len(lens.tokens)):
        layer = lens.first_layer(position)
        assert (lens.ranks[layer:, position] == 0).all() and (layer == 0 or lens.ranks[layer - 1, position] > 0)
    assert lens.best(-1, -1)[0][1] == lens.probabilities[-1, -1, 0] and lens.shifted
    lens.picture(tmp_path / "lens.png")
    with pytest.raises(InputError, match="layer must be"):
        lens.best(7, 0)


def test_what_has_no_lens_is_named():
    with pytest.raises(InputError, match="for language models.*text-classification"):
        kf.logit_lens(references.pair("classes")[1], TEXT)
    with pytest.raises(InputError, match="needs a Keras model"):
        kf.logit_lens(shared_bundle("gpt2-text-generation", "onnx"), TEXT)
