"""Published checkpoints: their `config.json` is read, and small models of it have parity; see `configurations`."""

from __future__ import annotations

import json

import pytest
import transformers

from kerasformer import zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, make_inputs, run, run_reference
from tests.core.zoo.configurations import common, config_type, entry, hundred, keys, model_type, published, reduced
from tests.grids import repeats

ROWS = list(published().values())
USED = [row for name, row in hundred().items() if name not in published()]
SUPPORTED = [row for row in USED if "refused" not in row]


def name_of(row):
    return row["checkpoint"].split("/")[1]


@pytest.mark.parametrize("row", [*ROWS, *SUPPORTED], ids=name_of)
def test_the_configuration_has_the_values_of_the_reference(row):
    config = config_type(row).from_hf(row["config"])  # a warning would be an error
    reference = transformers.AutoConfig.for_model(**{**row["config"], "model_type": model_type(row)})
    theirs = reference.to_dict()
    written = config.to_hf()
    if isinstance(terms := written.get("pos_att_type"), str):
        written["pos_att_type"] = terms.split("|")  # the reference reads both forms
    # For models of the T5 family, the reference reads from the tensors whether the output is tied.
    omitted = {"id2label", "label2id"} | ({"tie_word_embeddings"} if hasattr(reference, "d_kv") else set())
    if theirs.get("use_bidirectional_attention"):
        omitted.add("sliding_window")  # the reference halves it when it reads it
    shared = common(written, theirs, omitted)
    assert len(shared) >= 12
    assert shared == common(theirs, written, omitted)
    assert config.id2label == reference.id2label


@pytest.mark.parametrize("row", [row for row in USED if "refused" in row], ids=name_of)
def test_an_unsupported_configuration_is_refused(row):
    with pytest.raises(UnsupportedConfigError):  # else it can be compared: remove `refused` from its row
        config_type(row).from_hf(row["config"])


SEEN = repeats([[model_type(row)] for row in ROWS])
"""Whether an earlier checkpoint has the same architecture."""


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.release if seen else ()) for row, seen in zip(ROWS, SEEN, strict=True)],
    ids=name_of,
)
@pytest.mark.grid
def test_parity(row, tmp_path):
    content = reduced(row)
    kinds = zoo.architecture(model_type(row)).MODELS.items()
    saved = content.get("architectures", [])
    task = next((task for task, kind in kinds if kind.architecture in saved), row.get("task", "fill-mask"))
    omitted = ("model_type", "torch_dtype", "id2label", "label2id", "num_labels")
    settings = {key: value for key, value in content.items() if key not in omitted}
    case = Case(
        row["checkpoint"],
        model_type(row),
        settings,
        std=(1.2 if "d_kv" in content else 1.8)
        / entry(content, keys(content, config_type(row))["hidden_dim"]) ** 0.5,  # T5's scores are not scaled
        zero_padding="trigram_input" in content,
    )
    reference = case.reference(task)
    reference.save_pretrained(tmp_path)
    saved_labels = {"id2label": reference.config.id2label} if task == "text-classification" else {}
    (tmp_path / "config.json").write_text(json.dumps(content | saved_labels))
    it = Loaded(case, task, tmp_path, reference, zoo.load(tmp_path, model_type=model_type(row)))
    assert type(it.model) is case.kind(task)
    inputs = make_inputs(it)
    assert_same_outputs(inputs, run(it, inputs), run_reference(reference, inputs))
