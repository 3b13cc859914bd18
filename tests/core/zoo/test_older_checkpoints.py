"""Older checkpoints with incomplete configurations, and new heads for checkpoints without one."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.basics.tasks import VARIANTS
from kerasformer.errors import CheckpointError, InputError, UnsupportedConfigError
from kerasformer.tools.testing.comparison import Loaded, make_inputs
from tests.core.zoo.cases import CASES, DISTINCT, FIRST
from tests.core.zoo.harness import HEADS
from tests.core.zoo.test_loading import BERT, GPT2, assert_same, change, change_config, of_tensorflow
from tests.grids import grid


def without(folder: Path, *keys: str) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if k not in keys}))


NAMED = [case for case in FIRST if case.model_type in HEADS]

# Missing keys of config.json.


@pytest.mark.parametrize("case", grid(FIRST, always=NAMED, others="release"), ids=str)
def test_the_architecture_is_found_by_its_classes(loaded, tmp_path, case):
    it = loaded((case, next(task for task, kind in _kinds(case).items() if kind.has_labels or kind.generates)))
    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    without(folder, "model_type")
    model = zoo.load(folder)
    assert type(model) is type(it.model)
    assert_same(Loaded(case, it.task, folder, it.reference, model), model)


def _kinds(case: Any) -> Any:
    return zoo.architecture(case.model_type).MODELS


def test_classes_of_several_architectures(folder):
    change_config(folder, architectures=["BertModel", "RobertaModel"])
    without(folder, "model_type")
    with pytest.raises(UnsupportedConfigError, match="do not name one model.*model_type='bert'.*one of bert, roberta"):
        zoo.load(folder)


@pytest.mark.parametrize("name", ["bert", "mistral"])
def test_an_architecture_that_is_not_named_can_be_passed(loaded, tmp_path, name):
    it = loaded((next(case for case in CASES if case.name == name), "text-classification"))
    folder = shutil.copytree(it.folder, tmp_path / "checkpoint")
    without(folder, "model_type", "architectures")
    with pytest.raises(UnsupportedConfigError, match="no model_type.*Pass model_type.*one of albert, bart, bert, "):
        zoo.load(folder)
    assert_same(it, zoo.load(folder, it.task, model_type=name))


def test_the_architecture_that_is_passed_replaces_the_named_one(folder, bert):
    change_config(folder, model_type="our-own-bert")
    assert_same(bert, zoo.load(folder, model_type="bert"))


FOUND = [
    ("deberta", "fill-mask", "fill-mask"),
    ("electra", "replaced-token-detection", "replaced-token-detection"),
    ("bert", "pretraining", "fill-mask"),
    ("bert", "feature-extraction", "feature-extraction"),
    ("bert", "question-answering", "question-answering"),
    ("mobilebert", "next-sentence-prediction", "next-sentence-prediction"),
    ("gpt2", "text-classification", "text-classification"),
    ("t5", "feature-extraction", "feature-extraction"),
]


@pytest.mark.parametrize(("name", "task", "found"), FOUND)
@pytest.mark.grid
def test_the_task_is_found_by_all_tensors(loaded, tmp_path, name, task, found):
    folder = shutil.copytree(
        loaded((next(case for case in CASES if case.name == name), task)).folder, tmp_path / "checkpoint"
    )
    without(folder, "architectures")
    assert zoo.load(folder).task == found


def test_the_task_is_found_by_old_names_of_tensors(loaded, tmp_path):
    """`gamma` and `beta` of norms, which the oldest checkpoints of BERT have."""
    folder = shutil.copytree(loaded((BERT, "fill-mask")).folder, tmp_path / "checkpoint")
    without(folder, "architectures")
    change(folder, lambda tensors: {of_tensorflow(name): tensor for name, tensor in tensors.items()})
    assert zoo.load(folder).task == "fill-mask"


def test_a_head_that_only_one_task_has_without_a_pooler(loaded, tmp_path):
    """Classes of tokens need no pooler, so that without one the head is theirs."""
    folder = shutil.copytree(loaded((BERT, "token-classification")).folder, tmp_path / "checkpoint")
    without(folder, "architectures")
    change(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if "pooler" not in name})
    assert zoo.load(folder).task == "token-classification"


def test_a_head_of_two_tasks_asks_which(folder):
    without(folder, "architectures")
    with pytest.raises(InputError, match="several. Pass task=…, one of text-classification, token-classification"):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architectures": "BertModel"}, "architectures in config.json must be a list of names. Received: 'BertModel'"),
        ({"model_type": 5}, "model_type in config.json must be a string. Received: 5"),
        ({"id2label": ["a", "b"]}, r"id2label must be an object, each value a string. Received: id2label=\['a', 'b'\]"),
        ({"id2label": {"1": "a", "2": "b"}}, "id2label must name the classes 0, 1, 2"),
        ({"task_specific_params": {"x": {"prefix": 5}}}, "prefix of 'x' must be a string. Received: 5"),
    ],
    ids=str,
)
def test_words_of_the_wrong_type(folder, values, message):
    change_config(folder, **values)
    with pytest.raises(UnsupportedConfigError, match=message):
        zoo.load(folder)


# Numbers of classes.


def test_the_number_of_classes_counts_more_than_their_names(folder, bert, caplog):
    import transformers

    change_config(folder, num_labels=5, id2label={"0": "no", "1": "yes"})
    theirs = transformers.AutoConfig.from_pretrained(folder)
    with caplog.at_level(logging.WARNING, "kerasformer"):
        model = zoo.load(folder)
    assert_same(bert, model)
    assert model.config.id2label == theirs.id2label and theirs.num_labels == 5
    assert "num_labels=5" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [{"num_labels": 5}, {"labels": list("abcde")}, {"id2label": dict(enumerate("abcde"))}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_trained_head_of_as_many_classes_is_kept(bert, arguments):
    model = zoo.load(bert.folder, **arguments)
    assert model.new_variables == ()
    assert_same(bert, model)
    expected = bert.model.config.labels if "num_labels" in arguments else tuple("abcde")
    assert model.config.labels == expected
    anew = zoo.load(bert.folder, new_head=True, **arguments)
    assert set(anew.new_variables) == {"head/output/kernel", "head/output/bias"}
    assert np.abs(np.asarray(anew.head.output_dense.kernel) - np.asarray(model.head.output_dense.kernel)).max() > 0.01


# New heads.

T5S = ("t5", "umt5", "t5gemma")
"""Architectures whose checkpoints for feature extraction have no decoder."""
BARE = [case for case in DISTINCT if case.model_type not in T5S and "feature-extraction" in case.tasks]
TASKS = [
    pytest.param(
        case, task, marks=() if case is BERT or case in NAMED and case.tasks[0] == task else pytest.mark.release
    )
    for case in BARE
    for task in _kinds(case)
    if task not in VARIANTS  # whose settings are those of a folder of their own
]


@pytest.mark.parametrize(("case", "task"), TASKS, ids=str)
@pytest.mark.grid
def test_every_task_starts_from_a_bare_encoder(loaded, case, task):
    folder, config = loaded((case, "feature-extraction")).folder, loaded((case, "feature-extraction")).model.config
    kind = _kinds(case)[task]
    separate = [row for row in kind.head_table if not row.tied]
    if not kind.head_table or (kind.optional_head and config.tied and all(row.optional for row in separate)):
        with pytest.raises(InputError, match=f"{case.model_type} has no separate head for {task}"):
            zoo.load(folder, task, new_head=True)
        return
    with pytest.raises(CheckpointError, match=r"To create a new, .* new_head=True to kerasformer.zoo.load\.$"):
        zoo.load(folder, task)
    model = zoo.load(folder, task, new_head=True)
    has_pooler = getattr(loaded((case, "feature-extraction")).model, "pooled", True)
    new = ("head/",) if has_pooler else ("head/", "backbone/pooler/")
    assert model.new_variables and all(path.startswith(new) for path in model.new_variables)
    outputs = model(make_inputs(loaded((case, "feature-extraction"))))
    assert all(np.isfinite(np.asarray(value)).all() for value in model.named(outputs).values())


def test_a_new_classifier_brings_the_pooler_that_a_model_for_masks_lacks(loaded):
    model = zoo.load(loaded((BERT, "fill-mask")).folder, "text-classification", labels=["bad", "good"])
    parts = {path.rsplit("/", 1)[0] for path in model.new_variables}
    assert parts == {"head/output", "backbone/pooler"}
    assert np.asarray(model.backbone.pooler.kernel).std() > 0.01


def test_names_and_kind_of_the_classes(loaded):
    folder = loaded((GPT2, "text-generation")).folder
    model = zoo.load(folder, "text-classification", labels=("bad", "good"), problem_type="multi_label_classification")
    assert model.config.labels == ("bad", "good") and model.info().problem_type == "multi_label_classification"
    assert model.config.to_hf()["label2id"] == {"bad": 0, "good": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ["a", "a"]}, "must be unique"),
        ({"labels": ["a", "\ud800"]}, "without lone surrogates"),
        ({"labels": []}, "classes 0, 1, 2"),
        ({"task": "fill-mask", "num_labels": 6}, "a model for fill-mask"),
        ({"task": "image-classification"}, "no such task.*question-answering.*'image-classification'"),
        ({"labels": ["a"], "id2label": {0: "a"}}, "Only one of labels and id2label can be set. Received: both"),
        ({"labels": ["a", "b"], "num_labels": 3}, "as many as num_labels"),
        ({"num_labels": "3"}, "num_labels must be an integer from 1 to 131072, or None. Received: num_labels='3'"),
        ({"id2label": ["a"]}, "id2label must name"),
        ({"problem_type": "ranking"}, "problem_type must be .*regression.*Received: problem_type='ranking'"),
        ({"task": "fill-mask", "problem_type": "regression"}, "problem_type can be set only for classification heads"),
    ],
    ids=str,
)
def test_arguments_of_a_head_that_make_no_sense(bert, arguments, message):
    with pytest.raises(InputError, match=message):
        zoo.load(bert.folder, **{"task": "text-classification", **arguments})
