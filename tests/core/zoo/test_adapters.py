"""Adapters of PEFT: loaded, trained, merged and saved, with the outputs and the gradients of PEFT."""

from __future__ import annotations

import copy
import json
import re
import shutil
from dataclasses import replace

import keras
import numpy as np
import peft
import pytest
import safetensors.numpy
import torch
from transformers.pytorch_utils import Conv1D

import kerasformer as kf
from kerasformer import zoo
from kerasformer.bundle.adapters import AdapterConfig
from kerasformer.errors import CheckpointError, InputError, SourceError, UnsupportedConfigError
from kerasformer.files import base_models
from kerasformer.models.adaptation import modules_of
from kerasformer.tools.testing.comparison import assert_close, make_inputs, run, run_reference
from tests.core.zoo.cases import CASES, DISTINCT

USUAL = ("gpt2", "llama", "gpt_neox", "bert", "t5")
"""One case for each layout of fused queries, keys and values: (in, out) side by side, none, interleaved; and stacks."""
TASKS = ("text-generation", "text2text-generation", "fill-mask", "feature-extraction")


TRANSPOSED = ["cls.predictions.dense"]
"""The matrix of MobileBERT that is a linear layer by name, of which only the transpose is used."""


MARKS = {True: pytest.mark.grid, False: pytest.mark.release}


def adapted_rows():
    return [
        pytest.param(
            (case, next(task for task in TASKS if task in case.tasks)),
            id=str(case),
            marks=() if case.model_type == "gpt2" else MARKS[case.model_type in USUAL],
        )
        for case in DISTINCT
    ]


def convolutions(model):
    """The option of PEFT for matrices in the orientation of GPT-2, which it otherwise sets with a warning."""
    return {"fan_in_fan_out": any(isinstance(part, Conv1D) for part in model.modules())}


def peft_model(it, seed=0, **options):
    """The reference with an adapter of random numbers."""
    model = copy.deepcopy(it.reference)
    settings = {"r": 3, "lora_alpha": 5, "target_modules": "all-linear", **convolutions(model), **options}
    if it.model.config.model_type == "mobilebert":
        settings["exclude_modules"] = TRANSPOSED
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            trained_bias = name.endswith(".bias") and parameter.requires_grad
            if "lora_" in name or "trainable_tokens" in name or trained_bias:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return adapted


@pytest.fixture
def adapted(loaded, request):
    """A model that is without adapter afterwards, for the tests that follow."""
    it = loaded(request.param)
    yield it
    it.model.unload_adapter()


def one(name, task):
    return (next(case for case in CASES if case.name == name), task)


def logits(it, inputs):
    return run(it, inputs)[it.model.output_name]


def check_removal_and_merge(it, shared, folder, inputs, before, expected):
    """Without its adapter the model has the answers of before, and after the merge of one those of the adapter."""
    it.model.unload_adapter()
    np.testing.assert_array_equal(logits(it, inputs), before)
    assert it.model.config == shared.model.config
    it.model.load_adapter(folder)
    it.model.merge_adapter()
    assert_close(inputs, logits(it, inputs), expected)


