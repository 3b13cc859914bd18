"""Weights that are not finite, and configurations that do not match any file: errors before allocation."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kerasformer import zoo
from kerasformer.errors import CheckpointError, KerasformerError, UnsupportedConfigError
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import Loaded, make_inputs, run
from tests.core.zoo.cases import FIRST
from tests.core.zoo.harness import HEADS, with_entry
from tests.core.zoo.test_loading import BERT, GPT2, TORCH, assert_same, change, change_config
from tests.grids import grid

KERNEL, TABLE = "bert.encoder.layer.1.output.dense.weight", "bert.embeddings.word_embeddings.weight"


def with_value(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def put(tensor: np.ndarray) -> np.ndarray:
        tensor = tensor.copy()
        tensor[3, 5] = value
        return tensor

    return put


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda t: (t * 100).astype("int8"), "expected floating-point numbers .*received a tensor of type I8"),
        (lambda t: t.astype("int64"), "received a tensor of type I64"),
        (lambda t: t > 0, "received a tensor of type BOOL"),
        (with_value(np.nan), "contains NaN or infinity, in 1 of "),
        (with_value(-np.inf), "contains NaN or infinity, in 1 of "),
        (lambda t: with_value(1e300)(t.astype("float64")), "contains NaN or infinity, in 1 of "),
    ],
    ids=["int8", "int64", "bool", "nan", "inf", "float64"],
)
def test_what_is_no_number_is_refused_and_all_of_it_is_named(folder, bert, how, message):
    change(folder, lambda tensors: {n: how(t) if n in (KERNEL, TABLE) else t for n, t in tensors.items()})
    with pytest.raises(CheckpointError, match=rf"\(2 problems\):\n.*{TABLE}.*\n.*{KERNEL}") as error:
        zoo.load(folder)
    assert len([line for line in str(error.value).splitlines() if line.startswith("  ")]) == 2
    with pytest.raises(CheckpointError, match=message):
        zoo.load(folder)
    assert_same(bert, zoo.load(bert.folder))  # an error does not affect the next load


@pytest.mark.parametrize("value", [3e38, -3e38])
def test_large_but_finite_numbers_are_none_of_it(folder, value):
    change(folder, lambda tensors: {n: np.full_like(t, value) if n == KERNEL else t for n, t in tensors.items()})
    kernel = np.asarray(zoo.load(folder).backbone.encoder.layers[1].feed_forward.output_dense.kernel)
    assert (kernel == np.float32(value)).all()
    with pytest.raises(CheckpointError, match=f"{KERNEL} contains values beyond the range of float16"):
        zoo.load(folder, dtype="float16")


def test_an_error_while_reading_leaves_no_variables_behind(bert, monkeypatch):
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kerasformer.models.weights._read", stop)
    with pytest.raises(KeyboardInterrupt):
        zoo.load(bert.folder)
    monkeypatch.undo()
    assert_same(bert, zoo.load(bert.folder))


# Files of PyTorch.


@pytest.fixture
def gpt2(loaded, tmp_path) -> tuple[Loaded, dict[str, Any], Path]:
    """A checkpoint, its tensors, and a folder with only its configuration."""
    it = loaded((GPT2, "text-generation"))
    shutil.copy(it.folder / "config.json", tmp_path)
    return it, dict(it.reference.state_dict()), tmp_path / TORCH


def test_files_of_before_2020_that_are_no_zip(gpt2):
    it, tensors, file = gpt2
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(file)
    assert_same(it, zoo.load(file.parent))


def test_a_file_that_was_compressed_anew(gpt2):
    it, tensors, file = gpt2
    torch.save(tensors, file)
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    assert_same(it, zoo.load(file.parent))


NAME = "transformer.wpe.weight"


# PyTorch no longer recommends such tensors, which older checkpoints have.
@pytest.mark.filterwarnings(
    "ignore:torch.quantize_per_tensor:UserWarning", "ignore:TypedStorage is deprecated:UserWarning"
)
@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda t: {**t, NAME: torch.quantize_per_tensor(t[NAME], 0.1, 0, torch.qint8)}, "a tensor that is quantized"),
        (lambda t: {**t, NAME: t[NAME].to_sparse()}, "a tensor that is sparse"),
        (lambda t: {**t, NAME: t[NAME].to("meta")}, "a tensor without data"),
        (lambda t: {**t, NAME: t[NAME].to(torch.int32)}, "a tensor of type int32"),
        (lambda t: {**t, NAME: t[NAME].to(torch.complex64)}, "a tensor of type complex64"),
        (lambda t: {**t, NAME: t[NAME] * torch.nan}, "contains NaN or infinity"),
        (lambda t: {"state_dict": t, "epoch": 3}, "nothing but tensors by name. Received: {'state_dict': 'dict'"),
        (lambda t: list(t.values()), "must contain tensors by name. Received: list"),
    ],
    ids=["quantized", "sparse", "meta", "int32", "complex", "nan", "nested", "list"],
)
def test_tensors_that_are_no_plain_numbers(gpt2, spoilt, message):
    _, tensors, file = gpt2
    torch.save(spoilt(tensors), file)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(file.parent)


# Sizes that do not match any file.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 20_000}, r"num_layers \(num_hidden_layers in config.json\) must be .*from 1 to 4096"),
        ({"num_hidden_layers": 4_000}, "num_hidden_layers in config.json does not match model.safetensors"),
        (
            {"vocab_size": 10**13},
            "vocab_size must be an integer from 1 to 2147483647. Received: vocab_size=10000000000000",
        ),
        ({"vocab_size": 2**31 - 1}, r"shape of .*word_embeddings.weight: expected \(2147483647, 36\), received \(97"),
        ({"num_labels": 10**8}, "num_labels must be an integer from 1 to 131072. Received: num_labels=100000000"),
        ({"num_labels": 10**5}, r"shape of classifier.weight: expected \(100000, 36\), received \(5, 36\)"),
        ({"hidden_size": 3 * 10**8}, r"shape of .*word_embeddings.weight: expected \(97, 300000000\)"),
        ({"intermediate_size": 2**31 - 1, "num_attention_heads": 5}, "divide hidden_dim"),
    ],
    ids=str,
)
def test_sizes_are_compared_before_anything_is_made(folder, values, message):
    change_config(folder, **values)
    start = time.perf_counter()
    with pytest.raises(KerasformerError, match=message):
        zoo.load(folder)
    assert time.perf_counter() - start < 5


def test_what_the_machine_cannot_hold_is_not_built():
    with pytest.raises(UnsupportedConfigError, match=r"larger than the memory of this machine.*Received: 6152.0 GiB"):
        zoo.build("bert", vocab_size=2**31 - 1, num_layers=1)
    with pytest.raises(UnsupportedConfigError, match="num_layers.*from 1 to 4096. Received: 20000"):
        zoo.build("bert", num_layers=20_000)
    with pytest.raises(UnsupportedConfigError, match="num_labels must be .*Received: num_labels=100000000"):
        zoo.build("bert", num_labels=10**8)


# Configurations: all values for all keys that affect outputs.

NASTY = [
    -1, 0, 2**70, 10**99, 1e308, float("nan"), float("inf"), "7", "\udc80", None, True, [], [1], {}, {"a": 1}, 0.5,
    "x" * 10_000, [None], {"0": None}, {"1": "a"}, -0.5,
]  # fmt: skip
KEYS = {"id2label", "label2id", "num_labels", "problem_type", "architectures", "model_type", "task_specific_params"}


NAMED = [case for case in FIRST if case.model_type in HEADS]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", grid(FIRST, always=NAMED, release=FIRST), ids=str)
@pytest.mark.grid
def test_any_value_under_any_key_loads_or_is_refused(loaded, tmp_path, case):
    """A seeded sample of all pairs; models that load must have finite outputs."""
    it = loaded((case, case.tasks[0]))
    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    content = json.loads((folder / "config.json").read_text())
    pairs = [(key, value) for key in sorted({*content, *KEYS}) for value in NASTY]
    dice, inputs, refused = np.random.default_rng(0), make_inputs(it), 0
    start = time.perf_counter()
    for index in dice.permutation(len(pairs))[:20]:
        key, value = pairs[index]
        (folder / "config.json").write_text(json.dumps({**content, key: value}))
        try:
            model = zoo.load(folder)
        except KerasformerError as error:
            assert str(error), (key, value)
            refused += 1
            continue
        if type(model) is type(it.model):
            assert all(np.isfinite(x).all() for x in run(Loaded(case, it.task, folder, None, model), inputs).values())
    assert 3 < refused < 20
    assert time.perf_counter() - start < 60


def epsilon_key(case: Case) -> str | None:
    """Returns the key of config.json with the epsilon of the norms, if it is not fixed."""
    fields = dataclasses.fields(case.kind(case.tasks[0]).backbone_type.config_type)
    return next((field.metadata["hf"][0] for field in fields if field.name == "epsilon"), None)


WRONG_EPSILONS = [(BERT, value) for value in (-1.0, float("nan"), float("inf"), 2.0)]
WRONG_EPSILONS += [(case, 0.0) for case in FIRST if epsilon_key(case)]


@pytest.mark.parametrize(("case", "value"), WRONG_EPSILONS, ids=str)
def test_an_epsilon_that_cannot_be(case, value):
    kind, name = case.kind(case.tasks[0]).backbone_type.config_type, epsilon_key(case)
    with pytest.raises(UnsupportedConfigError, match=rf"epsilon \({name} in config.json\) must be .*above 0, up to 1"):
        kind.from_hf(with_entry(case.settings, name, value))


def test_all_wrong_values_stand_in_one_error():
    with pytest.raises(UnsupportedConfigError) as error:
        zoo.build("bert", num_layers=-1, hidden_dropout=1.5, max_length="long")
    assert str(error.value).splitlines()[0] == "The configuration of bert has 3 invalid value(s):"
    assert all(name in str(error.value) for name in ("num_layers", "hidden_dropout", "max_length"))
