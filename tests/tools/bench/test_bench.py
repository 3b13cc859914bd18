"""The measuring loop with a simulated clock, figures, pictures, and `kerasformer bench` with tiny models."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.errors import CapacityError, InputError, KerasformerError, MissingExtraError
from kerasformer.tools.bench import BenchReport, bench
from kerasformer.tools.bench.card import write_speed
from kerasformer.tools.bench.machine import peak_mb
from kerasformer.tools.bench.question import Facts, Question, Tokens, Workload
from kerasformer.tools.bench.rounds import compared, in_turns
from kerasformer.tools.bench.speed_figures import Answers, percentiles, ratio, work_figures
from kerasformer.tools.bench.worker import CLOCKS, Sample, Worker, clock_of, serve, timed
from tests.core.cli.test_cli import main, word_tokenizer


class Clock:
    """Simulated clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Writer:
    """Subject that takes 2 s to import, 3 s to load, 0.5 s for the first token and 0.1 s for each further one."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def import_runtime(self):
        self.clock.now += 2

    def load(self, threads):
        self.clock.now += 3
        return Facts("fake", "text-generation", True, 64, size_mb=1.5)

    def answer(self, question, on_token):
        for index in range(question.write):
            self.clock.now += 0.1 if index else 0.5
            on_token()
        return Tokens(question.batch * question.read, question.batch * question.write)


def replies_of(subject, *questions: Question) -> list[dict]:
    sent = io.StringIO("".join(json.dumps(dataclasses.asdict(question)) + "\n" for question in questions))
    received = io.StringIO()
    serve(subject, None, sent, received, subject.clock)
    return [json.loads(line) for line in received.getvalue().splitlines()]


def test_the_worker_reports_times_marks_and_memory():
    opened, answer = replies_of(Writer(Clock()), Question(read=8, write=3, batch=2))
    assert (opened["import_s"], opened["load_s"]) == (2, 3)
    assert opened["facts"]["engine"] == "fake"
    assert answer["seconds"] == pytest.approx(0.7)
    assert answer["marks"] == pytest.approx([0.5, 0.6, 0.7])
    assert answer["tokens"] == [16, 6]
    assert answer["peak_mb"] >= opened["runtime_mb"] > 1


def test_the_worker_answers_after_a_batch_that_it_cannot_run():
    class Single(Writer):
        def answer(self, question, on_token):
            if question.batch > 1:
                raise ValueError("one text at a time")
            return super().answer(question, on_token)

    _, refused, answer = replies_of(Single(Clock()), Question(8, 3, batch=2), Question(8, 3))
    assert refused["error"] == {"kind": "ValueError", "message": "one text at a time"}
    assert answer["tokens"] == [8, 3]


def test_processor_time_does_not_pass_while_a_model_waits():
    class Sleeping(Writer):
        def answer(self, question, on_token):
            time.sleep(0.05)
            return super().answer(question, on_token)

    elapsed, busy = (timed(Sleeping(Clock()), Question(8, 3), clock_of(name)).seconds for name in CLOCKS)
    assert busy < 0.02 < 0.05 <= elapsed


def test_candidates_run_in_turns_that_go_back_and_forth(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    order: list[str] = []
    found = in_turns({name: lambda name=name: order.append(name) or len(order) for name in "abc"}, rounds=3)
    assert "".join(order) == "abccbaabc"
    assert found == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}
    assert len(pauses) == 9


class Opened:
    """Worker without a process, which answers at most `rows` texts."""

    import_s = load_s = runtime_mb = 1.0
    peak_mb = 2.0
    facts = Facts("fake", "text-classification", False)

    def __init__(self, name: str, order: list[str], rows: int = 9) -> None:
        self.name, self.order, self.rows = name, order, rows

    def answer(self, question):
        if question.batch > self.rows:
            raise CapacityError(f"at most {self.rows} texts")
        self.order.append(f"{self.name}{question.read}")
        return Sample(1.0, Tokens(question.read, 0))

    def close(self):
        self.order.append(f"{self.name} closed")


def test_the_first_run_is_separate_and_workers_are_closed(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    order: list[str] = []
    works = [Workload("short", (Question(4),)), Workload("texts", (Question(8), Question(9)))]
    figures, failures = compared({name: lambda name=name: Opened(name, order) for name in "ab"}, lambda facts: works, 2)
    assert order[:6] == ["a4", "a8", "a9", "b4", "b8", "b9"]
    assert order[6:] == ["a4", "b4", "b4", "a4", "a8", "a9", "b8", "b9", "b8", "b9", "a8", "a9", "b closed", "a closed"]
    assert [len(work.seconds) for work in figures[1].works] == [2, 2] and not failures


def test_a_subject_is_measured_in_what_it_can_run_and_only_required_ones_raise(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    works = [Workload("one", (Question(4),)), Workload("several", (Question(4, batch=2),))]

    def broken():
        raise MissingExtraError("not installed")

    candidates = {
        "all": lambda: Opened("all", []),
        "single": lambda: Opened("single", [], rows=1),
        "none": lambda: Opened("none", [], rows=0),
        "broken": broken,
    }
    figures, failures = compared(candidates, lambda facts: works, 1)
    assert [one.name for one in figures] == ["all", "single"]
    assert figures[1].failures == {"several": "at most 1 texts"}
    assert failures == {"none": "at most 0 texts", "broken": "not installed"}
    for name, error in {"single": CapacityError, "broken": MissingExtraError}.items():
        with pytest.raises(error):
            compared(candidates, lambda facts: works, 1, required=[name])


def test_figures_of_a_model_that_generates():
    subject = Writer(Clock())
    sample = timed(subject, Question(10, 6, batch=2), subject.clock)
    slower = Sample(2.0, sample.tokens, (1.0, 1.2, 1.4, 1.6, 1.8, 2.0))
    figures = work_figures("work", Answers([slower], [[sample], [slower], [sample]]))
    assert figures.best_s == figures.median_s == pytest.approx(1.0)
    assert figures.first_s == 2.0
    assert figures.tokens_s == figures.best_tokens_s == pytest.approx(12.0)
    assert figures.prefill_tokens_s == pytest.approx(20 / 0.5)
    assert figures.decode_tokens_s == pytest.approx(2 / 0.1)
    assert figures.first_token_ms.p50 == pytest.approx(500)
    assert (figures.latency_of, figures.latency_ms.p50) == ("token", pytest.approx(100))
    assert figures.latency_ms.p90 == pytest.approx(200)


def test_figures_are_averaged_over_texts():
    rounds = [
        [Sample(1.0, Tokens(5, 0)), Sample(4.0, Tokens(15, 0))],
        [Sample(2.0, Tokens(5, 0)), Sample(3.0, Tokens(15, 0))],
    ]
    figures = work_figures("texts", Answers(rounds[0], rounds))
    assert figures.best_s == (1.0 + 3.0) / 2
    assert figures.median_s == (1.5 + 3.5) / 2
    assert figures.tokens_s == pytest.approx(10 / 2.5)
    assert figures.decode_tokens_s is None
    assert figures.latency_of == "answer"


def test_percentiles_are_interpolated_and_ratios_computed_per_round():
    found = percentiles([0.004, 0.001, 0.002, 0.003, 0.005])
    assert (found.p50, found.p90) == pytest.approx((3.0, 4.6))
    assert found.p99 == pytest.approx(4.96)
    base, other = (
        work_figures("w", Answers([Sample(9.0, Tokens(1, 0))], [[Sample(s, Tokens(1, 0))] for s in seconds]))
        for seconds in ((4, 6, 9), (2, 1, 3))
    )
    assert ratio(base, other) == dataclasses.replace(ratio(base, other), best=4.0, median=3.0)


def test_memory_of_the_process_includes_allocated_arrays():
    before = peak_mb()
    held = np.ones(40_000_000 // 8)
    assert peak_mb() > before - 1 and peak_mb() > held.nbytes / 1e6


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    settings = {"hidden_dim": 12, "num_layers": 1, "num_heads": 3, "intermediate_dim": 16, "max_length": 16}
    model = kf.zoo.build("bert", task="text-classification", vocab_size=14, num_labels=3, **settings)
    model.tokenizer = word_tokenizer()
    return model.save_pretrained(tmp_path_factory.mktemp("bench") / "tiny-bert")


@pytest.fixture(scope="module")
def bundles(encoder):
    return [kf.export.export(encoder, encoder.parent / format, format) for format in ("onnx", "tflite")]


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    settings = {"hidden_dim": 12, "num_layers": 1, "num_heads": 3, "vocab_size": 40, "max_length": 24}
    model = kf.zoo.build("gpt2", **settings)
    return kf.export.export(model, tmp_path_factory.mktemp("bench") / "tiny-gpt2", "onnx")


@pytest.fixture(scope="module")
def report(bundles) -> BenchReport:
    return bench(bundles, rounds=2, compare=True, num_threads=1)


def test_two_bundles_are_compared(report, bundles):
    assert [one.name for one in report.subjects] == [str(folder) for folder in bundles]
    assert [one.engine for one in report.subjects] == ["onnx", "litert"]
    for one in report.subjects:
        (own,) = one.works
        assert own.work == "16 tokens"  # the default of 128 exceeds the maximum length of this model
        assert len(own.seconds) == 2 and own.best_s > 0 and own.tokens_s > 0
        assert one.model_mb == pytest.approx(one.peak_mb - one.runtime_mb)
        assert one.load_s > 0 and one.first_token_s > one.load_s and one.size_mb > 0
    first, second = (one.works[0] for one in report.subjects)
    assert first.ratio.best == first.ratio.median == 1.0
    assert second.ratio.best == pytest.approx(first.best_s / second.best_s)


def test_a_bundle_that_generates_reports_tokens(writer):
    (one,) = bench([writer], prompt_length=5, new_tokens=4, batch_size=2, rounds=2).subjects
    (own,) = one.works
    assert own.work == "5 tokens in, 4 out, batch 2"
    assert own.latency_of == "token"
    assert own.prefill_tokens_s > 0 and own.decode_tokens_s > 0
    assert own.ratio is None


def test_defaults_are_within_the_capacity(writer):
    (own,) = bench([writer], rounds=1).subjects[0].works
    assert own.work == "11 tokens in, 13 out"


def test_texts_are_tokenized_and_run_in_batches(bundles):
    (one,) = bench(bundles[:1], texts=["a good film", "", "the plot is bad and not a film"], rounds=1).subjects
    (own,) = one.works
    assert own.work == "2 texts"
    assert own.tokens_s * own.median_s == pytest.approx((5 + 10) / 2)


@pytest.mark.grid
@pytest.mark.slow
def test_a_keras_model_is_measured(encoder):
    (one,) = bench([encoder], lengths=[8], rounds=1).subjects
    assert (one.engine, one.works[0].work) == ("keras", "8 tokens")


def test_the_card_tells_engines_and_why_others_were_not_measured(writer, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(writer, folder)
    (folder / "genai_config.json").touch()  # invalid, if the engine is installed
    card = (folder / "README.md").read_text()
    for _ in range(2):
        found = bench([folder], new_tokens=4, rounds=1, engines=True)
        write_speed(folder, found)
    assert found.not_measured.keys() == {"onnxruntime-genai"}
    written = (folder / "README.md").read_text()
    assert written.count("## Speed") == 1 and written.startswith(card.rstrip())
    assert "onnxruntime-genai was not measured: " in written
    assert (folder / "genai_config.json").exists()
    bundle.read(folder)  # with checksums


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rounds": 0}, InputError, "rounds must be an integer of at least 1.*rounds=0"),
        ({"lengths": [4, -1]}, InputError, "lengths must be a list, each item an integer of at least 1.*-1"),
        ({"lengths": [17]}, CapacityError, "at most 16 tokens.*17"),
        ({"sources": []}, InputError, "Sources to measure were expected"),
    ],
)
def test_invalid_settings_raise(settings, error, message, bundles):
    with pytest.raises(error, match=message):
        bench(**{"sources": bundles[:1], **settings})


def test_invalid_comparisons_raise(bundles, writer):
    with pytest.raises(InputError, match="cannot be compared.*text-classification, text-generation"):
        bench([bundles[0], writer], compare=True)
    with pytest.raises(InputError, match="once"):
        bench([writer, writer])
    with pytest.raises(InputError, match="engines are compared with the files of one bundle"):
        bench([*bundles], engines=True)
    with pytest.raises(CapacityError, match="capacity of 24 tokens.*prompt_length=5, new_tokens=20"):
        bench([writer], prompt_length=5, new_tokens=20)


def test_errors_of_the_worker_keep_their_type_and_name_the_source(bundles):
    with pytest.raises(CapacityError, match=r"onnx: The model accepts at most 16 tokens"):
        bench(bundles[:1], texts=["good " * 40], rounds=1)


def test_the_log_of_a_crashed_worker_is_shown():
    code = "import os, sys; sys.stderr.write('out of memory'); sys.stderr.flush(); os._exit(3)"
    with pytest.raises(KerasformerError, match="gpt2: its process ended with status 3.*out of memory"):
        Worker("gpt2", [sys.executable, "-c", code])


def test_an_answer_with_a_wrong_length_raises():
    code = (
        "from dataclasses import asdict; import json, sys; from kerasformer.tools.bench.question import Facts\n"
        "say = lambda content: print(json.dumps(content), flush=True)\n"
        "say({'import_s': 0, 'load_s': 0, 'runtime_mb': 1, 'facts': asdict(Facts('fake', '', True))})\n"
        "input()\n"
        "say({'seconds': 1, 'tokens': [4, 7], 'marks': [], 'peak_mb': 2})"
    )
    worker = Worker("short", [sys.executable, "-c", code])
    try:
        with pytest.raises(KerasformerError, match="must generate 8 tokens for each of 1 inputs.*7 tokens"):
            worker.answer(Question(4, 8))
    finally:
        worker.close()


@pytest.mark.grid
def test_the_command_prints_tables_and_writes_json_and_a_picture(bundles, tmp_path, capsys):
    figures, picture = tmp_path / "figures.json", tmp_path / "bars.png"
    arguments = ["--rounds", "1", "--lengths", "8", "--json", str(figures), "--picture", str(picture)]
    assert main("bench", *map(str, bundles), "--compare", *arguments) == 0
    printed = capsys.readouterr().out
    assert "8 tokens" in printed and "litert" in printed and "× the first" in printed
    assert len(json.loads(figures.read_text())["subjects"]) == 2
    assert picture.stat().st_size > 10_000


def test_a_worker_needs_only_numpy():
    """It also runs in the environments of other libraries."""
    code = "import sys; sys.modules.update(dict.fromkeys(('tokenizers', 'keras', 'typer', 'rich'))); "
    subprocess.run([sys.executable, "-c", code + "import kerasformer.tools.bench.worker"], check=True)