# PEFT warns of poolers and of layers for images, which are not read, and of tables that it unties itself.
@pytest.mark.filterwarnings("ignore:Found missing adapter keys .*(pooler|vision_tower):UserWarning")
@pytest.mark.filterwarnings("ignore:Input and output embeddings are no longer tied after merging:UserWarning")
@pytest.mark.parametrize("adapted", adapted_rows(), indirect=True)
def test_adapters_of_peft_load_merge_and_travel_back(adapted, tmp_path):
    it = adapted
    reference = peft_model(it)
    reference.save_pretrained(tmp_path / "theirs")
    inputs = make_inputs(it)
    before = logits(it, inputs)
    weights = [np.asarray(variable) for variable in it.model.weights]
    it.model.load_adapter(tmp_path / "theirs")
    expected = run_reference(reference.base_model.model, inputs)[it.model.output_name]
    assert not np.allclose(logits(it, inputs), before, atol=1e-2)
    assert_close(inputs, logits(it, inputs), expected)
    # Saved again, PEFT finds the same adapter.
    it.model.save_adapter(tmp_path / "ours")
    ours, theirs = (
        safetensors.numpy.load_file(tmp_path / name / "adapter_model.safetensors") for name in ("ours", "theirs")
    )
    unused = rf"pooler|{it.case.left_out}" if it.case.left_out else "pooler"
    assert all(re.search(unused, name) for name in set(ours) ^ set(theirs)), "unused by this task"
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    base = copy.deepcopy(it.reference)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "ours").eval()
    assert_close(inputs, run_reference(again.base_model.model, inputs)[it.model.output_name], expected)
    # Without it, everything is as before; merged, the outputs stay.
    it.model.unload_adapter()
    np.testing.assert_array_equal(logits(it, inputs), before)
    it.model.load_adapter(tmp_path / "ours")
    names = [module.name for module in it.model._attached.modules]
    it.model.merge_adapter()
    assert it.model.adapter is None
    assert_close(inputs, logits(it, inputs), expected)
    merged = reference.merge_and_unload().state_dict()
    tensors = {row.tensor: row.to_hf([np.asarray(v) for v in values]) for row, values in table(it.model)}
    for module in names:
        theirs = merged[f"{module}.weight"].numpy()
        np.testing.assert_allclose(tensors[f"{module}.weight"], theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())
    for variable, value in zip(it.model.weights, weights, strict=True):
        variable.assign(value)


def table(model):
    from kerasformer.models.variables import variables_by_path

    variables = variables_by_path(model)
    return [(row, [variables[path] for path in row.variables]) for row in model.rows(saved=True) if row.variables]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the tape is TensorFlow's")
@pytest.mark.parametrize("adapted", [one("gpt2", "text-generation")], indirect=True, ids=["one"])
@pytest.mark.parametrize("dora", [False, True])
def test_only_the_adapter_trains_with_the_gradients_of_peft(adapted, tmp_path, dora):
    import tensorflow as tf

    it = adapted
    reference = peft_model(it, target_modules=["c_attn", "c_fc"], use_rslora=True, use_dora=dora)
    reference.save_pretrained(tmp_path)
    it.model.load_adapter(tmp_path, trainable=True)
    inputs = make_inputs(it)
    mask = inputs["attention_mask"][..., None]
    direction = np.random.default_rng(3).normal(size=(*mask.shape[:2], 97)).astype("float32") * mask
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(it.model(inputs) * direction)
    trained = it.model.trainable_variables
    layers = it.model.config.num_layers
    count = (4 + 2) + (3 + 1) * dora
    assert len(trained) == layers * count, "A and three B of c_attn, A and B of c_fc, and with DoRA magnitudes"
    gradients = dict(zip([v.path for v in trained], tape.gradient(loss, [v.value for v in trained]), strict=True))
    output = reference.base_model.model(**{name: torch.tensor(value).long() for name, value in inputs.items()})
    (output.logits * torch.tensor(direction)).sum().backward()
    theirs = {name: p.grad.numpy() for name, p in reference.named_parameters() if p.grad is not None}
    for index in range(layers):
        module = modules_of(it.model)[f"transformer.h.{index}.attn.c_attn"]
        a = gradients[module.layers[0].lora_a.path]
        b = np.concatenate([gradients[layer.lora_b.path] for layer in module.layers], axis=1)
        found = {half: theirs[f"base_model.model.{module.name}.lora_{half}.default.weight"] for half in "AB"}
        for half, ours in (("A", a), ("B", b)):
            tolerance = 1e-4 * np.abs(found[half]).max()
            np.testing.assert_allclose(np.asarray(ours).T, found[half], rtol=0, atol=tolerance)
        if dora:
            lengths = np.concatenate([gradients[layer.lora_magnitude.path] for layer in module.layers])
            found = theirs[f"base_model.model.{module.name}.lora_magnitude_vector.default.weight"]
            np.testing.assert_allclose(lengths, found, rtol=0, atol=1e-4 * np.abs(found).max())


def test_dora_starts_at_the_base_model(loaded, tmp_path):
    it = loaded(one("gpt2", "text-generation"))
    before = logits(it, inputs := make_inputs(it))
    it.model.enable_lora(2, ["c_attn", "wpe"], dora=True)
    assert_close(inputs, logits(it, inputs), before)
    it.model.save_adapter(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(it.reference), tmp_path).eval()
    assert again.peft_config["default"].use_dora
    assert_close(inputs, run_reference(again.base_model.model, inputs).logits.numpy(), before)
    it.model.unload_adapter()
    np.testing.assert_array_equal(logits(it, inputs), before)


