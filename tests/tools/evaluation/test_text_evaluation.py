"""Summaries and translations of Keras models and bundles, scored beside the baselines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import kerasformer as kf
from kerasformer.cli import app
from kerasformer.errors import CapacityError, InputError, MissingExtraError
from kerasformer.export import reference_texts
from kerasformer.tools.evaluation import Example, TextEvaluation, examples, lead, metrics, tldr
from kerasformer.tools.evaluation.text_evaluation import score
from tests.core.export.text_models import CAPACITY, shared_bundle, shared_model
from tests.keras_pipelines import keras_pipeline

WRITER, DECODER = "bart-text2text-generation", "gpt2-text-generation"
FORMATS = ("tflite", "onnx")
TEXTS = reference_texts.READING[:6]
# References that share words with what tiny models write: parts of the texts.
DATA = examples(TEXTS, [[" ".join(text.split()[:6]), text[::2]] for text in TEXTS])
SHORT = {"max_new_tokens": 12, "num_beams": 2}


def run(*arguments: str) -> Any:
    from typer.testing import CliRunner

    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of the examples."""
    path = tmp_path / "data.jsonl"
    rows = [{"article": each.text, "summary": each.label} for each in DATA]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("task", ["summarization", "translation"])
def test_a_keras_model_and_its_bundles_have_equal_scores(task: str) -> None:
    evaluation = TextEvaluation(task, DATA)
    keras_pipe = keras_pipeline(shared_model(WRITER), task)
    done: list[tuple[int, int]] = []
    model = evaluation.add_model("keras", keras_pipe, SHORT, batch_size=4, progress=lambda *row: done.append(row))
    assert done == [(4, 6), (6, 6)]
    texts = [next(iter(row.values())) for row in keras_pipe(list(TEXTS), **SHORT)]
    assert list(model.texts) == texts
    assert len(set(texts)) > 2, "the texts do not affect the answers"
    for format in FORMATS:
        bundle = evaluation.add_model(format, kf.pipeline(shared_bundle(WRITER, format), task), SHORT)
        assert (bundle.texts, bundle.figures) == (model.texts, model.figures)
        assert bundle.engine != model.engine == "keras"
    evaluation.add_baselines()
    (baseline,) = [each for each in evaluation.systems if each.is_baseline]
    copied = {"summarization": tuple(map(lead, TEXTS)), "translation": tuple(TEXTS)}
    assert (baseline.name, baseline.texts) == ({"summarization": "lead-3"}.get(task, "source"), copied[task])
    for system in (model, baseline):
        assert system.figures == score(task, system.texts, [each.label for each in DATA]).figures
    report = json.loads(json.dumps(evaluation.to_dict()))
    assert [each["name"] for each in report["systems"]] == ["keras", *FORMATS, baseline.name]
    assert report["systems"][0]["settings"] == SHORT and report["systems"][-1]["engine"] is None
    assert all(re.search(r"version:\d", signature) for signature in report["signatures"].values())
    assert set(report["signatures"]) == ({"rouge"} if task == "summarization" else {"bleu", "chrf"})


@pytest.mark.parametrize(
    ("received", "expected"),
    [("It rains. Dr. Who left.", "Dr. Who left. It rains."), ("It rains. Dr. Who left.", "Dr Who left it rains")],
)
def test_sentences_of_one_line_are_compared_as_lines(received: str, expected: str) -> None:
    """ROUGE-Lsum of the same sentences in another order is 1; the rest is as without line ends."""
    figures = score("summarization", [received], [[expected]]).figures
    plain = metrics.rouge([received], [[expected]]).figures
    assert figures == {**plain, "rougeLsum": 1}
    assert plain["rougeLsum"] == plain["rougeL"] < 1
    lines = received.replace(". Dr", ".\nDr")
    assert score("summarization", [lines], [[expected]]).figures == figures


