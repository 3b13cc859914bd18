"""`benchmarks.peers`: a variant that cannot run one workload is missing in the table of that workload only."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import NamedTuple

import pytest
import tokenizers

from benchmarks.peers import litert_lm_files, running
from benchmarks.peers.catalogue import LIBRARIES, library_of, peers_for, title_of
from benchmarks.peers.report import Results
from benchmarks.shapes import SHAPES
from kerasformer.bench.question import Facts, Question, Tokens
from kerasformer.bench.rounds import measure
from kerasformer.bench.run import with_ratios
from kerasformer.bench.speed_figures import subject_figures
from kerasformer.bench.worker import Sample
from kerasformer.errors import KerasformerError

SHAPE = "tiny-gpt2"
WORKS = SHAPES[SHAPE].works


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


def measured(*workers):
    answers = {worker.name: running._first_answers(worker, WORKS) for worker in workers}
    measure({worker.name: worker for worker in workers}, answers, WORKS, rounds=2, pause=lambda seconds: None)
    return with_ratios([subject_figures(worker, WORKS, answers[worker.name]) for worker in workers])


def test_a_variant_is_missing_only_where_it_cannot_answer(tmp_path):
    figures = measured(Runner("llama.cpp-q8_0", 0.5, rows=1), Runner("onnx-int8", 0.25, 8), Runner("tflite-int8", 1, 8))
    alone, several = (work.title for work in WORKS)
    assert figures[0].failures == {several: "llama.cpp-q8_0: at most 1 texts"}
    assert [[round(work.ratio.best, 2) for work in one.works] for one in figures] == [[1.0], [2.0, 1.0], [0.5, 0.25]]
    results = Results(2, 1, "processor")
    results.add(SHAPE, figures, {"genai-int8": "no environment"})
    results.write(tmp_path)
    text = (tmp_path / "peers.md").read_text()
    first, second, sizes = text.split("### ")[1:]
    assert "| llama.cpp Q8_0 |" in first and "× llama.cpp Q8_0" in first
    assert "| llama.cpp Q8_0 |" not in second and "× kerasformer ONNX Runtime int8" in second
    assert "- llama.cpp Q8_0 is missing: llama.cpp-q8_0: at most 1 texts" in second
    assert "| llama.cpp Q8_0 |" in sizes and "onnxruntime-genai int8 is not supported: no environment" in sizes
    assert "processor time" in text
    subjects = json.loads((tmp_path / "peers.json").read_text())["shapes"][SHAPE]["subjects"]
    assert subjects == [asdict(one) for one in figures]


def test_a_variant_that_answers_nothing_is_not_supported():
    with pytest.raises(running.UnsupportedError, match="at most 0 texts"):
        running._first_answers(Runner("llama.cpp-q8_0", 1, rows=0), WORKS)


def test_only_libraries_with_pytorch_put_waiting_threads_to_sleep(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert running._environment("transformers")["OMP_WAIT_POLICY"] == "PASSIVE"
    for name in ("llama.cpp-q8_0", "genai-int8", "tflite-int8", "keras"):
        assert "OMP_WAIT_POLICY" not in running._environment(name)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert running._environment("transformers")["OMP_WAIT_POLICY"] == "ACTIVE"


def test_each_id_is_a_word_for_litert_lm():
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(litert_lm_files._tokenizer(40)))
    assert tokenizer.encode("w7 w39 w0").ids == [7, 39, 0]
    assert tokenizer.decode([7, 39, 12]).count("w") == 3


def test_variants_with_other_settings_run_files_of_others():
    for shape in ("gpt2", "smollm2", "qwen2.5"):
        for name in peers_for(shape):
            library = LIBRARIES[library_of(name)]
            assert title_of(name) and library.files.get(name, name) in peers_for(shape)
            assert (name in library.threads) == ("one thread" in title_of(name))


@pytest.mark.parametrize("shape", ["gpt2", "smollm2", "qwen2.5"])
def test_language_models_are_asked_for_decode_and_prefill(shape):
    questions = [question for question in SHAPES[shape].questions if question.batch == 1]
    assert any(question.read == 32 and question.write >= 33 for question in questions)
    assert any(question.read == 512 for question in questions)
