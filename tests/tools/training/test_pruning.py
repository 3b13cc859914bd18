"""Pruned models compute what the original does, as far as only units without effect are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from kerasformer import zoo
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.tools.training import chosen_layers, prune, unit_importance
from tests.core.layers.parity import assert_close

SIZES = {"hidden_dim": 16, "num_layers": 4, "num_heads": 4, "vocab_size": 50}
IDS = np.random.default_rng(1).integers(3, 50, (4, 6)).astype("int32")
LABELS = np.array([0, 1, 0, 1])
FIELDS = {
    "bert": ("text-classification", {"intermediate_dim": 24, "hidden_dropout": 0.0, "attention_dropout": 0.0}),
    "gpt2": ("text-generation", {"inner_dim": 24}),
    "t5": ("text2text-generation", {"intermediate_dim": 24, "head_dim": 6}),
    "llama": ("text-generation", {"intermediate_dim": 24, "num_key_value_heads": 2}),
    "modernbert": ("fill-mask", {"intermediate_dim": 24}),
    "bloom": ("text-generation", {}),
    "mpnet": ("fill-mask", {"intermediate_dim": 24}),
}
AUTO = {
    "bert": transformers.AutoModelForSequenceClassification,
    "gpt2": transformers.AutoModelForCausalLM,
    "t5": transformers.AutoModelForSeq2SeqLM,
    "llama": transformers.AutoModelForCausalLM,
    "mpnet": transformers.AutoModelForMaskedLM,
}


def built(name: str) -> Any:
    """Returns a model of random weights."""
    keras.utils.set_random_seed(2)
    task, fields = FIELDS[name]
    return zoo.build(name, task, **SIZES, **fields)


def inputs(model: Any) -> dict[str, np.ndarray]:
    """Returns a batch."""
    return {"input_ids": IDS, **({"decoder_input_ids": IDS[:, :4]} if model.is_encoder_decoder else {})}


def answers(model: Any) -> np.ndarray:
    """Returns the logits of a batch."""
    return np.asarray(model(inputs(model)))


def dead(model: Any, path: str, entries: list[int]) -> None:
    """Sets the rows of a matrix to 0, so that what they read has no effect."""
    variables = [variable for variable in model.variables if variable.path.endswith(f"{path}/kernel")]
    assert variables
    for variable in variables:
        value = np.array(variable)
        value[entries] = 0
        variable.assign(value)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("bert", {"layers": "1,3", "neurons": 15}),
        ("bert", {"width": 8}),
        ("gpt2", {"layers": 2, "neurons": 15, "width": 12}),
        ("t5", {"layers": 3, "decoder_layers": 1, "heads": 2, "neurons": 15, "width": 10}),
        ("llama", {"layers": 2, "heads": 2, "neurons": 15, "width": 10}),
        ("mpnet", {"layers": 2, "heads": 2, "width": 8}),
    ],
)
def test_transformers_loads_pruned_models(name: str, cut: dict[str, Any], tmp_path: Path) -> None:
    model = prune(built(name), **cut)
    assert type(model) is type(built(name))
    model.save_pretrained(tmp_path)
    reference = AUTO[name].from_pretrained(tmp_path).eval()
    with torch.no_grad():
        logits = reference(**{key: torch.tensor(value.astype("int64")) for key, value in inputs(model).items()}).logits
    np.testing.assert_allclose(answers(model), logits.numpy(), atol=2e-5)
    np.testing.assert_array_equal(answers(zoo.load(tmp_path, FIELDS[name][0])), answers(model))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "llama"])
def test_units_without_effect(name: str) -> None:
    model = built(name)
    whole = {"layers": 4, "heads": 4, "width": 16, "neurons": 24}
    np.testing.assert_array_equal(answers(prune(model, **whole)), answers(model))
    dead(model, "feed_forward/output", [0, 3, 4, 11, 23])
    expected, small = answers(model), prune(model, neurons=19)
    assert small.count_params() < model.count_params()
    # The remaining terms are added in another order, of which the rounding grows with the outputs and the layers.
    assert_close(answers(small), expected)
    if name in ("t5", "llama"):  # the others have heads of a size that follows from the width
        size = 6 if name == "t5" else 4
        # Llama's heads 0 and 1 share their keys; T5's heads are those of all layers.
        rows = [*range(size * 2)] if name == "llama" else [*range(size), *range(2 * size, 3 * size)]
        dead(model, "attention/output", rows)
        assert_close(answers(prune(model, heads=2)), answers(model))
        with pytest.raises(AssertionError):
            assert_close(answers(prune(model, heads=1 if name == "t5" else 2, layers=3)), answers(model), 1e-2)


def test_layers_are_those_of_the_original() -> None:
    model = built("bert")
    small = prune(model, layers="0,3")
    layers = model.backbone.encoder.layers
    for layer in layers[1:3]:  # identities: the residual sum alone, without norms that would change it
        layer.call = lambda x, **others: x
    assert_close(answers(small), answers(model))
    # The layers of DistilBERT, in `scripts/extract_distilbert.py` of its repository.
    assert chosen_layers(6, 12) == [0, 2, 4, 7, 9, 11]
    assert chosen_layers("2,0", 3) == [0, 2] and chosen_layers(1, 9) == [0]


def test_first_order_importance() -> None:
    """Michel et al. 2019: the gradient of a mask of the heads, and likewise of the neurons, in PyTorch."""
    model = prune(built("bert"), layers=2)
    data = tf.data.Dataset.from_tensor_slices((inputs(model), LABELS)).batch(2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = unit_importance(model, data, loss)
    masks = {"attention": np.zeros((2, 4)), "feed_forward": np.zeros((2, 24))}
    weights = {variable.path.split("/", 1)[1]: torch.tensor(np.asarray(variable)) for variable in model.variables}
    for first in (0, 2):
        factors = {name: torch.ones(value.shape, requires_grad=True) for name, value in masks.items()}
        part = slice(first, first + 2)
        logits = bert(weights, torch.tensor(IDS[part].astype("int64")), factors)
        torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS[part])).backward()
        for name, factor in factors.items():
            masks[name] += factor.grad.abs().numpy() / 2  # two batches
    for name, expected in masks.items():
        for index in range(2):
            np.testing.assert_allclose(found[f"backbone/encoder/layer_{index}/{name}"], expected[index], rtol=1e-3)
    small = prune(model, neurons=10, importance=found)
    best = np.sort(np.argsort(-masks["feed_forward"][1])[:10])
    kernels = [
        np.asarray(next(v for v in each.variables if v.path.endswith("layer_1/feed_forward/intermediate/kernel")))
        for each in (model, small)
    ]
    np.testing.assert_array_equal(kernels[1], kernels[0][:, best])


def bert(weights: dict[str, torch.Tensor], ids: torch.Tensor, factors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The forward pass of BERT with a factor of each head and of each neuron."""

    def dense(x: torch.Tensor, path: str) -> torch.Tensor:
        return x @ weights[f"{path}/kernel"] + weights[f"{path}/bias"]

    def norm(x: torch.Tensor, path: str) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (16,), weights[f"{path}/scale"], weights[f"{path}/bias"], 1e-12)

    tables = {name: weights[f"backbone/embeddings/{name}/embeddings"] for name in ("tokens", "positions", "segments")}
    x = tables["tokens"][ids] + tables["positions"][: ids.shape[1]] + tables["segments"][0]
    x = norm(x, "backbone/embeddings/norm")
    for index in range(2):
        path = f"backbone/encoder/layer_{index}"
        heads = [dense(x, f"{path}/attention/{name}") for name in ("query", "key", "value")]
        query, key, value = (y.reshape(2, 6, 4, 4).transpose(1, 2) for y in heads)
        context = torch.softmax(query @ key.transpose(2, 3) / 2.0, -1) @ value
        context = (context * factors["attention"][index][:, None, None]).transpose(1, 2).reshape(2, 6, 16)
        x = norm(x + dense(context, f"{path}/attention/output"), f"{path}/attention_norm")
        inner = torch.nn.functional.gelu(dense(x, f"{path}/feed_forward/intermediate"))
        inner = inner * factors["feed_forward"][index]
        x = norm(x + dense(inner, f"{path}/feed_forward/output"), f"{path}/feed_forward_norm")
    return dense(torch.tanh(dense(x[:, 0], "backbone/pooler")), "head/output")


@pytest.mark.parametrize(
    ("name", "cut", "error", "message"),
    [
        ("bert", {}, InputError, "Received: none"),
        ("bert", {"layers": "0,4"}, InputError, "from 0 to 3"),
        ("bert", {"neurons": 25}, InputError, "at most that of the model, 24"),
        ("bert", {"heads": 2}, UnsupportedConfigError, "Expected: width=8 with heads=2"),
        ("llama", {"heads": 3}, InputError, "a multiple of 2"),
        ("bloom", {"heads": 2, "width": 8}, UnsupportedConfigError, "ALiBi"),
        ("modernbert", {"layers": "1,2"}, UnsupportedConfigError, "layer_1/attention_norm"),
    ],
)
def test_errors(name: str, cut: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        prune(built(name), **cut)
