"""Functions that differ only in lengths are traced once, and their graphs are those of separate traces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kerasformer.bundle.recipes import recipe
from kerasformer.export.formats.tflite import convert
from kerasformer.export.formats.tflite.signatures import tflite_functions
from tests.core.export.text_models import shared_model
from tests.core.export.tflite_bundles import operators

LENGTHS = (16, 40, 64)
# Traces of the texts that are read, and of all functions: a window has another form for short texts, and a text as long
# as the encoder's capacity needs no padding. A decoder reads a prompt and checks guessed tokens in the same way.
CASES = [
    ("bert-text-classification", 1, 1),
    ("gpt2-text-generation", 0, 3),
    pytest.param("modernbert-token-classification", 3, 3, marks=pytest.mark.grid),
    pytest.param("t5-text2text-generation", 2, 5, marks=pytest.mark.grid),
]


@pytest.mark.parametrize(("name", "reading", "all_traces"), CASES)
def test_one_trace_serves_all_lengths(name, reading, all_traces, tmp_path, monkeypatch):
    model = shared_model(name)
    functions = tflite_functions(model, 40 if model.generates else None, 64, LENGTHS)
    traced, trace = [], convert._trace
    monkeypatch.setattr(convert, "_trace", lambda function, *rest: traced.append(function) or trace(function, *rest))

    def written(file, functions):
        traced.clear()
        convert.write_tflite(functions, model.variables, recipe("none"), tmp_path / file)
        return operators(tmp_path / file)

    together = written("together.tflite", functions)
    texts = [function for function in traced if function.name.startswith(("forward", "encode"))]
    assert (len(texts), len(traced)) == (reading, all_traces)
    assert together == written("separate.tflite", [replace(each, any_length=False) for each in functions])
    assert len(traced) == len(functions)
