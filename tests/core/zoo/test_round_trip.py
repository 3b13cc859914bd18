"""Saved models have equal tensors, configurations and outputs in `transformers`, this package and Keras."""

from __future__ import annotations

import json
import sys

import keras
import numpy as np
import pytest
import safetensors.numpy
import transformers

from kerasformer import zoo
from kerasformer.basics.tasks import PRETRAINING
from kerasformer.errors import CheckpointError
from kerasformer.tools.testing import round_trip
from kerasformer.tools.testing.comparison import assert_same_outputs, make_inputs, run_reference
from tests.core.zoo.cases import DISTINCT, FIRST
from tests.core.zoo.harness import (
    HEADS,
    before_a_release,
    distinct,
    first_of_each,
    first_tasks,
    main_tasks,
    marked,
    of_heads,
    rows,
)

ROWS = rows(on_jax=False)
KEPT = ("feature-extraction", "text-generation", "text2text-generation", *PRETRAINING)
FEW = rows(tasks=KEPT, on_jax=False)
SMALL = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "intermediate_dim": 20}


@pytest.mark.parametrize("row", before_a_release(main_tasks(first_of_each(ROWS))))
def test_transformers_reads_what_we_write(loaded, row, tmp_path):
    round_trip.check_transformers_reads_it(loaded(row), tmp_path)


# The tensors of all others are those that came, which tests of parity read.
@pytest.mark.parametrize("row", [row for row in FEW if row.values[0][0].name in HEADS])
def test_we_read_what_we_write(loaded, row, tmp_path):
    round_trip.check_it_reads_itself(loaded(row), tmp_path)


@pytest.mark.parametrize("row", before_a_release(main_tasks(distinct(rows(FIRST, on_jax=False)))))
def test_the_tensors_are_those_that_came(loaded, row, tmp_path):
    round_trip.check_tensors(loaded(row), tmp_path)


# tests/core/test_saved_models.py opens the file of each architecture in another process.
@pytest.mark.parametrize(
    "row",
    [
        row if row.values[0][0].model_type in HEADS else marked(row, pytest.mark.release)
        for row in rows(DISTINCT, tasks=KEPT, on_jax=False)
    ],
)
@pytest.mark.grid
def test_keras_files(loaded, row, tmp_path):
    round_trip.check_keras_file(loaded(row), tmp_path)


@pytest.mark.parametrize("row", of_heads(first_tasks(rows(DISTINCT, on_jax=False))))
def test_summary_counts_every_weight_and_shows_shapes(loaded, row):
    round_trip.check_summary(loaded(row))


@pytest.mark.parametrize("row", before_a_release(main_tasks(distinct(FEW))))
@pytest.mark.grid
def test_backbones_come_back_from_their_config(loaded, row):
    round_trip.check_backbone_config(loaded(row))


def test_low_rank_matrices_are_merged_in_files(tmp_path):
    model = zoo.build("bert", "fill-mask", vocab_size=97, max_length=9, **SMALL)
    for layer in model.backbone.encoder.layers:
        layer.attention.query.enable_lora(2)
        layer.attention.query.lora_b.assign(np.ones((2, 12)))
    inputs = {"input_ids": np.arange(8, dtype="int32").reshape(2, 4)}
    expected = np.asarray(model(inputs))
    model.save_pretrained(tmp_path)
    np.testing.assert_allclose(np.asarray(zoo.load(tmp_path)(inputs)), expected, atol=1e-5)
    model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(np.asarray(keras.models.load_model(tmp_path / "m.keras")(inputs)), expected, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(model(inputs)), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_files_have_the_dtype_that_was_asked_for(loaded, dtype, tmp_path):
    it = loaded((FIRST[-1], "text-classification"))
    it.model.save_pretrained(tmp_path, dtype=dtype)
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert {value.dtype.name for value in tensors.values()} == {dtype}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == dtype
    inputs = make_inputs(it)
    theirs = round_trip.reopened(it, tmp_path).float()
    assert_same_outputs(inputs, {"logits": run_reference(theirs, inputs).logits}, run_reference(theirs, inputs))


def test_saving_leaves_other_files_alone(loaded, tmp_path):
    it = loaded((FIRST[-1], "text-classification"))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "config.json").write_text("{}")
    it.model.save_pretrained(tmp_path)
    it.model.save_pretrained(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "README.md", "config.json", "model.safetensors"}
    assert transformers.AutoConfig.from_pretrained(tmp_path).model_type == it.case.model_type


def test_the_folder_of_another_model_is_replaced_only_on_request(tmp_path):
    def built(model_type="bert", task="text-classification", **settings):
        return zoo.build(model_type, task, **{**SMALL, "vocab_size": 40, "num_labels": 3, **settings})

    folder = built().save_pretrained(tmp_path / "model")
    built().save_pretrained(folder)  # as at the end of each epoch
    before = (folder / "config.json").read_bytes(), (folder / "model.safetensors").read_bytes()
    for other, message in (
        (built("distilbert"), "'bert', BertForSequenceClassification.* model to save: 'distilbert', DistilBertFor"),
        (built(task="fill-mask"), "BertForSequenceClassification.* model to save: 'bert', BertFor"),
        (built(num_labels=2), "other values of id2label"),
        (built(hidden_dim=24), "other values of hidden_dim"),
    ):
        with pytest.raises(CheckpointError, match=f"{message}.*overwrite=True"):
            other.save_pretrained(folder)
        assert ((folder / "config.json").read_bytes(), (folder / "model.safetensors").read_bytes()) == before
    zoo.load(other.save_pretrained(folder, overwrite=True), "text-classification")
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="is not valid JSON"):
        other.save_pretrained(folder)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "kerasformer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="bundle"):
        other.save_pretrained(tmp_path / "bundle", overwrite=True)


@pytest.mark.skipif(sys.platform == "win32", reason="files are limited as POSIX does")
def test_a_full_disk_loses_nothing(loaded, tmp_path):
    """Limits the size of files, to simulate a full disk."""
    import resource

    model = loaded(next(row.values[0] for row in rows())).model
    model.save_pretrained(tmp_path / "saved")
    before = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        with pytest.raises(CheckpointError, match="the checkpoint could not be written: .*Nothing was changed there"):
            model.save_pretrained(tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