GPT2, BERT = one("gpt2", "text-generation"), one("bert", "text-classification")
FURTHER = [
    pytest.param(GPT2, {"target_modules": ["c_attn", "c_fc", "wpe"], "use_dora": True}, id="gpt2-dora"),
    pytest.param(BERT, {"target_modules": ["query", "word_embeddings"], "use_dora": True}, id="bert-dora"),
    pytest.param(
        one("gpt_neox", "text-generation"),
        {"target_modules": ["query_key_value"], "use_dora": True, "bias": "lora_only"},
        id="gpt_neox-dora",
        marks=pytest.mark.grid,
    ),
    pytest.param(
        GPT2, {"target_modules": ["c_attn"], "bias": "all", "trainable_token_indices": [3, 7]}, id="gpt2-biases-tokens"
    ),
    pytest.param(BERT, {"target_modules": ["query"], "bias": "all", "modules_to_save": ["classifier"]}, id="bert-all"),
    pytest.param(BERT, {"target_modules": ["query"], "bias": "lora_only"}, id="bert-lora_only"),
    pytest.param(
        one("bert", "fill-mask"),
        {"target_modules": ["query"], "bias": "all", "trainable_token_indices": [5]},
        id="bert-tied",
        marks=pytest.mark.grid,
    ),
    pytest.param(
        GPT2,
        {"target_modules": ["c_attn"], "trainable_token_indices": {"wte": [3, 7], "lm_head": [5]}},
        id="gpt2-rows-of-each",
    ),
    pytest.param(
        one("t5", "text2text-generation"),
        {"target_modules": ["q"], "trainable_token_indices": [3, 7]},
        id="t5-tokens",
        marks=pytest.mark.grid,
    ),
]


def answers_of_peft(reference, row, inputs):
    """PEFT's forward leaves out the bias of an output with trained rows, which its merge keeps."""
    merged = row[1] == "fill-mask"
    return run_reference(reference.merge_and_unload() if merged else reference.base_model.model, inputs)


@pytest.mark.parametrize(("row", "options"), FURTHER)
@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")
def test_magnitudes_biases_and_tokens_that_peft_trains(loaded, tmp_path, row, options):
    shared = loaded(row)
    it = replace(shared, model=zoo.load(shared.folder))
    reference = peft_model(it, **options)
    reference.save_pretrained(tmp_path / "theirs")
    inputs = make_inputs(it)
    before = logits(it, inputs)
    expected = answers_of_peft(reference, row, inputs)[it.model.output_name]
    it.model.load_adapter(tmp_path / "theirs")
    assert_close(inputs, logits(it, inputs), expected)
    it.model.save_adapter(tmp_path / "ours")
    ours, theirs = (saved_tensors(tmp_path / name) for name in ("ours", "theirs"))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours if name in theirs)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(it.reference), tmp_path / "ours").eval()
    assert_close(inputs, answers_of_peft(again, row, inputs)[it.model.output_name], expected)
    check_removal_and_merge(it, shared, tmp_path / "ours", inputs, before, expected)


def on_the_hub(monkeypatch, folder, base, config):
    """Makes the folder of an adapter that `kf.load` loads, whose base model is in another folder."""
    damaged(folder, base_model_name_or_path="owner/name")
    config.save_pretrained(folder)
    monkeypatch.setattr(base_models, "resolve", lambda source, token=None: base)
    return folder


@pytest.mark.parametrize(
    ("row", "options"),
    [
        pytest.param(
            GPT2,
            {"target_modules": ["c_attn"], "use_dora": True, "bias": "all", "trainable_token_indices": [3, 7]},
            id="gpt2",
        ),
        pytest.param(BERT, {"target_modules": ["query"], "bias": "all", "modules_to_save": ["classifier"]}, id="bert"),
    ],
)
def test_a_folder_is_loaded_merged(loaded, tmp_path, monkeypatch, row, options):
    it = loaded(row)
    reference = peft_model(it, **options)
    reference.save_pretrained(tmp_path)
    with pytest.raises(SourceError, match="load the base model, and then the adapter with load_adapter"):
        kf.load(tmp_path)
    folder = on_the_hub(monkeypatch, tmp_path, it.folder, it.reference.config)
    merged = replace(it, model=kf.load(folder, row[1]))
    expected = run_reference(reference.base_model.model, inputs := make_inputs(it))[it.model.output_name]
    assert merged.model.adapter is None
    assert_close(inputs, logits(merged, inputs), expected)


