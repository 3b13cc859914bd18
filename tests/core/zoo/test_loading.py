"""Loading of valid and of invalid checkpoints."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
import transformers

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import (
    CapacityError,
    CheckpointError,
    InputError,
    SourceError,
    TokenizerError,
    UnsupportedConfigError,
)
from kerasformer.models import weights
from kerasformer.models.variables import release_weights
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.testing.comparison import Loaded, assert_close, make_inputs, run, run_reference
from tests.core.zoo.cases import BERT_CASE, CASES, GPT2_CASE
from tests.grids import grid

BERT, GPT2 = BERT_CASE, GPT2_CASE
SINGLE, TORCH = "model.safetensors", "pytorch_model.bin"


def change(folder: Path, how: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray] | None]) -> None:
    """Rewrites the tensors of a checkpoint."""
    tensors = dict(safetensors.numpy.load_file(folder / SINGLE))
    tensors = how(tensors) or tensors
    safetensors.numpy.save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, folder / SINGLE)


def change_config(folder: Path, **values: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **values}))


def assert_same(it: Loaded, model: Any, tolerance: float = 1e-5) -> None:
    """Asserts that the logits are those of the reference."""
    inputs = make_inputs(it)
    assert_close(inputs, model(inputs), run_reference(it.reference, inputs).logits, tolerance=tolerance)


# Formats of files.


def test_shards(gpt2, tmp_path):
    gpt2.reference.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert_same(gpt2, zoo.load(tmp_path))


@pytest.mark.parametrize("shards", [1, 3])
def test_pytorch_files(gpt2, tmp_path, shards):
    shutil.copy(gpt2.folder / "config.json", tmp_path)
    tensors = dict(gpt2.reference.state_dict())
    name = "transformer.h.0.mlp.c_fc.weight"
    tensors[name] = tensors[name].T.contiguous().T  # the same values with other strides
    assert not tensors[name].is_contiguous()
    name = "transformer.h.1.mlp.c_fc.weight"
    tensors[name] = torch.cat([tensors[name]] * 2)[36:]  # the second half of a larger storage
    if shards == 1:
        torch.save(tensors, tmp_path / TORCH)
    else:
        files = {name: f"pytorch_model-{i % shards}.bin" for i, name in enumerate(tensors)}
        for file in set(files.values()):
            torch.save({name: tensors[name] for name in tensors if files[name] == file}, tmp_path / file)
        (tmp_path / f"{TORCH}.index.json").write_text(json.dumps({"weight_map": files}))
    assert_same(gpt2, zoo.load(tmp_path))


class Malicious:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("was_here"),))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")  # of PyTorch, before it refuses the file
def test_pytorch_files_run_no_code(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / SINGLE).unlink()
    for save in (
        lambda value: torch.save(value, folder / TORCH),
        lambda v: (folder / TORCH).write_bytes(pickle.dumps(v)),
    ):
        save({"bert.embeddings.word_embeddings.weight": Malicious()})
        with pytest.raises(CheckpointError, match=f"{TORCH} .*Received"):
            zoo.load(folder)
        assert not (folder / "was_here").exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [SINGLE, TORCH])
def test_half_precision_files(gpt2, tmp_path, dtype, kind):
    shutil.copy(gpt2.folder / "config.json", tmp_path)
    halves = {
        name: tensor.to(dtype) for name, tensor in gpt2.reference.state_dict().items() if name != "lm_head.weight"
    }
    if kind == SINGLE:
        safetensors.torch.save_file(halves, tmp_path / kind)
    else:
        torch.save(halves, tmp_path / kind)
    model = zoo.load(tmp_path)
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    inputs = make_inputs(gpt2)
    assert_close(inputs, model(inputs), run_reference(theirs, inputs).logits)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    grid(
        [SINGLE, TORCH, "shards"],
        [torch.float16, torch.bfloat16],
        always=lambda kind, dtype: dtype == (torch.float16 if kind == TORCH else torch.bfloat16),
        release=lambda kind, dtype: True,
    ),
)
@pytest.mark.grid
def test_matrices_that_keep_16_bits(loaded, tmp_path, monkeypatch, dtype, kind):
    """They have the answers of a model whose variables are all float32, also with a cache and in exported files."""
    monkeypatch.setattr(weights, "_LARGE_MATRIX", 1000)
    it = loaded((next(case for case in CASES if case.name == "gemma3"), "text-generation"))
    halves = type(it.reference).from_pretrained(it.folder, dtype=dtype)
    halves.save_pretrained(tmp_path / "model", max_shard_size="20KB" if kind == "shards" else "1GB")
    if kind == TORCH:
        (tmp_path / "model" / SINGLE).unlink()
        tensors = {name: x for name, x in halves.state_dict().items() if name != "lm_head.weight"}
        torch.save(tensors, tmp_path / "model" / TORCH)
    assert kind != "shards" or len(list((tmp_path / "model").glob("*.safetensors"))) > 3
    model, wide = zoo.load(tmp_path / "model", keep_dtype=True), zoo.load(tmp_path / "model")
    stored = {variable.path.split("/", 1)[1]: variable.dtype for variable in model.variables}
    narrow = {path for path, name in stored.items() if name == str(dtype).removeprefix("torch.")}
    assert "backbone/tokens/embeddings" in narrow and len(narrow) > 10
    assert {name for path, name in stored.items() if path not in narrow} == {"float32"}
    assert {variable.dtype for variable in wide.variables} == {"float32"}
    theirs = type(it.reference).from_pretrained(tmp_path / "model", dtype=torch.float32, attn_implementation="eager")
    inputs = make_inputs(it)
    assert_close(inputs, model(inputs), run_reference(theirs.eval(), inputs).logits)
    ids = inputs["input_ids"][:1]
    settings = {"max_new_tokens": 4, "eos_token_id": None, "jit_compile": False}
    assert model.generate(ids, **settings)[0].tolist() == wide.generate(ids, **settings)[0].tolist()


def test_released_weights_are_read_where_they_are_used(gpt2, tmp_path):
    """Also those that one tensor combines: the queries, keys and values of GPT-2."""
    gpt2.reference.save_pretrained(tmp_path)
    model = zoo.load(tmp_path)
    release_weights(model)
    assert all(variable._value is None for variable in model.trainable_variables)
    assert_same(gpt2, model)
    content = (tmp_path / SINGLE).read_bytes()
    (tmp_path / SINGLE).write_bytes(content[:-100])
    with pytest.raises(CheckpointError, match=f"{SINGLE} was changed.* Expected: .* values of transformer.wte.weight"):
        _ = [variable.value for variable in model.trainable_variables]
    (tmp_path / SINGLE).unlink()
    with pytest.raises(CheckpointError, match=f"{SINGLE} was opened, but .* cannot be read from it.*No such file"):
        _ = model.trainable_variables[0].value


def test_weights_that_no_file_can_give_again_are_not_released(gpt2, bert, tmp_path):
    torch.save({n: t for n, t in gpt2.reference.state_dict().items() if n != "lm_head.weight"}, tmp_path / TORCH)
    shutil.copy(gpt2.folder / "config.json", tmp_path)
    model = zoo.load(tmp_path)
    release_weights(model)
    assert all(variable._value is not None for variable in model.variables)
    fresh = zoo.load(bert.folder, labels=["a", "b", "c", "d"], new_head=True)
    head = np.asarray(fresh.head.variables[0])
    release_weights(fresh)
    np.testing.assert_array_equal(np.asarray(fresh.head.variables[0]), head)


@pytest.mark.parametrize("which", ["bert", "gpt2"])
@pytest.mark.parametrize(
    ("policy", "weights", "tolerance"),
    [("float16", "float16", 0.02), ("bfloat16", "bfloat16", 0.1), ("mixed_bfloat16", "float32", 0.1)],
)
@pytest.mark.grid
def test_dtype_at_load(request, which, policy, weights, tolerance, tmp_path):
    it = request.getfixturevalue(which)
    before = keras.config.dtype_policy()
    model = zoo.load(it.folder, dtype=policy)
    assert keras.config.dtype_policy() == before
    assert {variable.dtype for variable in model.trainable_variables} == {weights}
    inputs = make_inputs(it)
    output = model(inputs)
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    output = np.asarray(keras.ops.cast(output, "float32"))
    assert_close(inputs, output, run_reference(it.reference, inputs).logits, tolerance=tolerance)
    if it.model.generates:
        ids = inputs["input_ids"][:1]
        assert len(model.generate(ids, max_new_tokens=3, eos_token_id=None, jit_compile=False)[0]) == 3
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == weights
    theirs = type(it.reference).from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_close(inputs, output, run_reference(theirs, inputs).logits, tolerance=tolerance)


# Names of tensors.


def of_tensorflow(name: str) -> str:
    """Returns the name that the oldest checkpoints of BERT have, with `gamma` and `beta` of norms."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


