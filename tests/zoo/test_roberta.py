"""RoBERTa, in addition to the cases of all architectures: positions, lengths, recognition of bare checkpoints."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from kerasformer import zoo
from kerasformer.errors import CapacityError, UnsupportedConfigError
from tests.zoo.cases import CASES
from tests.zoo.harness import assert_close, assert_same_outputs, make_inputs, run, run_reference

BY_NAME = {case.name: case for case in CASES}
SIZES = {"vocab_size": 61, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "intermediate_dim": 20}
TABLE = "embeddings.position_embeddings.weight"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["roberta", "roberta-odd", "roberta-relu"])
def test_positions_skip_padding_on_either_side(loaded, name, side):
    it = loaded((BY_NAME[name], "feature-extraction"))
    inputs = {key: value for key, value in make_inputs(it, side).items() if key != "position_ids"}
    inputs["input_ids"] = np.where(inputs["attention_mask"] > 0, inputs["input_ids"], it.model.config.pad_token_id)
    inputs["input_ids"][0, 4] = it.model.config.pad_token_id  # within a text
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))


def test_the_longest_text(loaded):
    it = loaded((BY_NAME["roberta"], "fill-mask"))
    length = it.model.max_length
    assert length == 43 - 2
    ids = np.random.default_rng(0).integers(3, 97, (2, length)).astype("int32")
    assert_same_outputs({}, run(it, {"input_ids": ids}), run_reference(it.reference, {"input_ids": ids}))
    with pytest.raises(CapacityError, match="41"):
        it.model({"input_ids": np.concatenate([ids, ids[:, :1]], axis=1)})


def test_a_table_without_positions_for_texts():
    assert zoo.build("roberta", num_positions=3, **SIZES).max_length == 1
    with pytest.raises(UnsupportedConfigError, match=r"max_position_embeddings=7, pad_token_id=6"):
        zoo.build("roberta", num_positions=7, pad_token_id=6, **SIZES)


def bare(folder: Path, target: Path, zeros: int | None = None) -> Path:
    """Copies the checkpoint of a bare backbone without what names its architecture, optionally with a row of zeros."""
    shutil.copytree(folder, target)
    content = json.loads((target / "config.json").read_text())
    kept = {key: value for key, value in content.items() if key not in ("model_type", "architectures")}
    (target / "config.json").write_text(json.dumps(kept))
    tensors = dict(safetensors.numpy.load_file(target / "model.safetensors"))
    if zeros is not None:
        tensors[TABLE][zeros] = 0
    safetensors.numpy.save_file(tensors, target / "model.safetensors")
    return target


@pytest.mark.parametrize(
    ("name", "zeros", "expected"),
    [("roberta", 1, "roberta"), ("bert", None, "bert"), ("bert", 2, "bert"), ("longformer", None, "longformer")],
)
def test_a_bare_backbone_is_recognized_by_its_tensors(loaded, tmp_path, caplog, name, zeros, expected):
    it = loaded((BY_NAME[name], "feature-extraction"))
    folder = bare(it.folder, tmp_path / "checkpoint", zeros)
    with caplog.at_level(logging.WARNING, "kerasformer"):
        model = zoo.load(folder)
    assert model.config.model_type == expected and f"Using {expected}, inferred from the tensors" in caplog.text
    if zeros != 2:
        inputs = make_inputs(it)
        assert_close(inputs, model(inputs), run_reference(it.reference, inputs).last_hidden_state)