@pytest.mark.parametrize("change", ["trained", "trained, of a checkpoint without prefix", "resized"])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_folder_with_a_table_of_token_embeddings(loaded, tmp_path, monkeypatch, change):
    it, base = loaded(GPT2), copy.deepcopy(loaded(GPT2).reference)
    checkpoint = tmp_path / "base"
    shutil.copytree(it.folder, checkpoint)
    if change == "resized":
        base.resize_token_embeddings(it.reference.config.vocab_size + 4)
    elif "prefix" in change:
        path = checkpoint / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
        safetensors.numpy.save_file(bare, path, {"format": "pt"})
    saved = {} if change == "resized" else {"modules_to_save": ["wte"]}
    reference = peft_model(replace(it, reference=base), target_modules=["c_attn"], **saved)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "wte.modules_to_save" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    reference.save_pretrained(tmp_path / "adapter", save_embedding_layers=change == "resized")
    folder = on_the_hub(monkeypatch, tmp_path / "adapter", checkpoint, base.config)
    merged = replace(it, model=kf.load(folder))
    expected = run_reference(reference.base_model.model, inputs := make_inputs(it)).logits
    assert merged.model.config.vocab_size == expected.shape[-1]
    assert_close(inputs, logits(merged, inputs), expected)


def test_a_classifier_trains_and_travels_with_its_head(loaded, tmp_path):
    shared = loaded(one("bert", "text-classification"))
    it = replace(shared, model=zoo.load(shared.folder))  # other tests see no optimizer
    model, inputs = it.model, make_inputs(it)
    before = logits(it, inputs)
    model.enable_lora(2, ["query", "value"], alpha=8, rank_pattern={"layer.0.*": 1}, modules_to_save=["classifier"])
    np.testing.assert_array_equal(logits(it, inputs), before)
    frozen = {path: np.asarray(v) for path, v in variables(model).items() if not v.trainable}
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(inputs, np.ones_like(before), epochs=2, verbose=0)
    assert all(np.array_equal(variables(model)[path], value) for path, value in frozen.items())
    expected = logits(it, inputs)
    assert not np.allclose(expected, before, atol=1e-4)
    model.save_adapter(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(it.reference), tmp_path).eval()
    assert again.peft_config["default"].task_type == "SEQ_CLS"
    assert_close(inputs, run_reference(again.base_model.model, inputs).logits.numpy(), expected)
    model.unload_adapter()
    np.testing.assert_array_equal(logits(it, inputs), before)
    model.load_adapter(tmp_path)
    np.testing.assert_array_equal(logits(it, inputs), expected)


def variables(model):
    return {variable.path: variable for variable in model.variables if "seed" not in variable.path}


@pytest.mark.parametrize(
    ("targets", "adapts"),
    [
        ("all-linear", 4),
        (["c_attn", "mlp.c_fc"], 2),
        (r".*\.1\..*c_attn", 1 / 3),
        (["transformer.h.2.attn.c_attn", "wpe"], 2 / 3),
    ],
)
def test_targets_are_those_of_peft(loaded, targets, adapts):
    it = loaded(one("gpt2", "text-generation"))
    config = peft.LoraConfig(r=1, target_modules=targets, **convolutions(it.reference))
    theirs = peft.get_peft_model(copy.deepcopy(it.reference), config)
    it.model.enable_lora(1, targets)
    try:
        ours = {module.name for module in it.model._attached.modules}
    finally:
        it.model.unload_adapter()
    assert ours == {
        name for name in modules_of(it.model) if hasattr(theirs.get_submodule(f"base_model.model.{name}"), "lora_A")
    }
    assert len(ours) == adapts * it.model.config.num_layers


