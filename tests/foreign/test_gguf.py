"""A real file of llama.cpp: a chat model that keeps its answer in Keras, and in a bundle for LiteRT-LM."""

from __future__ import annotations

from pathlib import Path

import pytest

import kerasformer as kf
from tests.foreign.environments import need
from tests.foreign.test_litert_lm import conversations

QUESTION, ANSWER = "What is the capital of France?", "Paris"


@pytest.mark.grid
@pytest.mark.slow
def test_answers(tmp_path: Path) -> None:
    """The bundle is compared with Keras on the question alone; on 20 conversations, this takes minutes."""
    model = kf.zoo.load(need("gguf"))
    pipe, messages = kf.pipeline(model), [{"role": "user", "content": QUESTION}]
    answer = pipe(messages, do_sample=False, return_full_text=False, max_new_tokens=24)
    assert answer[0]["generated_text"] == f"The capital of France is {ANSWER}."
    need("litert-lm")
    sizes = {"capacity": 128, "prefill_lengths": [64]}
    kf.export.export(model, tmp_path / "out", target="litert-lm", quantize="int8", texts=[QUESTION], **sizes)
    ((turn,),) = conversations(tmp_path / "out", None, [[QUESTION]])
    assert ANSWER in turn[1]
