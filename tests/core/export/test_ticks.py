"""Only bundles that a test compares with Keras count as tested."""

from __future__ import annotations

import types

import pytest

from kerasformer.bundle import tested
from tests.core.export import ticks
from tests.grids import grid

BERT, GPT2 = "bert-fill-mask", "gpt2-text-generation"
NAMES = pytest.mark.parametrize("name", [BERT])
OF_A_FORMAT = pytest.mark.parametrize(("name", "format"), grid([BERT, GPT2], ["onnx"], always=[(BERT, "onnx")]))
SKIPPED = pytest.mark.parametrize("name", [BERT, pytest.param(GPT2, marks=pytest.mark.skip)])


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((pytest.mark.bundles(format=["tflite", "onnx"], quantize="int8"), NAMES), "tflite bert int8, onnx bert int8"),
        ((pytest.mark.bundles(quantize="none"), OF_A_FORMAT), "onnx bert none, onnx gpt2 none"),
        ((pytest.mark.bundles(format="onnx", quantize="none"), SKIPPED), "onnx bert none"),
        ((pytest.mark.bundles(format="onnx", quantize="none"), NAMES, pytest.mark.skip), ""),
        ((NAMES,), ""),
    ],
    ids=["formats of the mark", "grid", "a skipped model", "a skipped test", "no mark"],
)
def test_claims(marks, expected):
    def test(name): ...

    for mark in marks:
        test = mark(test)
    module = types.ModuleType("tests")
    module.test_one = test
    found = [f"{format} {row.model_type} {recipe}" for format, row, recipe in ticks.claims(module)]
    assert ", ".join(found) == expected


def test_listed_recipes():
    listed = tested.formats()
    assert list(listed) == ["tflite", "onnx", "saved-model"]
    assert {"none", "int8", "int4"} <= {*listed["tflite"]["text-classification"]["bert"]}
    assert listed["saved-model"]["fill-mask"]["bert"] == ["none"]