RENAMED: dict[str, Callable[[str], str]] = {
    "no prefix": lambda name: name.removeprefix("bert."),
    "DataParallel": lambda name: f"module.{name}",
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "both": lambda name: f"module._orig_mod.{name}",
    "TensorFlow": of_tensorflow,
}


@pytest.mark.parametrize("form", RENAMED)
def test_other_names_of_tensors(bert, folder, form):
    change(folder, lambda tensors: {RENAMED[form](name): tensor for name, tensor in tensors.items()})
    assert_same(bert, zoo.load(folder))


def test_a_bare_backbone_opens_with_the_prefix_too(loaded, tmp_path):
    it = loaded((GPT2, "feature-extraction"))
    shutil.copytree(it.folder, tmp_path, dirs_exist_ok=True)
    change(tmp_path, lambda tensors: {f"transformer.{name}": tensor for name, tensor in tensors.items()})
    inputs = make_inputs(it)
    assert_close(inputs, zoo.load(tmp_path)(inputs), run(it, inputs)["last_hidden_state"])


def test_buffers_and_tied_copies_of_older_files_are_left_over(gpt2, tmp_path):
    shutil.copytree(gpt2.folder, tmp_path, dirs_exist_ok=True)

    def older(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
        for i in range(3):
            tensors[f"transformer.h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 64, 64), "bool"))
            tensors[f"transformer.h.{i}.attn.masked_bias"] = np.array(-1e4, "float32")

    change(tmp_path, older)
    assert_same(gpt2, zoo.load(tmp_path))


def test_a_checkpoint_without_pooler_gets_none(loaded, tmp_path):
    it = loaded((BERT, "feature-extraction"))
    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    change(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if "pooler" not in name})
    model = zoo.load(folder)
    model.save_pretrained(tmp_path / "saved")
    model.save(tmp_path / "model.keras")
    inputs = make_inputs(it)
    for again in (model, zoo.load(tmp_path / "saved"), keras.models.load_model(tmp_path / "model.keras")):
        assert again.backbone.pooler is None and it.model.backbone.pooler is not None
        assert_close(inputs, again(inputs), run(it, inputs)["last_hidden_state"])


def test_a_backbone_is_read_from_any_of_its_checkpoints(bert, gpt2):
    for it in (bert, gpt2):
        inputs = make_inputs(it)
        theirs = run_reference(it.reference.base_model, inputs).last_hidden_state
        assert_close(inputs, zoo.load(it.folder, "feature-extraction")(inputs), theirs)


# Heads.


def test_a_missing_head_is_an_error(bert, gpt2):
    with pytest.raises(CheckpointError, match=r"(?s)BertFillMask \(5 problems\).*missing: cls\.predictions\.bias"):
        zoo.load(bert.folder, task="fill-mask")
    with pytest.raises(CheckpointError, match=r"missing: score\.weight"):
        zoo.load(gpt2.folder, task="text-classification")


@pytest.mark.parametrize("name", ["BertTextClassification", "BertFillMask", "T5Seq2SeqLM"])
def test_classes_that_are_asked_to_load_point_to_the_function(name):
    kind = getattr(zoo, name)
    for call in (kind, kind.from_preset, kind.from_pretrained, kind.backbone_type):
        with pytest.raises(InputError, match=r"kerasformer.zoo.load\(source, '.*'\).*Received: .*'bert-base-uncased'"):
            call("bert-base-uncased")
    with pytest.raises(InputError, match="zoo.load.*zoo.build"):
        kind({"vocab_size": 3})
    for call in (Tokenizer, Tokenizer.from_pretrained):
        with pytest.raises(InputError, match=r"kerasformer.Tokenizer.load\(source\).*'bert-base-uncased'"):
            call("bert-base-uncased")


@pytest.mark.parametrize("which", ["bert", "gpt2"])
@pytest.mark.parametrize("arguments", [{"num_labels": 6}, {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}], ids=str)
def test_a_new_head_is_named_and_random(request, which, arguments, caplog, tmp_path):
    it = request.getfixturevalue(which)
    with caplog.at_level(logging.WARNING, "kerasformer"):
        model = zoo.load(it.folder, task="text-classification", **arguments)
    count = arguments.get("num_labels", 3)
    assert all(name.startswith("head/") for name in model.new_variables) and model.new_variables
    assert all(name in caplog.text for name in model.new_variables)
    assert model(make_inputs(it)).shape == (3, count)
    assert model.config.labels == tuple(arguments.get("id2label", {i: f"LABEL_{i}" for i in range(6)}).values())
    kernel = np.asarray(next(variable for variable in model.head.weights if variable.name == "kernel"))
    assert kernel.std() > 0.01
    model.save_pretrained(tmp_path)
    assert type(zoo.load(tmp_path)) is type(model) and zoo.load(tmp_path).new_variables == ()


def test_both_layers_of_a_new_head_are_random(loaded):
    """A head of two layers initialized with zeros would never learn."""
    case = next(case for case in CASES if case.name == "distilbert")
    model = zoo.load(loaded((case, "fill-mask")).folder, task="text-classification", num_labels=2)
    assert set(model.new_variables) == {
        f"head/{part}/{kind}" for part in ("dense", "output") for kind in ("kernel", "bias")
    }
    assert all(np.asarray(kernel).std() > 0.01 for kernel in (model.head.dense.kernel, model.head.output_dense.kernel))


# Checkpoints that do not match.


def test_one_error_lists_all_problems(folder, bert):
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        del tensors["bert.encoder.layer.1.output.dense.weight"], tensors["classifier.bias"]
        tensors["bert.embeddings.word_embeddings.weight"] = np.zeros((98, 36), "float32")
        tensors["bert.pooler.dense.weight"] = np.zeros((36, 35), "float32")
        tensors["bert.encoder.layer.3.output.dense.bias"] = np.zeros(36, "float32")
        tensors["bert.embeddings.position_ids.more"] = np.zeros(36, "float32")  # position_ids are ignored
        tensors["something.else"] = np.zeros(2, "float32")

    change(folder, spoil)
    with pytest.raises(CheckpointError) as error:
        zoo.load(folder)
    assert str(error.value).splitlines() == [
        "model.safetensors does not match BertTextClassification (7 problems):",
        "  shape of bert.embeddings.word_embeddings.weight: expected (97, 36), received (98, 36)",
        "  missing: bert.encoder.layer.1.output.dense.weight",
        "  shape of bert.pooler.dense.weight: expected (36, 36), received (36, 35)",
        "  missing: classifier.bias",
        "  unknown to this architecture: bert.embeddings.position_ids.more",
        "  unknown to this architecture: bert.encoder.layer.3.output.dense.bias",
        "  unknown to this architecture: something.else",
        "To create a new, untrained head, pass new_head=True to kerasformer.zoo.load.",
    ]


@pytest.mark.parametrize("size", [0, 5, 100, 50_000])
def test_a_truncated_file(folder, size):
    content = (folder / SINGLE).read_bytes()
    assert len(content) > size
    (folder / SINGLE).write_bytes(content[:size])
    with pytest.raises(CheckpointError, match="not a complete safetensors file.*Download or copy it again"):
        zoo.load(folder)
    assert (folder / SINGLE).read_bytes() == content[:size]


@pytest.mark.parametrize("size", [0, 100, 50_000])
def test_a_truncated_pytorch_file(folder, bert, size):
    (folder / SINGLE).unlink()
    torch.save(bert.reference.state_dict(), folder / TORCH)
    (folder / TORCH).write_bytes((folder / TORCH).read_bytes()[:size])
    with pytest.raises(CheckpointError, match="cannot be read as PyTorch weights|contains more than weights"):
        zoo.load(folder)


def test_no_weights(folder):
    (folder / SINGLE).unlink()
    with pytest.raises(CheckpointError, match="No weights found.*Received: config.json"):
        zoo.load(folder)


@pytest.mark.parametrize("name", ["config.json", "config_sentence_transformers.json"])
def test_a_file_that_is_a_link_out_of_the_folder(folder, name):
    secret = folder.parent / "secret.json"
    secret.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret.json")
    with pytest.raises(SourceError, match=f"must be inside its folder. Received: '{name}'"):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ({"weight_map": {"a": "../secret.safetensors"}}, SourceError, "relative to its folder.*secret"),
        ({"weight_map": {"a": "/etc/passwd"}}, SourceError, "relative to its folder.*passwd"),
        ({"weight_map": {"a": "link.safetensors"}}, SourceError, "must be inside its folder"),
        ({"weight_map": {"a": "absent.safetensors"}}, CheckpointError, "missing. Expected: .*absent"),
        ({"weight_map": {"a": 5}}, CheckpointError, "weight_map"),
        ({"weight_map": []}, CheckpointError, "must have a weight_map"),
        ({}, CheckpointError, "must have a weight_map"),
    ],
)
def test_an_index_that_cannot_be_trusted(folder, index, error, message):
    (folder / SINGLE).rename(folder.parent / "secret.safetensors")
    (folder / "link.safetensors").symlink_to("../secret.safetensors")
    (folder / f"{SINGLE}.index.json").write_text(json.dumps(index))
    with pytest.raises(error, match=message):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"model_type": "llama9"}, UnsupportedConfigError, "Expected one of albert, bart, bert.*'llama9'"),
        ({"model_type": "_weights"}, UnsupportedConfigError, "Received: '_weights'"),
        ({"num_attention_heads": 5}, InputError, "divide hidden_dim. Received: num_heads=5"),
        ({"architectures": ["BertForHaiku"]}, InputError, "BertForMaskedLM.*Received: .*BertForHaiku"),
    ],
)
def test_a_config_that_is_not_implemented(folder, values, error, message):
    change_config(folder, **values)
    with pytest.raises(error, match=message):
        zoo.load(folder)


