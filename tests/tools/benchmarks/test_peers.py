"""`benchmarks.peers`: a variant that cannot run one workload is missing in the table of that workload only."""

from __future__ import annotations

import argparse
import json
import time
from typing import NamedTuple

import pytest
import tokenizers

from benchmarks.peers import our_files, running
from benchmarks.peers.__main__ import text
from benchmarks.peers.catalogue import peers_for, title_of
from benchmarks.shapes import SHAPES
from kerasformer.errors import KerasformerError
from kerasformer.tools.bench.question import Facts, Question, Tokens
from kerasformer.tools.bench.worker import Sample

SHAPE = "tiny-gpt2"


class Runner(NamedTuple):
    """Worker without a process, which takes the same time for each token of at most `rows` texts."""

    name: str
    seconds: float
    rows: int
    facts: Facts = Facts("fake", "text-generation", True)
    import_s: float = 1.0
    load_s: float = 1.0
    runtime_mb: float = 1.0
    peak_mb: float = 2.0

    def answer(self, question: Question) -> Sample:
        if question.batch > self.rows:
            raise KerasformerError(f"{self.name}: at most {self.rows} texts")
        marks = tuple(self.seconds * (number + 1) for number in range(question.write))
        return Sample(marks[-1], Tokens(question.read * question.batch, question.write * question.batch), marks)

    def close(self) -> None:
        pass


def test_a_variant_is_missing_only_where_it_cannot_answer(tmp_path, monkeypatch):
    runners = [Runner("llama.cpp-q8_0", 0.5, 1), Runner("onnx-int8", 0.25, 8), Runner("tflite-int8", 1, 8)]
    workers = {runner.name: runner for runner in [*runners, Runner("llama.cpp-q4_0", 1, 0)]}

    def opened(options, shape, name):
        if name not in workers:
            raise running.UnsupportedError("no environment")
        return workers[name]

    (tmp_path / SHAPE / "checkpoint").mkdir(parents=True)
    monkeypatch.setattr(running, "opened", opened)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    options = argparse.Namespace(folder=tmp_path, rounds=2, threads=1, clock="processor")
    report = running.run(options, SHAPE, [*workers, "genai-ours-int8"])
    figures, (alone, several) = report.subjects, (work.title for work in SHAPES[SHAPE].works)
    assert figures[0].failures == {several: "llama.cpp-q8_0: at most 1 texts"}
    assert [[round(work.ratio.best, 2) for work in one.works] for one in figures] == [[1.0], [2.0, 1.0], [0.5, 0.25]]
    written = text(report)
    first, second, sizes = written.split("### ")[1:]
    assert first.startswith(alone) and "| llama.cpp Q8_0 |" in first
    assert second.startswith(several) and "| llama.cpp Q8_0 |" not in second
    assert "- llama.cpp Q8_0 is missing: llama.cpp-q8_0: at most 1 texts" in second
    assert "| llama.cpp Q8_0 |" in sizes and "onnxruntime-genai, our file in int8 is not supported: no environ" in sizes
    assert "llama.cpp Q4_0 is not supported: llama.cpp-q4_0: at most 0 texts" in sizes
    assert "Processor time" in written
    assert json.loads(report.to_json())["subjects"][0]["name"] == title_of("llama.cpp-q8_0")


def test_only_libraries_with_pytorch_put_waiting_threads_to_sleep(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert running._environment("transformers")["OMP_WAIT_POLICY"] == "PASSIVE"
    for name in ("llama.cpp-q8_0", "genai-ours-int8", "tflite-int8", "keras"):
        assert "OMP_WAIT_POLICY" not in running._environment(name)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert running._environment("transformers")["OMP_WAIT_POLICY"] == "ACTIVE"


def test_each_id_is_a_word_for_litert_lm():
    tokenizer = tokenizers.Tokenizer.from_str(our_files._words(40))
    assert tokenizer.encode("w7 w39 w0").ids == [7, 39, 0]
    assert tokenizer.decode([7, 39, 12]).count("w") == 3


def test_every_variant_has_a_title():
    assert all(title_of(name) for shape in SHAPES for name in peers_for(shape))


@pytest.mark.parametrize("shape", ["gpt2", "smollm2", "qwen2.5"])
def test_language_models_are_asked_for_decode_and_prefill(shape):
    questions = [question for question in SHAPES[shape].questions if question.batch == 1]
    assert any(question.read == 32 and question.write >= 33 for question in questions)
    assert any(question.read == 512 for question in questions)