class Recording:
    """A pipeline that records its calls."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def __call__(self, inputs: list[str], **settings: Any) -> Any:
        self.calls.append((inputs, settings))
        return self.pipe(inputs, **settings)


def test_tldr_continues_texts_that_fit() -> None:
    pipe = Recording(kf.pipeline(shared_bundle(DECODER, "tflite")))
    short, long, emoji = texts = ["Rain.", " ".join(TEXTS), "🤖" * 60]  # an emoji has several tokens
    summaries = tldr(pipe, texts, batch_size=2)
    calls = [inputs for inputs, _ in pipe.calls]
    ((prompt_of_long, prompt_of_emoji), (prompt_of_short,)) = calls  # texts of similar length together
    assert prompt_of_short == "Rain.\nTL;DR:"
    for text, prompt in [(long, prompt_of_long), (emoji, prompt_of_emoji)]:
        assert prompt.endswith("\nTL;DR:") and text.startswith(prompt.removesuffix("\nTL;DR:"))
        assert CAPACITY // 2 - 4 < len(pipe.tokenizer.encode(prompt)) <= CAPACITY // 2
    settings = {"do_sample": True, "top_k": 2, "seed": 0, "max_new_tokens": CAPACITY // 2}
    assert all(settings.items() <= call.items() for _, call in pipe.calls)
    written = [row[0]["generated_text"] for inputs in calls for row in pipe(inputs, return_full_text=False, **settings)]
    assert [summaries[texts.index(text)] for text in (long, emoji, short)] == [lead(text) for text in written]


def test_a_cache_without_space_for_tldr() -> None:
    pipe = kf.pipeline(shared_bundle(DECODER, "tflite"))

    class Short:
        task, tokenizer = pipe.task, pipe.tokenizer

        class model:  # noqa: N801
            capacity = 6

    with pytest.raises(CapacityError, match="no space for a text and its summary.*Received: 3"):
        tldr(Short(), [TEXTS[0]])


def test_the_command_prints_baselines_beside_the_models(data: Path, tmp_path: Path) -> None:
    writers = [str(shared_bundle(WRITER, format)) for format in FORMATS]
    decoder = str(shared_bundle(DECODER, "onnx"))
    settings = [f"--set={name}={value}" for name, value in SHORT.items()]
    written = tmp_path / "texts.jsonl"
    options = ["--baseline", decoder, "--data", str(data), "--limit", "4", "--outputs", str(written), *settings]
    done = run("eval", *writers, *options, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["texts"], report["task"], report["data"]) == (4, "summarization", str(data))
    names = [*writers, "lead-3", f"TL;DR: {decoder}"]
    assert [each["name"] for each in report["systems"]] == names
    assert [each["baseline"] for each in report["systems"]] == [False, False, True, True]
    evaluation = TextEvaluation("summarization", DATA[:4])
    figures = evaluation.add_model("", kf.pipeline(writers[0], "summarization"), SHORT).figures
    assert all({name: each[name] for name in figures} == figures for each in report["systems"][:2])
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert [row["text"] for row in rows] == list(TEXTS[:4]) and rows[0]["references"] == DATA[0].label
    assert [row["generated"][writers[0]] for row in rows] == list(evaluation.systems[0].texts)
    assert list(rows[0]["generated"]) == names
    lines = [line.split("\t") for line in run("eval", *writers, *options).stdout.splitlines()]
    assert lines[0] == [f"summarization on 4 texts of {data}"]
    assert lines[1] == ["model", "rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert [line[0] for line in lines[2:6]] == [*writers, "lead-3 (baseline)", f"TL;DR: {decoder} (baseline)"]
    assert lines[2][1] == f"{figures['rouge1']:.2%}"
    assert lines[6] == [f"rouge: {report['signatures']['rouge']}"]


def test_parallel_files_and_baselines_alone(tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("The dog runs.\nIt rains in Paris.\n")
    (tmp_path / "test.de").write_text("Der Hund rennt.\nEs regnet in Paris.\n")
    (tmp_path / "other.de").write_text("\nIn Paris regnet es.\n")
    files = ["--data", str(tmp_path / "test.en"), "--references", str(tmp_path / "test.de")]
    report = json.loads(run("eval", "--task", "translation", *files, "--json").stdout)
    (source,) = report["systems"]
    scores = sacrebleu.corpus_chrf(
        ["The dog runs.", "It rains in Paris."], [["Der Hund rennt.", "Es regnet in Paris."]]
    )
    assert (source["name"], source["chrf"]) == ("source", pytest.approx(scores.score / 100))
    assert "nrefs:1|" in report["signatures"]["bleu"]
    several = run("eval", "--task", "translation", *files, "--references", str(tmp_path / "other.de"), "--json")
    assert "nrefs:var|" in json.loads(several.stdout)["signatures"]["bleu"]
    tokenized = run("eval", "--task", "translation", *files, "--set", "bleu_tokenizer=intl").stdout
    assert "tok:intl|" in tokenized


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("WRITER",), "Pass --data …"),
        (("CLASSIFIER", "--data", "DATA", "--set", "num_beams=2"), "settings: only for summ.*task text-classification"),
        (("--data", "DATA", "--task", "text-generation"), "no baselines without a model"),
        (("--data", "DATA", "--task", "translation", "--baseline", "DECODER"), "TL;DR: is a baseline of summarization"),
        (("CLASSIFIER", "--data", "DATA", "--glue", "colla"), "glue must be one of cola, .*Did you mean cola"),
        (("WRITER", "--data", "DATA", "--text-column", "title"), "named title.*article, summary.*text_column=…"),
        (("WRITER", "--data", "DATA", "--set", "num_beam=2"), "Did you mean num_beams"),
        (("--task", "translation", "--data", "DATA", "--outputs", "/nowhere/out.jsonl"), "--outputs must be the path"),
        (
            ("--task", "translation", "--data", "LINES", "--references", "LINES", "--text-column", "1"),
            "without columns",
        ),
    ],
)  # fmt: skip
def test_errors_are_one_line(arguments: Sequence[str], message: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.en").write_text("One.\nTwo.\n")
    paths = {
        "WRITER": shared_bundle(WRITER, "onnx"),
        "DECODER": shared_bundle(DECODER, "onnx"),
        "CLASSIFIER": shared_bundle("bert-text-classification", "onnx"),
        "DATA": data,
        "LINES": tmp_path / "lines.en",
    }
    done = run("eval", *(str(paths.get(argument, argument)) for argument in arguments))
    assert done.exit_code == 1
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.parametrize("label", [None, "", " ", [], [""], 3, ["a", 3], {"a": 1}])
def test_a_missing_or_invalid_reference_raises(label: Any) -> None:
    with pytest.raises(InputError, match="Each text needs a reference.*text 2 of 2"):
        TextEvaluation("translation", [Example("Rain.", "Regen."), Example("Sun.", label)])


def test_missing_packages_and_wrong_models(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = kf.pipeline(shared_bundle(WRITER, "onnx"), "summarization")
    with pytest.raises(InputError, match="A model for translation was expected. Received: a model for summarization"):
        TextEvaluation("translation", DATA).add_model("", pipe)
    with pytest.raises(InputError, match="TL;DR: is a baseline of summarization"):
        TextEvaluation("translation", DATA).add_tldr("", pipe)
    with pytest.raises(InputError, match="letters a to z"):
        TextEvaluation("summarization", [Example("Собака бежит.", "Собака.")])
    for task, module in [("summarization", "rouge_score"), ("translation", "sacrebleu")]:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=rf'{module} is required.*pip install -e "\.\[metrics\]"'):
            TextEvaluation(task, DATA)
