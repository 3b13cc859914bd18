"""`kerasformer shrink` makes models of all kinds small, and continues after it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

import kerasformer as kf
from kerasformer import zoo
from kerasformer.cli.app import app
from kerasformer.errors import CheckpointError, InputError
from kerasformer.models.loading import load
from kerasformer.models.variables import variables_by_path
from kerasformer.tools.training import shrink
from kerasformer.tools.training.static_embeddings import load_teacher, smooth_inverse_frequencies
from kerasformer.zoo import SentenceSettings
from tests import tiny_text
from tests.grids import grid

TEXTS = tiny_text.CORPUS[:9]
MODELS: dict[str, tuple[Any, ...]] = {
    "bert": (
        "text-classification",
        tiny_text.wordpiece,
        {"intermediate_dim": 48, "max_length": 64, "hidden_dropout": 0.0, "attention_dropout": 0.0},
        {"neurons": 24, "vocab": 1.0},
    ),
    "gpt2": (
        "text-generation",
        tiny_text.byte_pairs,
        {"max_length": 64, "residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0},
        {"layers": "1", "neurons": 24, "importance": "data"},
    ),
    "t5": (
        "text2text-generation",
        tiny_text.pieces,
        {"intermediate_dim": 48, "head_dim": 8, "dropout": 0.0},
        {"decoder_layers": 1, "heads": 1, "quantize": "int4"},
    ),
}
SETTINGS = {"epochs": 3, "batch_size": 4, "max_length": 16, "learning_rate": 1e-2}


class Killed(Exception):
    """What stops a run."""


@pytest.fixture
def prepared(tmp_path: Path) -> Any:
    """Returns a function that writes a model and a file of texts, and returns the options."""

    def prepare(name: str) -> dict[str, Any]:
        task, tokenizer, sizes, cuts = MODELS[name]
        vocabulary = tokenizer()
        size = {"hidden_dim": 24 if name != "t5" else 64, "num_layers": 1 + (name != "bert"), "num_heads": 2}
        keras.utils.set_random_seed(0)
        model = zoo.build(name, task, **size, **sizes, vocab_size=vocabulary.vocab_size)
        model.tokenizer = vocabulary
        model.save_pretrained(tmp_path / "model")
        lines = [f"{text}\t{index % 2}" for index, text in enumerate(TEXTS)] if name == "bert" else TEXTS
        (tmp_path / "texts.tsv").write_text("\n".join(lines), encoding="utf-8")
        return cuts

    return prepare


def test_static_embeddings(tmp_path: Path) -> None:
    """The table has the vectors of tokens as texts, but for the rotation and the weights, and needs no layers."""
    tokenizer = tiny_text.wordpiece()
    keras.utils.set_random_seed(0)
    sentence = SentenceSettings(steps=("normalize",), similarity="dot")
    sizes = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "intermediate_dim": 32, "max_length": 64}
    model = zoo.build("bert", "sentence-similarity", sentence=sentence, vocab_size=tokenizer.vocab_size, **sizes)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="width must be from 1 to 24.*Received: width=256"):
        shrink(tmp_path / "model", tmp_path / "static", to="static")
    with pytest.raises(InputError, match="to='static' has only the options width and sif.*Received: layers"):
        shrink(tmp_path / "model", tmp_path / "static", to="static", layers=1)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:5]), encoding="utf-8")
    steps = shrink(tmp_path / "model", tmp_path / "static", tmp_path / "texts.txt", to="static", width=24, sif=0.0)
    assert [step.name for step in steps] == ["original", "static"]
    assert steps[1].parameters == 24 * tokenizer.vocab_size and steps[1].figures["spearman"] > 0
    static = kf.pipeline(tmp_path / "static")
    assert static.embedding.similarity == "dot" and "base_model" in (tmp_path / "static" / "README.md").read_text()
    # All components and equal weights: only the mean is gone, so that distances of tokens are those of the model.
    words = [token for token in tokenizer.get_vocab() if token.isalpha() and len(tokenizer.encode(token)) == 3][:8]
    vectors = np.stack([pipe.encode(words) for pipe in (kf.pipeline(load_teacher(tmp_path / "model")), _raw(static))])
    distances = np.linalg.norm(vectors[:, :, None] - vectors[:, None], axis=-1)
    np.testing.assert_allclose(distances[1], distances[0], atol=2e-3 * distances[0].max())
    assert smooth_inverse_frequencies(3, 1e-4) == pytest.approx(1e-4 / (1e-4 + np.array([6, 4, 3]) / 13))


def _raw(pipe: Any) -> Any:
    """Returns the pipeline of the same table without normalization."""
    return kf.pipeline(load(pipe.model.model.source, sentence=SentenceSettings()))


@pytest.mark.parametrize("name", grid(MODELS, always=("bert",), others="release"))
def test_a_run_that_was_killed_continues(name: str, prepared: Any, tmp_path: Path) -> None:
    cuts, last = prepared(name), {"bert": "neurons", "gpt2": "neurons", "t5": "int4"}[name]
    arguments = tmp_path / "model", tmp_path / "small", tmp_path / "texts.tsv"
    seen: list[tuple[str, int]] = []

    def kill(stage: str, done: int, total: int) -> None:
        if (stage, done) == (last, 2):
            raise Killed

    with pytest.raises(Killed):
        shrink(*arguments, **SETTINGS, **cuts, progress=kill)
    assert not (tmp_path / "small").exists()
    steps = shrink(*arguments, **SETTINGS, **cuts, progress=lambda stage, done, total: seen.append((stage, done)))
    names = [step.name for step in steps]
    assert names[0] == "original" and names[-1] == last
    assert [epoch for stage, epoch in seen if stage == last][1:] == [2]  # the first one announces the step
    assert all((f"{each}: read", 0) in seen for each in names[1:-1])
    assert steps[-1].parameters < steps[0].parameters and steps[-1].figures["divergence"] >= 0
    if name != "bert":
        return
    whole = shrink(arguments[0], tmp_path / "whole", arguments[2], **SETTINGS, **cuts)
    assert [step.figures for step in whole] == [pytest.approx(step.figures, rel=1e-4) for step in steps]
    continued, uninterrupted = (variables_by_path(zoo.load(tmp_path / each)) for each in ("small", "whole"))
    for path, variable in uninterrupted.items():
        np.testing.assert_allclose(np.asarray(continued[path]), np.asarray(variable), atol=1e-6, err_msg=path)


LABELLED = {
    "token-classification": (
        lambda text: {
            "text": text.split()[:4],
            "label": ["LABEL_1", "LABEL_0", "LABEL_1", "LABEL_1"][: len(text.split())],
        },
        "accuracy",
    ),
    "question-answering": (
        lambda text: {"question": "Who?", "context": text, "answers": {"text": [text.split()[1]]}},
        "exact_match",
    ),
    "text-classification": (lambda text: {"text": text, "label": float(len(text) > 40)}, "pearson"),
}


@pytest.mark.parametrize("task", grid(LABELLED, always=("token-classification",), others="release"))
def test_labels_teach_what_the_original_does_not_know(task: str, tmp_path: Path) -> None:
    row, figure = LABELLED[task]
    vocabulary = tiny_text.wordpiece()
    size = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "intermediate_dim": 48, "max_length": 64}
    problem = {"problem_type": "regression", "id2label": {0: "length"}} if task == "text-classification" else {}
    keras.utils.set_random_seed(1)  # a new model that knows little: some have 0.7 by chance
    model = zoo.build("bert", task, **size, **problem, vocab_size=vocabulary.vocab_size)
    model.tokenizer = vocabulary
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps(row(text)) for text in TEXTS), encoding="utf-8")
    settings = {**SETTINGS, "epochs": 8, "held_out": 0.0, "neurons": 24, "max_length": 32}
    arguments = tmp_path / "model", tmp_path / "small", tmp_path / "texts.jsonl"
    original, taught = shrink(*arguments, **settings, hard_weight=100.0)
    assert original.figures[figure] < 0.7 < taught.figures[figure]


@pytest.mark.grid
@pytest.mark.parametrize("name", ["gpt2", pytest.param("t5", marks=pytest.mark.release)])
def test_writers_learn_from_what_they_are_to_write(name: str, prepared: Any, tmp_path: Path) -> None:
    """A decoder from the next tokens of its texts, an encoder-decoder from the labels."""
    prepared(name)
    rows = [json.dumps({"text": text, **({"label": "a good film"} if name == "t5" else {})}) for text in TEXTS]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows), encoding="utf-8")
    settings = {**SETTINGS, "epochs": 12, "held_out": 0.0, "max_length": 32, "layers": "1"}
    shrink(tmp_path / "model", tmp_path / "small", tmp_path / "texts.jsonl", **settings, hard_weight=100.0)
    if name == "gpt2":
        before, after = (kf.evaluate(tmp_path / each, tmp_path / "texts.jsonl") for each in ("model", "small"))
        assert after["perplexity"] < before["perplexity"] / 4
    else:
        before, after = (kf.pipeline(tmp_path / each)(TEXTS[0], max_new_tokens=12) for each in ("model", "small"))
        assert "a good film" in str(after) and "a good film" not in str(before)


@pytest.mark.grid
def test_rounded_weights_alone(prepared: Any, tmp_path: Path) -> None:
    prepared("t5")
    arguments = tmp_path / "model", tmp_path / "small", tmp_path / "texts.tsv"
    steps = shrink(*arguments, **{**SETTINGS, "epochs": 1}, quantize="int4", format="onnx")
    assert [step.name for step in steps] == ["original", "int4"] and steps[0].parameters == steps[1].parameters
    before, after = (variables_by_path(zoo.load(folder)) for folder in arguments[:2])
    assert any(not np.array_equal(np.asarray(before[path]), np.asarray(after[path])) for path in before)
    assert 0 < steps[1].figures["divergence"] < 1


@pytest.mark.grid
def test_command(prepared: Any, tmp_path: Path) -> None:
    prepared("bert")
    options = ["--neurons", "24", "--epochs", "1", "--set", "max_length=16", "--batch-size", "8"]
    command = ["shrink", *map(str, (tmp_path / "model", tmp_path / "small")), "--data", str(tmp_path / "texts.tsv")]
    result = CliRunner().invoke(app, [*command, *options, "--json"])
    assert result.exit_code == 0, result.output
    steps = json.loads(result.stdout)["steps"]
    assert [step["name"] for step in steps] == ["original", "neurons"]
    assert steps[1]["figures"].keys() == {"agreement", "divergence", "accuracy", "f1", "matthews"}
    assert steps[1]["parameters"] == steps[0]["parameters"] - 24 * 49
    assert steps[1]["int8_bytes"] < steps[0]["int8_bytes"] and steps[1]["milliseconds"] > 0
    (tmp_path / "small" / "config.json").rename(tmp_path / "config.json")
    assert json.loads((tmp_path / "config.json").read_text())["intermediate_size"] == 24


def test_errors(prepared: Any, tmp_path: Path) -> None:
    prepared("bert")
    arguments = tmp_path / "model", tmp_path / "small", tmp_path / "texts.tsv"
    for options, message in [
        ({}, "none of layers"),
        ({"quantize": "int2"}, "quantize must be"),
    ]:
        with pytest.raises(InputError, match=message):
            shrink(*arguments, **options)
    with pytest.raises(CheckpointError, match="empty folder"):
        shrink(tmp_path / "model", tmp_path / "model", tmp_path / "texts.tsv", layers=1)
    (tmp_path / "texts.tsv").write_text("A warm film.\tgreat\nA cold film.\tgreat\n", encoding="utf-8")
    with pytest.raises(InputError, match="great"):
        shrink(*arguments, layers=1)
