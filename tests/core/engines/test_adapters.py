"""Bundles with inputs for adapters: the answers of the merged weights, without a new export."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
import safetensors.numpy

import kerasformer as kf
from kerasformer import bundle, zoo
from kerasformer.bundle.adapters import read_adapter
from kerasformer.engines import open_engine
from kerasformer.errors import CheckpointError, InputError
from kerasformer.layers import Dense
from kerasformer.models.keras_engine import KerasStep

pytestmark = pytest.mark.grid

SMALL = {"vocab_size": 97, "num_layers": 2, "hidden_dim": 24, "num_heads": 3, "max_length": 64}
CASES = {
    "gpt2": (SMALL, ["c_attn", "mlp.c_fc"]),
    "llama": ({**SMALL, "intermediate_dim": 40}, ["q_proj", "v_proj", "down_proj"]),
    "gpt_neox": (SMALL, ["query_key_value"]),
}
FEW = {"prefill_lengths": (8,), "cache_lengths": (), "batch_sizes": (2,), "verify_lengths": (4,)}
TOLERANCE = 1e-5


def randomize(variables, scale=0.2):
    for index, variable in enumerate(variables):
        if "float" in variable.dtype and "scale" not in variable.path:
            variable.assign(scale * np.random.default_rng(index).normal(size=variable.shape))


def adapted(model_type, folder, **options):
    """A model of random weights, with adapters of random numbers in a folder."""
    settings, targets = CASES[model_type]
    keras.utils.set_random_seed(1)
    model = zoo.build(model_type, **settings)
    randomize(model.variables)
    for name, rank in {"small": 2, "large": 4, "too large": 5}.items():
        model.enable_lora(rank, targets, alpha=6)
        randomize(model.trainable_variables)
        model.save_adapter(folder / name)
        model.unload_adapter()
    return model, targets


def opened(folder):
    return bundle.load(folder, open_engine)


def generated(engine, ids, count=6):
    """Greedy tokens `(B, count)` and their logits `(B, count, V)`."""
    state, last = engine.start(ids, np.ones_like(ids)), ids[:, -1:]
    tokens, logits = [], []
    for _ in range(count):
        scores, state = engine.step(last, state)
        last = scores[:, -1].argmax(axis=-1)[:, None]
        tokens.append(last)
        logits.append(scores)
    return np.concatenate(tokens, axis=1), np.concatenate(logits, axis=1)


@pytest.mark.parametrize(
    ("model_type", "form"),
    [
        ("gpt2", "tflite"),
        ("gpt2", "onnx"),
        pytest.param("llama", "onnx", marks=pytest.mark.grid),
        pytest.param("gpt_neox", "tflite", marks=pytest.mark.grid),
    ],
)
def test_swapped_adapters_answer_as_merged_weights(model_type, form, tmp_path):
    model, targets = adapted(model_type, tmp_path)
    sizes = {"capacity": 32, **FEW} if form == "tflite" else {}
    model.export(tmp_path / "bundle", form, lora_rank=4, lora_targets=targets, **sizes)
    assert model.adapter is None, "the model is as before"
    engine = opened(tmp_path / "bundle")
    ids = np.random.default_rng(2).integers(3, 97, (2, 13)).astype("int32")
    base, versions = generated(engine, ids)[1], {engine.version()}
    for name in ("small", "large", "small"):
        engine.set_adapter(read_adapter(tmp_path / name))
        versions.add(engine.version())
        tokens, logits = generated(engine, ids)
        model.load_adapter(tmp_path / name)
        with_text = np.concatenate([ids, tokens[:, :-1]], axis=1)
        expected = np.asarray(model({"input_ids": with_text}))[:, ids.shape[1] - 1 :]
        model.unload_adapter()
        assert np.abs(logits - base).max() > 0.1
        assert np.abs(logits - expected).max() <= TOLERANCE * np.abs(expected).max()
        np.testing.assert_array_equal(tokens, expected.argmax(axis=-1))
    engine.set_adapter(None)
    np.testing.assert_array_equal(generated(engine, ids)[1], base)
    assert len(versions) == 3, "states of other adapters are not continued"
    if model_type == "gpt2":
        check_refusals(engine, tmp_path, base, ids)


def check_refusals(engine, folder, base, ids):
    with pytest.raises(CheckpointError, match="a rank of at most 4, that of the export. Received: 5"):
        engine.set_adapter(read_adapter(folder / "too large"))
    small = read_adapter(folder / "small")
    dora = replace(small.config, dora=True)
    values = np.ones((1, 24), "float32")
    with pytest.raises(CheckpointError) as error:
        engine.set_adapter(replace(small, config=dora, biases={"h.0.attn.c_attn.bias": values}, rows={"wte": values}))
    parts = ("3 problems", "c_attn.bias is replaced", "wte has trained rows", "magnitudes", "export --adapter")
    assert all(part in str(error.value) for part in parts)
    path = folder / "small" / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    wrong = {key.replace("c_attn", "c_proj"): value for key, value in tensors.items()}
    name = "base_model.model.transformer.h.0.mlp.c_fc.lora_B.weight"
    wrong[name] = wrong[name][1:]
    safetensors.numpy.save_file(wrong, path)
    with pytest.raises(CheckpointError) as error:
        engine.set_adapter(read_adapter(folder / "small"))
    parts = ("3 problems", "h.1.attn.c_proj: the bundle has no inputs", "B (96, r). Received: (2, 24) and (95, 2)")
    assert all(part in str(error.value) for part in (*parts, "Modules that can be adapted: c_attn, c_fc"))
    path = folder / "large" / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({key: value for key, value in tensors.items() if ".h.1.attn" not in key}, path)
    with pytest.raises(CheckpointError, match="missing: the product of transformer.h.1.attn.c_attn"):
        engine.set_adapter(read_adapter(folder / "large"))
    np.testing.assert_array_equal(generated(engine, ids)[1], base)


def test_matrices_of_a_single_layer_are_not_lost(tmp_path):
    model = zoo.build("gpt2", **SMALL)
    layer = next(each for each in model._flatten_layers() if isinstance(each, Dense))
    layer.enable_lora(2)
    layer.lora_b.assign(np.ones(layer.lora_b.shape))
    before = generated(KerasStep(model, jit_compile=False), ids := np.ones((1, 3), "int32"))[1]
    with pytest.raises(InputError, match="call layer.disable_lora first"):
        model.export(tmp_path / "bundle", "onnx", lora_rank=2)
    np.testing.assert_array_equal(generated(KerasStep(model, jit_compile=False), ids)[1], before)


def test_other_runtimes_and_formats_refuse_adapters(tmp_path):
    for options, message in {
        ("saved-model", "none", None): "target='saved-model' passes no adapters",
        (None, "none", "genai"): "target='genai' passes no adapters",
    }.items():
        form, recipe, target = options
        with pytest.raises(InputError, match=message):
            kf.export.export("story-gpt2", tmp_path / "out", form, recipe, target=target, lora_rank=2)
    with pytest.raises(InputError, match="lora_targets need the rank"):
        kf.export.export("story-gpt2", tmp_path / "out", "onnx", lora_targets=["c_attn"])
    assert not list(tmp_path.iterdir())


def test_pipelines_name_their_adapters(tmp_path):
    model = zoo.load("story-gpt2")
    model.enable_lora(2, ["c_attn"])
    randomize(model.trainable_variables)
    model.save_adapter(tmp_path / "sea")
    model.unload_adapter()
    pipe = kf.pipeline(model, "text-generation")
    before = pipe.model.version()
    assert pipe.load_adapter(tmp_path / "sea") == "sea"
    assert pipe.model.version() != before and model.adapter.rank == 2
    pipe.set_adapter(None)
    assert pipe.model.version() == before and model.adapter is None
    pipe.set_adapter("sea")
    with pytest.raises(InputError, match="Expected None, or one that load_adapter has loaded: sea. Received: 'land'"):
        pipe.set_adapter("land")
