"""A real file of llama.cpp: a chat model that keeps its answer in Keras, and in a bundle for LiteRT-LM."""

from __future__ import annotations

import pytest

import kerasformer as kf
from tests.foreign.environments import need

QUESTION, ANSWER = "What is the capital of France?", "Paris"


@pytest.mark.grid
@pytest.mark.slow
def test_answer_of_keras() -> None:
    pipe = kf.pipeline(need("gguf"), "text-generation")
    answer = pipe([{"role": "user", "content": QUESTION}], do_sample=False, return_full_text=False, max_new_tokens=24)
    assert answer[0]["generated_text"] == f"The capital of France is {ANSWER}."