def damaged(folder, **entries):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_adapters_that_do_not_fit(loaded, tmp_path):
    it = loaded(one("gpt2", "text-generation"))
    model, inputs = it.model, make_inputs(it)
    before = logits(it, inputs)
    with pytest.raises(InputError, match="c_attn, c_fc, c_proj, wpe.*Received: target_modules=.'q_proj'"):
        model.enable_lora(2, ["q_proj"])
    with pytest.raises(InputError, match="modules_to_save=.'score'"):
        model.enable_lora(2, modules_to_save=["score"])
    for call in (model.merge_adapter, lambda: model.save_adapter(tmp_path)):
        with pytest.raises(InputError, match="call enable_lora or load_adapter"):
            call()
    with pytest.raises(SourceError, match="adapter_config.json"):
        model.load_adapter(tmp_path)
    model.enable_lora(2, ["c_attn", "c_fc"])
    model.save_adapter(tmp_path / "good")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "adapter_config.json").symlink_to("../good/adapter_config.json")
    with pytest.raises(SourceError, match="must be inside its folder. Received: 'adapter_config.json'"):
        model.load_adapter(tmp_path / "link")
    with pytest.raises(InputError, match="merge_adapter or unload_adapter"):
        model.enable_lora(2)
    model.unload_adapter()

    path = tmp_path / "good" / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    damaged(tmp_path / "good", use_dora=True, bias="all", trainable_token_indices=[99])
    rows = {"transformer.wte.token_adapter.trainable_tokens_delta": np.ones((1, 36), "float32")}
    vector = {"transformer.h.0.attn.c_attn.lora_magnitude_vector": np.ones(9, "float32")}
    safetensors.numpy.save_file({**tensors, **vector}, path)
    with pytest.raises(CheckpointError, match="h.1.attn.c_attn has no lora_magnitude_vector(.|\n)*no trained rows"):
        model.load_adapter(tmp_path / "good")
    lengths = {
        name.replace("lora_A.weight", "lora_magnitude_vector"): np.ones(144 if "c_fc" in name else 108, "float32")
        for name in tensors
        if "lora_A" in name
    }
    wrong = lengths | {next(iter(lengths)): np.ones(9, "float32")}
    safetensors.numpy.save_file({**tensors, **wrong, **rows}, path)
    with pytest.raises(CheckpointError) as error:
        model.load_adapter(tmp_path / "good")
    parts = ("magnitudes. Received: 9", "ids below 97", "ids up to 99, rows (1, 36)")
    assert all(part in str(error.value) for part in parts)
    safetensors.numpy.save_file({**tensors, **lengths, **rows}, path)
    with pytest.raises(CheckpointError, match="missing: transformer.h.1.mlp.c_fc.bias, a trained bias"):
        model.load_adapter(tmp_path / "good")
    damaged(tmp_path / "good", use_dora=False, bias="none", trainable_token_indices=[9])
    safetensors.numpy.save_file({**tensors, **rows}, path)
    with pytest.raises(InputError, match="Expected: trainable=False, or an adapter with modules_to_save"):
        model.load_adapter(tmp_path / "good", trainable=True)
    damaged(tmp_path / "good", trainable_token_indices=None)
    first, second = list(tensors)[:2]
    wrong = {**tensors, first: np.full_like(tensors[first], np.nan), "other": np.ones(2, "float32")}
    wrong.pop(second)
    safetensors.numpy.save_file(wrong, path)
    with pytest.raises(CheckpointError) as error:
        model.load_adapter(tmp_path / "good")
    assert all(part in str(error.value) for part in ("3 problems", "NaN", "unknown tensor: other", "has no lora_"))
    name = "base_model.model.transformer.h.{}.{}.lora_{}.weight"
    wrong = {key: value for key, value in tensors.items() if ".h.2.mlp" not in key}
    wrong[name.format(0, "attn.c_attn", "B")] = np.ones((9, 2), "float32")
    wrong[name.format(7, "attn.c_attn", "A")] = wrong[name.format(7, "attn.c_attn", "B")] = np.ones((2, 2), "float32")
    safetensors.numpy.save_file(wrong, path)
    with pytest.raises(CheckpointError) as error:
        model.load_adapter(tmp_path / "good")
    expected = (
        "h.7.attn.c_attn cannot be adapted: unknown",
        "B (108, 2). Received: (2, 36) and (9, 2)",
        "c_attn, c_fc",
    )
    assert all(part in str(error.value) for part in expected)
    safetensors.numpy.save_file({key: value for key, value in tensors.items() if ".h.2.mlp" not in key}, path)
    with pytest.raises(CheckpointError, match="missing: the product of transformer.h.2.mlp.c_fc"):
        model.load_adapter(tmp_path / "good")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        model.load_adapter(tmp_path / "good")
    assert model.adapter is None
    np.testing.assert_array_equal(logits(it, inputs), before)


