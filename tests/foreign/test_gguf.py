"""A real file of llama.cpp, exported for LiteRT-LM and onnxruntime-genai: a chat model that keeps its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.bundle import Bundle
from kerasformer.export import export
from tests.foreign.environments import need, run
from tests.foreign.test_genai import answers
from tests.foreign.test_litert_lm import conversations

QUESTION, ANSWER = "What is the capital of France?", "Paris"
NEW = 24


def in_litert_lm(bundle: Bundle) -> str:
    """Returns the answer of LiteRT-LM."""
    ((turn,),) = conversations(bundle.path, None, [[QUESTION]])
    return turn[1]


def in_genai(bundle: Bundle) -> str:
    """Returns the answer of onnxruntime-genai, to the text of its own chat template."""
    (prompt,) = answers_to_chats(bundle.path)
    ((new,),) = [answer["new"] for answer in answers(bundle.path, {"texts": [prompt], "new_tokens": NEW, "top_k": 1})]
    return kf.Tokenizer.load(bundle.path).decode(new, skip_special_tokens=True)


def answers_to_chats(folder: Path) -> list[str]:
    """Returns the text of the conversation in the runtime."""
    request = {"folder": str(folder), "chats": [[{"role": "user", "content": QUESTION}]]}
    reply = run("genai", "genai_generate.py", request)
    assert "error" not in reply, reply["error"]
    return reply["answers"]


ASK: dict[str, Callable[[Bundle], str]] = {"litert-lm": in_litert_lm, "genai": in_genai}


@pytest.mark.grid
@pytest.mark.slow
@pytest.mark.parametrize(("target", "quantize"), [("litert-lm", "int8"), ("genai", "int4")])
def test_answer(target: str, quantize: str, tmp_path: Path) -> None:
    file = need("gguf")
    need(target)
    bundle = export(file, tmp_path / "out", target=target, quantize=quantize, capacity=128)
    assert ANSWER in ASK[target](bundle)


@pytest.mark.grid
@pytest.mark.slow
def test_answer_of_keras() -> None:
    pipe = kf.pipeline(need("gguf"), "text-generation")
    answer = pipe([{"role": "user", "content": QUESTION}], do_sample=False, return_full_text=False, max_new_tokens=NEW)
    assert answer[0]["generated_text"] == f"The capital of France is {ANSWER}."
