"""References of a Keras model, and the verification of exported models."""

from __future__ import annotations

import json
import resource
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle.recipes import RECIPES
from kerasformer.cli import app
from kerasformer.engines import open_engine
from kerasformer.engines.fidelity import verification
from kerasformer.errors import BundleError, ExportError, ExportMismatchError, InputError
from kerasformer.export import reference_texts as texts
from kerasformer.export import references as reference_answers
from kerasformer.export import verify
from tests.core.export.text_models import CAPACITY, LENGTHS, shared_bundle, shared_model

CLASSIFIER, WRITER, SUMMARIZER = "bert-text-classification", "gpt2-text-generation", "t5-text2text-generation"


def run(*arguments: str) -> Any:
    from typer.testing import CliRunner

    return CliRunner().invoke(app, list(arguments))


# References.


@pytest.mark.parametrize("format", ["tflite", "onnx"])
@pytest.mark.parametrize("name", [WRITER, SUMMARIZER])
def test_a_generating_model_continues_20_prompts(name, format):
    folder = shared_bundle(name, format)
    references, figures = bundle.read_references(folder), bundle.read(folder).fidelity
    count = len(references["tokens"])
    assert count == 20 or (name == SUMMARIZER and count == 21)  # and a text for a length that none of them has
    assert references["tokens"].shape == (count, min(reference_answers.GENERATED, CAPACITY // 2))
    assert references["output.logits.values"].shape == (*references["tokens"].shape, 64)
    assert figures["generated"] == 1.0
    assert figures["perplexity"] == pytest.approx(figures["keras_perplexity"], rel=1e-4)
    assert 0 <= figures["divergence"] < 1e-6


def test_every_length_of_an_encoder_is_run():
    for name in (CLASSIFIER, SUMMARIZER):
        lengths = bundle.read_references(shared_bundle(name, "tflite"))["input.attention_mask"].sum(axis=1)
        for shorter, length in zip((0, *LENGTHS), LENGTHS, strict=False):
            assert ((shorter < lengths) & (lengths <= length)).any()


def test_every_prefill_is_run(monkeypatch):
    folder = shared_bundle(WRITER, "tflite")
    manifest = bundle.read(folder)
    engine = open_engine(folder, manifest)
    ran, run_one = set(), engine._engine.run
    monkeypatch.setattr(engine._engine, "run", lambda name, *rest: (ran.add(name), run_one(name, *rest))[1])
    verification.verify(engine, manifest, bundle.read_references(folder))
    assert ran == set(manifest.signatures)
    assert sum(name.startswith("prefill_") for name in ran) > 1


# Labelled texts.


@pytest.mark.parametrize("format", ["tflite", "onnx"])
@pytest.mark.grid
def test_accuracy_before_and_after(format, tmp_path):
    model = shared_model(CLASSIFIER)
    own = list(texts.READING[:10])
    answers = [row["label"] for row in kf.pipeline(model)(own)]
    assert len(set(answers)) > 1
    labels = [model.config.labels[0] if place < 2 else label for place, label in enumerate(answers)]
    right = np.mean([label == answer for label, answer in zip(labels, answers, strict=True)])
    folder = kf.export.export(model, tmp_path / "out", format, texts=own, labels=labels)
    figures = bundle.read(folder).fidelity
    assert figures["answers"] >= 10
    assert figures["quality"]["accuracy"] == {"keras": right, "bundle": right}
    assert set(figures["quality"]) == {"accuracy", "f1", "matthews"}
    assert f"accuracy | {right:.2%} in Keras, {right:.2%} in the bundle" in (folder / "README.md").read_text()
    again = json.loads(run("verify", str(folder), "--json").stdout)
    assert again["quality"] == figures["quality"] and again["faithful"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (CLASSIFIER, {"labels": [0]}, "labels must come with a list of texts"),
        (CLASSIFIER, {"texts": ["a", "b"], "labels": [0]}, "2 texts and 1 labels"),
        (CLASSIFIER, {"texts": ["a"], "labels": ["none such"]}, "'none such'"),
        (CLASSIFIER, {"texts": [{"text": "a", "label": 0}, "b"]}, "text 2 of 2 has none"),
        (WRITER, {"texts": ["a"], "labels": ["b"]}, "by perplexity, without labels"),
        ("bert-feature-extraction", {"texts": ["a"], "labels": ["b"]}, "no metric for feature-extraction"),
    ],
)
def test_invalid_labels(name, given, message, tmp_path):
    with pytest.raises(InputError, match=message):
        kf.export.export(shared_model(name), tmp_path / "out", "onnx", **given)
    assert not list(tmp_path.iterdir())


# Verification during an export.


def test_an_unfaithful_export_is_an_error_with_figures_and_advice():
    folder = shared_bundle(WRITER, "tflite", "int8")
    manifest = bundle.read(folder)
    strict = replace(RECIPES["int8"], tolerance=1e-6)
    with pytest.raises(ExportMismatchError) as caught:
        verify.verify(folder, manifest, strict)
    message = str(caught.value)
    for part in ("largest error of at most 1e-06 of the scale", "Received: agreement ", "kf.search"):
        assert part in message
    with pytest.raises(ExportMismatchError, match="at a first look at a few texts.*and equal tokens"):
        verify.verify(folder, manifest, RECIPES["none"])
    with pytest.raises(ExportMismatchError, match="and equal tokens.*defect of the export"):
        verify.verify(folder, manifest, replace(RECIPES["none"], tolerance=1.0, min_agreement=0.0))


def test_one_wrong_kind_of_step_is_an_error(monkeypatch):
    """The plain step is faithful, but the signature for long texts is not."""
    folder = shared_bundle(WRITER, "tflite")
    manifest = bundle.read(folder)
    engine = open_engine(folder, manifest)
    steps = [name for name in manifest.signatures if name.startswith(("decode", "verify"))]
    assert len(steps) > 1
    run_one = engine._engine.run

    def wrong(name: str, *rest: Any) -> Any:
        outputs = run_one(name, *rest)
        return {key: value + 1 if name == steps[0] else value for key, value in outputs.items()}

    prompts, start = [], type(engine).start
    monkeypatch.setattr(
        type(engine), "start", lambda self, ids, mask: prompts.append(ids.tobytes()) or start(self, ids, mask)
    )
    used = verification.verify(engine, manifest, bundle.read_references(folder))
    assert set(used.steps) == set(steps) and not used.failed(bundle.Limits(1e-4, 1.0))
    sample = verification.sample_of(bundle.read_references(folder))["input.input_ids"]
    assert prompts.count(sample.tobytes()) == 2, "each step signature reads the prompts again"
    monkeypatch.setattr(engine._engine, "run", wrong)
    found = verification.verify(engine, manifest, bundle.read_references(folder))
    assert steps[0] in found.failed(bundle.Limits(1e-4, 1.0))


# Verification of a bundle.


def test_verify_in_words_and_as_json():
    folder = shared_bundle(WRITER, "tflite", "int8")
    done = run("verify", str(folder))
    assert done.exit_code == 0
    assert "faithful" in done.stdout and "perplexity" in done.stdout and "KL" in done.stdout
    figures = json.loads(run("verify", str(folder), "--json").stdout)
    recorded = bundle.read(folder).fidelity
    assert figures["faithful"] is True
    assert figures["divergence"] == pytest.approx(recorded["divergence"], rel=1e-3)
    steps = ("decode", "verify")
    assert set(figures["steps"]) == {name for name in bundle.read(folder).signatures if name.startswith(steps)}


def test_an_unfaithful_bundle_ends_with_status_1(tmp_path):
    folder = shutil.copytree(shared_bundle(CLASSIFIER, "onnx", "int8"), tmp_path / "out")
    manifest = bundle.read(folder)
    bundle.write(folder, replace(manifest, recipe={**manifest.recipe, "tolerance": 1e-9}))
    done = run("verify", str(folder))
    assert done.exit_code == 1 and "NOT faithful" in done.stdout
    assert json.loads(run("verify", str(folder), "--json").stdout)["faithful"] is False


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_a_disk_that_fills_up_during_an_export(format, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        # Either when TensorFlow writes its graph to a temporary folder, or in the bundle itself.
        with pytest.raises((BundleError, ExportError), match="could not be written|File too large"):
            kf.export.export(shared_model(CLASSIFIER), tmp_path / "out", format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