def test_a_config_that_is_none(folder):
    change_config(folder, model_type=None, architectures=["BertForHaiku"])
    with pytest.raises(UnsupportedConfigError, match="model_type"):
        zoo.load(folder)
    (folder / "config.json").write_text('{"model_type": "bert",')
    with pytest.raises(SourceError, match="not valid JSON: line 1"):
        zoo.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(SourceError, match="contains config.json; this folder has neither"):
        zoo.load(folder)


def test_a_corrupt_tokenizer(bert, folder, caplog):
    (folder / "tokenizer.json").write_text("{")
    with caplog.at_level(logging.WARNING, "kerasformer"):
        model = zoo.load(folder)
    assert model.tokenizer is None and "cannot be used" in caplog.text and "tokenizer.json" in caplog.text
    assert_same(bert, model)


def test_what_a_model_cannot_read(bert, gpt2):
    ids = np.array([[5, 6]], "int32")
    with pytest.raises(InputError, match="input_ids, attention_mask, token_type_ids. Received: input_ids, words"):
        bert.model({"input_ids": ids, "words": ids})
    with pytest.raises(InputError, match="expects a dictionary of int32 arrays"):
        bert.model(ids)  # without a mask, whether it has padding is unknown
    with pytest.raises(CapacityError, match="at most 41 tokens. Received: 42"):
        bert.model({"input_ids": np.ones((1, 42), "int32")})
    for wrong in (ids[:0], ids[:, :0], ids[0], ids[None]):
        with pytest.raises(
            InputError, match=r"input_ids must be \(batch, length\) with at least one token. Received: shape"
        ):
            bert.model({"input_ids": wrong})
    with pytest.raises(
        InputError, match=r"attention_mask must have the shape of its ids, \(1, 2\). Received: shape \(1, 3\)"
    ):
        gpt2.model({"input_ids": ids, "attention_mask": np.ones((1, 3), "int32")})
    for wrong in (-1, bert.model.config.vocab_size, 2**32 + 5, 0.5, float("nan")):
        for make in (np.array, lambda ids: keras.ops.convert_to_tensor(np.array(ids)), list):
            with pytest.raises(InputError, match="input_ids must be"):
                bert.model({"input_ids": make([[5, wrong]])})
        with pytest.raises(InputError, match="must be (from 0 to|integers)"):
            gpt2.model.generate([[5, wrong]])
    for name, count in {
        "token_type_ids": bert.model.config.num_segments,
        "position_ids": 41,
        "attention_mask": 2,
    }.items():
        with pytest.raises(InputError, match=f"{name} must be from 0 to {count - 1}"):
            bert.model({"input_ids": ids, name: np.array([[0, count]])})
    for wrong in ([[1, 2], [3]], [], [5, 6], np.ones((1, 2, 3))):
        with pytest.raises(InputError, match=r"ids \(batch, length\).*Received: "):
            gpt2.model.generate(wrong)
    with pytest.raises(TokenizerError, match="no tokenizer"):
        gpt2.model.generate("once upon")
    with pytest.raises(InputError, match="token_type_ids"):
        gpt2.model({"input_ids": ids, "token_type_ids": ids})
    with pytest.raises(InputError, match="Unknown option of an export.*Received: input_signature"):
        bert.model.export("folder", format="onnx", input_signature=None)


