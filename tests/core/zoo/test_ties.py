"""Tensors that are one matrix in tied models, in files that have several, or one under another name."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import safetensors.torch

from kerasformer import zoo
from kerasformer.errors import CheckpointError
from kerasformer.files.tensors import open_tensors
from kerasformer.models import Row
from kerasformer.models.config import Config
from kerasformer.tools.interpretability.costs import costs
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, make_inputs, run, run_reference
from tests.core.zoo.cases import BERT_CASE, FIRST, GPT2_CASE, OPERATORS
from tests.core.zoo.harness import rows
from tests.core.zoo.test_loading import change

TASKS = ("fill-mask", "pretraining", "text-generation", "text2text-generation", "feature-extraction")


def _tied(*always: str, ci: tuple[str, ...] = ()) -> list[Any]:
    """Returns the cases and tasks whose class in `transformers` has tied tensors.

    Args:
        always: Those without a mark.
        ci: Those that CI runs, the others before a release; by default, those of architectures with operators of their
            own.
    """

    def mark(row: Any) -> Any:
        if row.id in always:
            return ()
        in_ci = row.id in ci if ci else row.values[0][0].model_type not in OPERATORS
        return pytest.mark.grid if in_ci else pytest.mark.release

    return [
        pytest.param(*row.values, id=row.id, marks=mark(row))
        for row in rows(FIRST, TASKS, on_jax=False)
        if row.values[0][0].reference_class(row.values[0][1])._tied_weights_keys or row.values[0][0].name == "marian"
    ]


def compared(it: Loaded, folder: Path, task: str | None = None) -> Any:
    """Loads a changed checkpoint; its outputs, also saved again, are those of `transformers`."""
    kind = it.case.reference_class(it.task)
    inputs = make_inputs(it)
    expected = run_reference(kind.from_pretrained(folder, attn_implementation="eager").eval(), inputs)
    model = zoo.load(folder, task)
    outputs = run(replace(it, model=model), inputs)
    assert_same_outputs(inputs, outputs, expected)
    model.save_pretrained(folder / "again")
    theirs = kind.from_pretrained(folder / "again", attn_implementation="eager").eval()
    saved = run_reference(theirs, inputs)
    assert_same_outputs(inputs, {name: saved[name] for name in outputs}, expected)
    again = zoo.load(folder / "again", task)
    assert again.config == model.config
    assert_same_outputs(inputs, run(replace(it, model=again), inputs), expected)
    return model


@pytest.mark.parametrize("row", _tied("bert-fill-mask", "gpt2-text-generation"))
def test_each_tensor_that_should_be_a_copy_and_is_none(loaded, row, tmp_path):
    it = loaded(row)
    for index, (name, original) in enumerate(it.reference.all_tied_weights_keys.items()):
        folder = shutil.copytree(it.folder, tmp_path / str(index))
        tied = it.reference.get_parameter_or_buffer(original).detach()
        scale = float(tied.std()) or 1.0  # far larger values would be rounded more than the logits may differ
        value = np.random.default_rng(index).normal(scale=scale, size=tied.shape).astype("float32")
        change(folder, lambda tensors, name=name, value=value: {**tensors, name: value})
        compared(it, folder, it.task)


@pytest.mark.parametrize(
    "row",
    _tied("roberta-fill-mask", "gpt2-text-generation", ci=("bart-text2text-generation", "t5-text2text-generation")),
)
def test_one_tensor_under_each_of_its_names(loaded, row, tmp_path):
    """As `safetensors.torch.save_model` writes a tied model: with the first of the names."""
    it = loaded(row)
    safetensors.torch.save_model(it.reference, str(tmp_path / "saved"))
    names = {next(iter(safetensors.torch.load_file(tmp_path / "saved"))), *it.reference.all_tied_weights_keys}
    folder = shutil.copytree(it.folder, tmp_path / "first")
    shutil.copy(tmp_path / "saved", folder / "model.safetensors")
    assert compared(it, folder, it.task).config == it.model.config
    for index, name in enumerate(sorted(names & it.reference.all_tied_weights_keys.keys())):
        original = it.reference.all_tied_weights_keys[name]
        in_file = it.model.backbone.names.in_files([Row((), original)])[0].tensor
        folder = shutil.copytree(it.folder, tmp_path / str(index))
        change(folder, lambda tensors, name=name, first=in_file: {**tensors, name: tensors.pop(first)})
        assert compared(it, folder, it.task).config == it.model.config


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in _tied("bert-fill-mask")
        if row.values[0][1] == "fill-mask" and row.values[0][0].settings.get("legacy", True)
    ],
)
def test_masked_models_that_are_untied_by_their_configuration(loaded, row, tmp_path, caplog):
    it = loaded(row)
    case = replace(it.case, settings={**it.case.settings, "tie_word_embeddings": False})
    case.reference(it.task).save_pretrained(tmp_path / "checkpoint")
    model = compared(it, tmp_path / "checkpoint", it.task)
    assert not model.config.tied and "differ" not in caplog.text
    assert costs(model).parameters == model.count_params()
    change(tmp_path / "checkpoint", lambda tensors: {k: v for k, v in tensors.items() if not _is_output(k)})
    with pytest.raises(CheckpointError, match="missing: .*weight"):
        zoo.load(tmp_path / "checkpoint", it.task)


def _is_output(name: str) -> bool:
    ends = (
        "decoder.weight",
        "lm_head.weight",
        "vocab_projector.weight",
        "generator_lm_head.weight",
        "pred_layer.proj.weight",
    )
    return name.endswith(ends)


def test_what_differs_is_said(loaded, tmp_path, caplog):
    it = loaded((BERT_CASE, "fill-mask"))
    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    bias, table = "cls.predictions.decoder.bias", "cls.predictions.decoder.weight"
    others = {bias: np.ones(97, "float32"), table: np.ones((97, 36), "float32")}
    change(folder, lambda tensors: {**tensors, **others})
    model = zoo.load(folder)
    assert "cls.predictions.bias is not used, since cls.predictions.decoder.bias differs from it" in caplog.text
    assert f"{table} and bert.embeddings.word_embeddings.weight are tied by the configuration and differ" in caplog.text
    model.save(tmp_path / "model.keras")
    inputs = make_inputs(it)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(inputs), model(inputs))
    caplog.clear()
    zoo.load(folder, "text-classification", new_head=True)  # which has no such matrix
    assert "differ" not in caplog.text


def test_an_architecture_with_one_matrix(loaded, tmp_path):
    """One of another package, whose configuration has no field for separate tensors."""
    it = loaded((GPT2_CASE, "text-generation"))

    @dataclass(frozen=True, kw_only=True)
    class Shared(Config):
        model_type = "shared"

    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    change(folder, lambda tensors: {**tensors, "lm_head.weight": np.ones((97, 36), "float32")})
    with pytest.raises(
        CheckpointError, match="lm_head.weight and transformer.wte.weight differ. shared has one matrix"
    ):
        type(it.model).config_for(Shared(), open_tensors(folder))