def saved_tensors(folder):
    return safetensors.numpy.load_file(folder / "adapter_model.safetensors")


def test_a_scale_of_zero_leaves_the_base_model(loaded):
    it = loaded(one("gpt2", "text-generation"))
    before = logits(it, inputs := make_inputs(it))
    it.model.enable_lora(2, ["c_attn"], alpha=0)
    for variable in it.model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    np.testing.assert_array_equal(logits(it, inputs), before)
    it.model.unload_adapter()


def test_a_table_is_adapted_where_it_has_one_use(loaded, tmp_path):
    for name, task, table in (("bert", "fill-mask", "word_embeddings"), ("t5", "text2text-generation", "shared")):
        with pytest.raises(InputError, match="no such modules"):
            loaded(one(name, task)).model.enable_lora(2, [table])
    it = loaded(one("bert", "text-classification"))
    reference = peft_model(it, target_modules=["word_embeddings"])
    reference.save_pretrained(tmp_path)
    inputs = make_inputs(it)
    it.model.load_adapter(tmp_path)
    expected = run_reference(reference.base_model.model, inputs)[it.model.output_name]
    assert_close(inputs, logits(it, inputs), expected)
    it.model.unload_adapter()


def test_modules_that_are_saved_as_a_whole(loaded, tmp_path):
    """They must be in the file, and are restored also if the adapter has another name for them."""
    model, norm = loaded(one("bert", "text-classification")).model, "bert.embeddings.LayerNorm"
    model.enable_lora(2, ["query"], modules_to_save=[norm])
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 0.5))
    model.save_adapter(tmp_path)
    model.unload_adapter()
    bare = loaded(one("bert", "feature-extraction"))
    before = logits(bare, inputs := make_inputs(bare))
    bare.model.load_adapter(tmp_path)
    assert not np.allclose(logits(bare, inputs), before, atol=1e-2)
    bare.model.unload_adapter()
    np.testing.assert_array_equal(logits(bare, inputs), before)

    tensors = saved_tensors(tmp_path)
    name = f"base_model.model.{norm}.bias"
    rest = {key: value for key, value in tensors.items() if key != name}
    safetensors.numpy.save_file(rest, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=f"missing: {norm}.bias, one of modules_to_save"):
        model.load_adapter(tmp_path)
    key = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
    twice = {**tensors, key.replace("lora_A", "lora_A.default"): tensors[key]}
    safetensors.numpy.save_file(twice, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="a second lora_A of bert.encoder.layer.0.attention.self.query"):
        model.load_adapter(tmp_path)
    bare_key = key.removeprefix("base_model.model.bert.")
    pair = {bare_key.replace("lora_A", half): tensors[key.replace("lora_A", half)] for half in ("lora_A", "lora_B")}
    safetensors.numpy.save_file({**tensors, **pair}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="a second product of bert.encoder.layer.0.attention.self.query"):
        model.load_adapter(tmp_path)


def test_values_that_no_adapter_can_have():
    content = {
        "peft_type": "LORA",
        "use_dora": "yes",
        "bias": "some",
        "trainable_token_indices": [2, 2],
        "novelty": 3,
        "r": True,
        "lora_alpha": 10**400,
        "target_modules": "a{99999999999999}",
        "exclude_modules": "(" * 900 + "h" + ")" * 900,
        "layers_pattern": "(?P<index>h)",
        "rank_pattern": {"(?i)h": 1},
        "alpha_pattern": {"h": float("nan")},
    }
    with pytest.raises(UnsupportedConfigError, match="11 problems") as error:
        AdapterConfig.from_json(content)
    assert all(f"\n  {name}" in str(error.value) for name in content.keys() - {"peft_type"})


