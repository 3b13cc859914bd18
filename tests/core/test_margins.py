"""The check of quantized answers accepts rounding and detects a wrong scale."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kerasformer as kf
from kerasformer import bundle
from kerasformer.export.reference_texts import PROMPTS, READING
from tests.foreign.cases import tiny
from tests.margins import check_arrays, check_classes, check_tokens

NEW = 16
GREEDY = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
WRITER = tiny("gpt2", "text-generation", "int8")
READER = tiny("bert", "text-classification", "int8")
FACTORS = {"honest": 1.0, "half": 0.5, "a third more": 1.33}


@pytest.fixture(scope="module", params=[WRITER, READER], ids=str)
def exported(request) -> tuple[Any, Any, Path]:
    """A case with its Keras model and its bundle."""
    return request.param, request.param.shared_model(), request.param.shared("onnx")


def scaled(folder: Path, copy: Path, factor: float) -> Path:
    """A copy of a bundle with wrong scales of the first quantized matrices and an unchanged manifest."""
    shutil.copytree(folder, copy)
    (path,) = copy.glob("onnx/*.onnx")
    graph = onnx.load(path)
    scales = [each for each in graph.graph.initializer if each.name.endswith(".scale")]
    assert len(scales) > 4
    for each in scales[:4]:
        each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each) * np.float32(factor), each.name))
    onnx.save(graph, path)
    bundle.write(copy, replace(bundle.read(copy, check=False), files=bundle.checksums(copy)))
    return copy


@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS)
@pytest.mark.grid
def test_a_wrong_scale_is_detected(exported, factor, tmp_path):
    case, model, folder = exported
    judged = judge_writer if case is WRITER else judge_reader
    wrong = scaled(folder, tmp_path / "bundle", factor)
    if factor == 1:
        judged(model, wrong)
    else:
        with pytest.raises(AssertionError):
            judged(model, wrong)


def judge_writer(model: Any, folder: Path) -> None:
    pipe = kf.pipeline(folder, "text-generation")
    for search in (GREEDY, {**GREEDY, "repetition_penalty": 1.5}, {**GREEDY, "no_repeat_ngram_size": 2}):
        outputs = [pipe(text, max_new_tokens=NEW, return_dict_in_generate=True, **search) for text in PROMPTS[:4]]
        prompts = [model.tokenizer.encode(text) for text in PROMPTS[:4]]
        check_tokens(model, folder, prompts, [output.sequences[0].tolist() for output in outputs], NEW, search)


def judge_reader(model: Any, folder: Path) -> None:
    pipes = [kf.pipeline(source, "text-classification") for source in (model, folder)]
    labels = pipes[0].info.labels
    rows = []
    for pipe in pipes:
        answers = [{each["label"]: each["score"] for each in found} for found in pipe(list(READING[:8]), top_k=None)]
        rows.append([[scores[label] for label in labels] for scores in answers])
    check_classes(folder, *rows)


def test_a_wrong_answer_is_detected(exported):
    case, model, folder = exported
    if case is WRITER:
        prompts = [model.tokenizer.encode(text) for text in PROMPTS[:4]]
        with pytest.raises(AssertionError):
            check_tokens(model, folder, prompts, [[7] * NEW for _ in prompts], NEW, GREEDY)
        with pytest.raises(AssertionError):  # a text that ends too early
            check_tokens(model, folder, prompts, [[] for _ in prompts], NEW, GREEDY)
    else:
        with pytest.raises(AssertionError):
            check_classes(folder, [[0.6, 0.3, 0.1]], [[0.3, 0.6, 0.1]])
        with pytest.raises(AssertionError):
            check_arrays(folder, {"logits": [1.0, -2.0]}, {"logits": [1.0, -1.5]})
