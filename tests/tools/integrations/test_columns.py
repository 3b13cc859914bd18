"""A model as a function from columns to columns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.tools.integrations.columns import ColumnModel
from tests.tools.integrations import models

TEXTS = ["a warm film", "the loud plot never ends", "chaotic"]


@pytest.mark.parametrize("form", [list, lambda values: np.array(values, object), np.array], ids=["list", "object", "U"])
def test_results_are_those_of_the_pipeline_and_other_columns_stay(form):
    expected = kf.pipeline(models.classifier())(TEXTS)
    answered = ColumnModel(models.classifier())({"id": [7, 8, 9], "text": form(TEXTS)})
    assert list(answered) == ["id", "text", "result_label", "result_score", "error"]
    assert answered["result_label"] == [each["label"] for each in expected]
    assert answered["result_score"] == pytest.approx([each["score"] for each in expected])
    assert answered["id"] == [7, 8, 9] and answered["error"] == [None] * 3


def test_a_row_that_fails_has_its_error_and_the_others_their_results():
    model = ColumnModel(models.classifier())
    good = model({"text": TEXTS})
    answered = model({"text": [TEXTS[0], None, TEXTS[1], "long " * 99, TEXTS[2]], "id": range(5)})
    assert [answered["result_label"][index] for index in (0, 2, 4)] == good["result_label"]
    assert answered["result_label"][1] is None and "Received: None" in answered["error"][1]
    with pytest.raises(InputError, match="Received: None"):
        ColumnModel(models.classifier(), on_error="raise")({"text": [None]})
    assert list(ColumnModel(models.classifier())({"text": [None]})) == ["text", "error"]


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({"task": "text-classification", "top_k": 2}, {"result"}),
        ({"prefix": "it"}, {"it_label", "it_score"}),
        ({"columns": ("text", "other")}, {"result_label", "result_score"}),
    ],
    ids=["lists", "prefix", "pairs"],
)
def test_columns_of_results(settings, columns):
    batch = {"text": TEXTS, "other": TEXTS[::-1]}
    assert set(ColumnModel(models.classifier(), **settings)(batch)) == {*batch, "error", *columns}


def test_generated_texts_are_one_column():
    answered = ColumnModel(models.writer(), max_new_tokens=3, do_sample=False)({"text": TEXTS[:2]})
    expected = kf.pipeline(models.writer())(TEXTS[:2], max_new_tokens=3, do_sample=False)
    assert answered["result_generated_text"] == [each["generated_text"] for (each,) in expected]


def test_an_object_is_sent_without_its_model():
    model = ColumnModel(models.classifier())
    before = model({"text": TEXTS})
    content = pickle.dumps(model)
    assert len(content) < 2000 and pickle.loads(content)({"text": TEXTS}) == before


@pytest.mark.parametrize(
    ("settings", "batch", "message"),
    [
        ({}, {"review": ["a"]}, "needs the columns text. Received: review, without text"),
        ({"columns": ["a", "b", "c"]}, {}, "one or two names. Received: a, b, c"),
        ({"top_k": 0}, {"text": ["a"]}, "top_k must be"),
        ({"task": "summarization"}, {"text": ["a"]}, "Received: task='summarization'"),
    ],
    ids=["column", "three", "setting", "task"],
)
def test_bad_input_is_named(settings, batch, message):
    with pytest.raises(InputError, match=message):
        ColumnModel(models.classifier(), **settings)(batch)