SAVED = [
    (one("gpt2", "text-generation"), ["wte"], {}),
    (one("bert", "fill-mask"), ["embeddings.word_embeddings"], {}),  # the end of a path
    pytest.param(one("xlm", "fill-mask"), ["embeddings"], {}, marks=pytest.mark.grid),
    pytest.param(one("gpt2", "text-generation"), ["wte", "lm_head"], {}, marks=pytest.mark.grid),
    pytest.param(
        one("cohere", "text-generation"), ["embed_tokens"], {"ensure_weight_tying": True}, marks=pytest.mark.grid
    ),
    pytest.param(one("bert", "fill-mask"), ["decoder"], {}, marks=pytest.mark.grid),  # its bias, too
    pytest.param(one("gpt2", "text-generation"), ["te"], {}, marks=pytest.mark.grid),  # the end of a name
]


@pytest.mark.parametrize(
    ("row", "names", "settings"),
    SAVED,
    ids=lambda value: value[0].name if isinstance(value, tuple) else "+".join(value),
)
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_table_that_was_trained_leaves_a_tied_output(loaded, tmp_path, row, names, settings):
    """PEFT trains a copy of the table, and the output keeps that of the base model."""
    shared = loaded(row)
    it = replace(shared, model=zoo.load(shared.folder))
    targets = {"gpt2": ["c_attn"], "bert": ["query"], "xlm": ["q_lin"], "cohere": ["q_proj"]}[it.case.model_type]
    reference = peft_model(it, target_modules=targets, modules_to_save=names, **settings)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "modules_to_save" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    reference.save_pretrained(tmp_path / "theirs")
    expected = run_reference(reference.base_model.model, inputs := make_inputs(it))[it.model.output_name]
    before = logits(it, inputs)
    it.model.load_adapter(tmp_path / "theirs")
    assert_close(inputs, logits(it, inputs), expected)
    it.model.save_adapter(tmp_path / "ours")
    again = peft.PeftModel.from_pretrained(copy.deepcopy(it.reference), tmp_path / "ours").eval()
    assert_close(inputs, run_reference(again.base_model.model, inputs)[it.model.output_name], expected)
    check_removal_and_merge(it, shared, tmp_path / "theirs", inputs, before, expected)
    it.model.save_pretrained(tmp_path / "merged")
    merged = type(it.reference).from_pretrained(tmp_path / "merged", attn_implementation="eager").eval()
    assert_close(inputs, run_reference(merged, inputs)[it.model.output_name], expected)


@pytest.mark.parametrize("change", ["equal", "table of the base model", "table under its adapted name"])
def test_tables_that_peft_saves_with_an_adapter(loaded, tmp_path, change):
    """`save_embedding_layers` saves tables of the base model, which are those of input and output."""
    shared = loaded(one("gpt2", "text-generation"))
    it = replace(shared, model=zoo.load(shared.folder))
    reference = peft_model(it, target_modules=["c_attn"])
    if change != "equal":
        with torch.no_grad():
            reference.base_model.model.transformer.wte.weight.add_(1.0)
    reference.save_pretrained(tmp_path, save_embedding_layers=True)
    tensors = saved_tensors(tmp_path)
    if change == "table under its adapted name":
        tensors = {name.replace("wte.weight", "wte.base_layer.weight"): value for name, value in tensors.items()}
        safetensors.numpy.save_file(tensors, tmp_path / "adapter_model.safetensors")
    assert any("wte" in name for name in tensors)
    expected = run_reference(reference.base_model.model, inputs := make_inputs(it)).logits
    it.model.load_adapter(tmp_path)
    assert_close(inputs, logits(it, inputs), expected)
    assert it.model.config.tied


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_table_of_both_stacks_is_not_divided(loaded, tmp_path):
    it = loaded(one("t5", "text2text-generation"))
    reference = peft_model(it, target_modules=["q"], modules_to_save=["encoder.embed_tokens"])
    reference.save_pretrained(tmp_path)
    it.model.load_adapter(tmp_path)  # equal tables
    it.model.unload_adapter()
    tensors = saved_tensors(tmp_path)
    name = next(name for name in tensors if "embed_tokens" in name)
    safetensors.numpy.save_file({**tensors, name: tensors[name] + 1}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="differs from shared.weight, of which encoder and decoder have one"):
        it.model.load_adapter(tmp_path)