# Sources of checkpoints.


@pytest.mark.parametrize("name", ["with space (1)", "ümlaut-模型", "a.b=c", "-dash"])
def test_folders_of_any_name(bert, tmp_path, name):
    shutil.copytree(bert.folder, tmp_path / name)
    model = zoo.load(tmp_path / name)
    assert_same(bert, model)
    model.save(tmp_path / "model.keras")
    assert_same(bert, keras.models.load_model(tmp_path / "model.keras"))


def test_the_folder_one_is_in(bert, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert_same(bert, zoo.load("."))
    assert_same(bert, kf.zoo.load("./"))


# Time and memory.


def test_no_random_initializer_runs(bert, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("random numbers were drawn")

    for name in ("normal", "truncated_normal", "uniform"):
        monkeypatch.setattr(keras.src.backend.random, name, refuse)
    with pytest.raises(AssertionError):
        keras.layers.Dense(3).build((None, 3))
    assert_same(bert, zoo.load(bert.folder))


@pytest.mark.parametrize("name", ["größe 1", "_a:b", "(1)"])
def test_a_folder_whose_name_tensorflow_does_not_take(name, bert, tmp_path):
    model = zoo.load(shutil.copytree(bert.folder, tmp_path / name))
    assert_same(bert, model)
    keras.Model.predict(model, {"input_ids": np.ones((1, 4), "int32")}, verbose=0)  # traces the model by its name


MEMORY = """
import re, sys
from pathlib import Path
from kerasformer import process, zoo
from kerasformer.models.variables import release_weights

process.free_tensors()

def status(name):
    return 1024 * int(re.search(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

for _ in range(2):
    zoo.load(sys.argv[1])  # includes all one-time initialization, of which 5 MB are in the second
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
before = status("VmRSS")
model = zoo.load(sys.argv[2])
size = sum(4 * variable.value.shape.num_elements() for variable in model.weights)
print((status("VmHWM") - before) / size)
model.generate([[1, 2, 3]], max_new_tokens=2, jit_compile=False)  # compiles functions, which refer to the weights
before = status("VmRSS")
release_weights(model)
print((before - status("VmRSS")) / size)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux' /proc")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the peak of TensorFlow's memory")
@pytest.mark.grid
def test_the_peak_of_memory(gpt2, tmp_path):
    config = transformers.GPT2Config(vocab_size=20000, n_embd=512, n_layer=6, n_head=8, n_positions=256)
    with torch.device("meta"):
        large = transformers.GPT2LMHeadModel(config)
    zeros = {n: torch.zeros(t.shape) for n, t in large.state_dict().items() if n != "lm_head.weight"}
    safetensors.torch.save_file(zeros, tmp_path / SINGLE)
    config.save_pretrained(tmp_path)
    command = [sys.executable, "-c", MEMORY, str(gpt2.folder), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    peak, released = map(float, result.stdout.splitlines()[-2:])
    assert peak <= 1.3  # of 112 MB
    assert released >= 0.95
