"""A real file of llama.cpp: a chat model that keeps its answer in Keras, and in a bundle for LiteRT-LM."""

from __future__ import annotations

from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.export import export
from tests.foreign.environments import need
from tests.foreign.test_litert_lm import conversations

QUESTION, ANSWER = "What is the capital of France?", "Paris"


@pytest.mark.grid
@pytest.mark.release  # takes minutes; test_litert_lm.py has the same target with small models
def test_answer_in_litert_lm(tmp_path: Path) -> None:
    file = need("gguf")
    need("litert-lm")
    bundle = export(file, tmp_path / "out", target="litert-lm", quantize="int8", capacity=128)
    ((turn,),) = conversations(bundle.path, None, [[QUESTION]])
    assert ANSWER in turn[1]


@pytest.mark.grid
@pytest.mark.slow
def test_answer_of_keras() -> None:
    pipe = kf.pipeline(need("gguf"), "text-generation")
    answer = pipe([{"role": "user", "content": QUESTION}], do_sample=False, return_full_text=False, max_new_tokens=24)
    assert answer[0]["generated_text"] == f"The capital of France is {ANSWER}."
