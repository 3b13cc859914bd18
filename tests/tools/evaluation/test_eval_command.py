"""`kerasformer eval` on classes: what it prints, draws and writes, its baselines, and broken rows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import kerasformer as kf
from kerasformer.cli import app
from kerasformer.errors import InputError
from kerasformer.export import reference_texts
from kerasformer.tools.evaluation import TaskEvaluation, examples, outcome, read_examples
from tests.core.export.text_models import shared_bundle

TEXTS = reference_texts.READING[:12]
LABELS = [index * index % 3 for index in range(12)]
CLASSIFIER, VECTORS = "bert-text-classification", "bert-sentence-similarity"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def write(path: Path, texts: list[str], labels: list[int]) -> Path:
    rows = [json.dumps({"text": text, "label": label}) for text, label in zip(texts, labels, strict=True)]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "dev.jsonl", list(TEXTS), LABELS)


def test_classes_errors_answers_and_pictures(data: Path, tmp_path: Path) -> None:
    source = str(shared_bundle(CLASSIFIER, "onnx"))
    found = outcome(kf.pipeline(source), list(TEXTS), LABELS)
    written, picture = tmp_path / "answers.jsonl", tmp_path / "confusion.svg"
    options = ["--data", data, "--errors", "2", "--show", "1", "--picture", picture, "--outputs", written]
    done = run("eval", source, *options)
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[1] == ["model", "accuracy", "f1", "matthews"]
    assert rows[2] == [source, *(f"{value:.2%}" for value in found.figures.values())]
    assert rows[3][0] == "majority (baseline)"
    assert rows[5] == ["class", "precision", "recall", "f1", "support"]
    assert [row[-1] for row in rows[6:11]] == [str(LABELS.count(index)) for index in range(5)]
    assert found.confusion is not None
    assert [list(map(int, row[1:])) for row in rows[13:18]] == found.confusion.counts.tolist()
    worst = np.argsort(-np.array(found.losses), kind="stable")[:2]
    assert rows[19] == ["loss", "expected", "received", "text"]
    assert [row[-1] for row in rows[20:22]] == [TEXTS[index] for index in worst]
    assert [row[0] for row in rows[20:22]] == [f"{found.losses[index]:.3f}" for index in worst]
    assert rows[22:] == [
        [TEXTS[0]], ["by", "text"], ["reference", "LABEL_0"], [source, found.answers[0]], ["majority", "1"],
    ]  # fmt: skip
    assert picture.read_text().startswith("<?xml")
    answers = [json.loads(line) for line in written.read_text().splitlines()]
    assert [row["generated"][source] for row in answers] == list(found.answers)
    report = json.loads(run("eval", source, "--data", data, "--errors", "2", "--json").stdout)
    assert report["systems"][0]["confusion"] == found.confusion.counts.tolist()
    assert report["systems"][0]["classes"][1]["support"] == LABELS.count(1)
    assert [row["text"] for row in report["errors"][source]] == [TEXTS[index] for index in worst]


def test_baselines_of_vectors_are_those_of_scikit_learn(data: Path, tmp_path: Path) -> None:
    texts = list(reference_texts.READING[12:32])
    labels = [len(text) % 3 for text in texts]
    train = write(tmp_path / "train.jsonl", texts, labels)
    encoder = str(shared_bundle(VECTORS, "onnx"))
    options = ["--task", "text-classification", "--data", data, "--baseline", encoder, "--set", f"train={train}"]
    done = run("eval", *options, "--json")
    assert done.exit_code == 0, done.output
    report = {each["name"]: each for each in json.loads(done.stdout)["systems"]}
    pipe = kf.pipeline(encoder)
    read, asked = pipe(texts), pipe(list(TEXTS))
    nearest = KNeighborsClassifier(5, metric="cosine").fit(read, labels)
    scaler = StandardScaler().fit(read)
    linear = LogisticRegression(max_iter=1000).fit(scaler.transform(read), labels)
    majority = max(set(labels), key=labels.count)
    expected = {
        "majority": np.mean(np.equal(LABELS, majority)),
        f"nearest neighbours: {encoder}": np.mean(nearest.predict(asked) == LABELS),
        f"logistic regression: {encoder}": np.mean(linear.predict(scaler.transform(asked)) == LABELS),
    }
    assert {name: each["accuracy"] for name, each in report.items()} == pytest.approx(expected)
    assert len(set(expected.values())) > 1


def test_probes_need_classes_and_vectors() -> None:
    classifier, encoder = (kf.pipeline(shared_bundle(name, "onnx")) for name in (CLASSIFIER, VECTORS))
    labelled = examples(list(TEXTS), LABELS)
    evaluation = TaskEvaluation("text-classification", labelled)
    with pytest.raises(InputError, match="at least two classes were expected. Received: 0"):
        evaluation.add_probes("", encoder, [])
    with pytest.raises(InputError, match="sentence-similarity or feature-extraction was expected"):
        evaluation.add_probes("", classifier, labelled)
    pairs = examples([{"text": "a", "pair": "b"}], [1])
    with pytest.raises(InputError, match="Vectors classify texts.*Received: sentence-similarity"):
        TaskEvaluation("sentence-similarity", pairs).add_probes("", encoder, pairs)


BROKEN = {
    "data.jsonl": (
        b'{"text": "Rain.", "label": 1}\n{"text": \n{"text": "", "label": 1}\n[1]\n{"text": "Sun.", "label": 0}\n'
        b'{"text": "Sn\xf6w.", "label": 0}\n{"text": "Fog."}\n{"text": "Hail.", "choices": 3, "label": 1}\n',
        ["line 2", "line 3", "line 4", "line 6", "line 8", "No label .*line 7"],
    ),
    "data.tsv": (
        b"text\tlabel\nRain.\t1\nFog.\n \t1\nSun.\t0\nSn\xf6w.\t1\nHail.\t\n",
        ["2 columns. Received: 1 .*line 3", "line 4", "line 6", "No label .*line 7"],
    ),
    "data.csv": (
        b'text,label\nRain.,1\n"Fo"g.,1\nSun.,0\n',
        ["cannot be read.*line 3"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rows_are_errors_or_skipped_and_counted(tmp_path: Path, name: str) -> None:
    content, problems = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=problems[0]):
        read_examples(tmp_path / name)
    read = read_examples(tmp_path / name, skip_bad=True)
    assert [(each.text, str(each.label)) for each in read] == [("Rain.", "1"), ("Sun.", "0")]
    assert len(read.skipped) == len(problems)
    for problem, skipped in zip(problems, read.skipped, strict=True):
        assert re.search(problem, skipped) and name in skipped
    done = run("eval", shared_bundle(CLASSIFIER, "onnx"), "--data", tmp_path / name, "--skip-bad", "--json")
    assert json.loads(done.stdout)["skipped"] == len(problems)
    count = len(problems)
    assert f"{count} of {count + 2} rows were skipped. The first: " in done.stderr


def test_labels_that_the_model_lacks_are_no_broken_rows(tmp_path: Path) -> None:
    data = write(tmp_path / "dev.jsonl", ["Rain.", "Sun."], [1, 7])
    done = run("eval", shared_bundle(CLASSIFIER, "onnx"), "--data", data, "--skip-bad")
    assert done.exit_code == 1
    assert "A label must be one of LABEL_0" in done.stderr and "dev.jsonl, line 2" in done.stderr


def test_bundles_are_evaluated_without_keras(data: Path) -> None:
    source = str(shared_bundle(CLASSIFIER, "onnx"))
    program = (
        "import sys; from kerasformer.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "print([name for name in ('keras', 'tensorflow', 'torch', 'sklearn') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "eval", source, "--data", str(data), "--errors", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
