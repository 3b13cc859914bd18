"""Files of each architecture: outputs are those of `transformers`, for the file and for the model that was written."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import transformers

from kerasformer import zoo
from kerasformer.bundle.architectures import architectures
from kerasformer.tools.gguf.tables import ARCHITECTURES
from kerasformer.tools.testing.comparison import Loaded, assert_close, make_inputs, run, run_reference
from tests.tools.gguf.writing import ROWS, Row, write_model

TASKS = ("text-generation", "text2text-generation", "feature-extraction")


def written(row: Row, folder: Path) -> tuple[Loaded, Path]:
    """Writes the model of a row and loads it."""
    case = row.source()
    task = next(task for task in TASKS if task in zoo.architecture(case.model_type).MODELS)
    reference = case.reference(task)
    path = write_model(row, reference, folder / "model.gguf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = zoo.load(path)
    return Loaded(case, task, folder, reference, model), path


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_outputs(row: Row, tmp_path: Path) -> None:
    loaded, path = written(row, tmp_path)
    assert loaded.model.config.model_type == loaded.case.model_type
    inputs = make_inputs(loaded)
    actual, expected = run(loaded, inputs), run_reference(loaded.reference, inputs)
    for name, value in actual.items():
        assert_close(inputs, value, expected[name], name)
    if row.in_transformers:
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
        )
        assert_close(inputs, actual["logits"], run_reference(theirs, inputs).logits)


def test_saved_as_checkpoint(tmp_path: Path) -> None:
    """Of a model with reordered rows, scaled frequencies and a tied table; `transformers` reads the folder."""
    row = next(row for row in ROWS if row.case == "llama-3.2")
    loaded, _ = written(row, tmp_path)
    loaded.model.save_pretrained(tmp_path / "saved")
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", attn_implementation="eager").eval()
    assert saved.config.rope_parameters == loaded.reference.config.rope_parameters
    expected = dict(loaded.reference.state_dict())
    assert {name: (value == expected[name]).all() for name, value in saved.state_dict().items()} == dict.fromkeys(
        expected, torch.tensor(True)
    )


def test_every_architecture_has_a_row() -> None:
    assert {row.architecture for row in ROWS} == {each.name for each in ARCHITECTURES}
    assert {row.source().model_type for row in ROWS} <= set(architectures())
