"""Optimizers beside PyTorch's, schedules and decay beside those of transformers, depths beside ELECTRA's."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch
import transformers
from transformers.trainer_pt_utils import get_parameter_names

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.models.weights import hf_tensors
from kerasformer.tools.training.optimizers import WarmupSchedule, freeze, layer_depths, optimizer
from tests.grids import on_jax

SIZES = {"vocab_size": 31, "hidden_dim": 8, "num_layers": 3, "num_heads": 2, "intermediate_dim": 12}


def tiny(model_type="electra", task="text-classification", **settings):
    return zoo.build(model_type, task, **{**SIZES, **settings})


@pytest.mark.parametrize("name", ["linear", "cosine", "constant_with_warmup", "inverse_sqrt"])
def test_schedules_are_those_of_transformers(name):
    parameter = torch.nn.Parameter(torch.zeros(1))
    reference = torch.optim.SGD([parameter], 0.3)
    scheduler = transformers.get_scheduler(name, reference, num_warmup_steps=4, num_training_steps=13)
    schedule = WarmupSchedule(0.3, 13, 4, name.removesuffix("_with_warmup"))
    schedule = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    for step in range(14):
        np.testing.assert_allclose(schedule(step), scheduler.get_last_lr()[0], rtol=1e-5, atol=1e-7)
        reference.step()
        scheduler.step()


def _electra_depths(num_layers: int) -> dict[str, int]:
    """`_get_layer_lrs` of google-research/electra, model/optimization.py: the exponents of the decay."""
    depths = {"embeddings": 0, "embeddings_project": 0, "task_specific": num_layers + 2}
    for layer in range(num_layers):
        depths[f"encoder/layer_{layer}/"] = layer + 1
    return {key: num_layers + 2 - depth for key, depth in depths.items()}


def test_depths_are_those_of_electra():
    expected = _electra_depths(3)
    depths = layer_depths(tiny())
    for path, depth in depths.items():
        name = path.removeprefix("backbone/") if path.startswith("backbone/") else "task_specific"
        assert depth == next(value for key, value in expected.items() if name.startswith(key)), path
    assert {0, 2, 3, 4, 5} == set(depths.values())


def test_depths_of_other_parts():
    bert, t5 = layer_depths(tiny("bert")), layer_depths(tiny("t5", None, num_decoder_layers=2, head_dim=4))
    assert bert["backbone/pooler/kernel"] == 1
    assert t5["backbone/decoder/final_norm/scale"] == 1
    assert t5["backbone/decoder/layer_1/attention/query/kernel"] == 2
    assert t5["backbone/encoder/layer_0/attention/query/kernel"] == 4
    assert t5["backbone/encoder_bias/embeddings"] == t5["backbone/tokens/embeddings"] == 5


@pytest.mark.parametrize(
    "model_type, task, kind, settings",
    [
        ("bert", "text-classification", transformers.BertForSequenceClassification, {}),
        ("t5", "text2text-generation", transformers.T5ForConditionalGeneration, {"head_dim": 4}),
        ("llama", "text-generation", transformers.LlamaForCausalLM, {}),
    ],
)
def test_decay_is_that_of_transformers(model_type, task, kind, settings):
    """The names are those of `Trainer.get_decay_parameter_names`."""
    model = tiny(model_type, task, **settings)
    without = set(optimizer(model, 1e-3, steps=1).no_decay)
    for variable in model.weights:
        if "seed_generator" not in variable.path:
            variable.assign(np.full(variable.shape, variable.path.partition("/")[2] not in without, variable.dtype))
    config = kind.config_class(**model.config.to_hf())
    forbidden = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    with torch.device("meta"):
        norms = list(transformers.pytorch_utils.ALL_LAYERNORM_LAYERS)
        decaying = get_parameter_names(kind(config), norms, [*forbidden, r"layer_norm"])
    ours = {name: float(np.mean(value)) for name, value in hf_tensors(model, model.rows(saved=True))}
    assert {name for name, value in ours.items() if value} == set(decaying) & set(ours)
    assert without


@pytest.mark.parametrize("clip_norm", on_jax([None, 0.5], chosen=()))
def test_adamw_is_that_of_pytorch(clip_norm):
    model = tiny("bert", num_layers=2)
    freeze(model, 1)
    ours = optimizer(
        model, 3e-2, steps=6, warmup=2, schedule="cosine", weight_decay=0.1, layer_decay=0.6, clip_norm=clip_norm
    )
    ours = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ours))
    variables = model.trainable_variables
    depths = layer_depths(model)
    groups, twins = [], []
    for variable in variables:
        path = variable.path.partition("/")[2]
        assert "embeddings" not in path and "layer_0" not in path
        twins.append(torch.nn.Parameter(torch.tensor(np.asarray(variable))))
        decay = 0.1 if path.endswith("kernel") else 0.0
        groups.append({"params": [twins[-1]], "lr": 3e-2 * 0.6 ** depths[path], "weight_decay": decay})
    reference = torch.optim.AdamW(groups)
    scheduler = transformers.get_scheduler("cosine", reference, num_warmup_steps=2, num_training_steps=6)
    random = np.random.default_rng(0)
    for _ in range(6):
        gradients = [random.normal(size=variable.shape).astype("float32") for variable in variables]
        ours.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients], variables)
        for twin, gradient in zip(twins, gradients, strict=True):
            twin.grad = torch.tensor(gradient)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(twins, clip_norm)
        reference.step()
        scheduler.step()
    for variable, twin in zip(variables, twins, strict=True):
        np.testing.assert_allclose(np.asarray(variable), twin.detach().numpy(), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", on_jax(["adamw", "adafactor"], chosen=("adafactor",)))
def test_the_upper_layers_move_further_and_frozen_ones_stay(name):
    model = tiny("bert", num_layers=3)
    freeze(model, 1)
    before = {variable.path: np.asarray(variable) for variable in model.weights}
    rates = optimizer(model, 1e-2, steps=8, warmup=0, weight_decay=0.0, layer_decay=0.5, clip_norm=None, name=name)
    variables = model.trainable_variables
    rates.apply([keras.ops.ones(variable.shape) for variable in variables], variables)
    moved = {variable.path: np.abs(np.asarray(variable) - before[variable.path]).max() for variable in model.weights}
    for path, distance in moved.items():
        assert "seed_generator" in path or bool(distance) != ("embeddings" in path or "layer_0" in path), path
    norms = {key: distance for key, distance in moved.items() if key.endswith("attention_norm/scale")}
    first, second, third = norms.values()
    assert first == 0 and third == pytest.approx(2 * second, rel=0.01)


def test_a_keras_file_holds_the_optimizer(tmp_path):
    model = tiny("bert", num_layers=1)
    model.compile(optimizer(model, 1e-2, steps=8, layer_decay=0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    gradients = [keras.ops.ones(variable.shape) for variable in model.trainable_variables]
    model.optimizer.apply(gradients, model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert again.get_config() == model.optimizer.get_config()
    for ours, theirs in zip(model.optimizer.variables, again.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize(
    "options, received",
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": 9, "warmup": 10}, "warmup_steps=10"),
        ({"steps": 9, "schedule": "step"}, "schedule='step'"),
        ({"steps": 9, "name": "lion"}, "name='lion'"),
    ],
)
def test_invalid_arguments(options, received):
    with pytest.raises(InputError, match=received):
        optimizer(tiny(num_layers=1), 1e-3, **options)
