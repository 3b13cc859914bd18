"""One look at each satellite that needs no package beyond the extra `test`; `pytest tests/tools` runs the rest."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import kerasformer as kf
from kerasformer.errors import MissingExtraError
from kerasformer.tools.bench import bench
from kerasformer.tools.server.application import application
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.served_models import open_models
from kerasformer.tools.web.site import build
from tests.core.export.text_models import ROWS, shared_bundle, shared_model
from tests.tools.gguf.writing import ROWS as FILES
from tests.tools.gguf.writing import write_model
from tests.tools.web.sites import write_runtimes

CLASSIFIER = "bert-text-classification"
TEXTS = ["The museum is closed.", "What a waste!", "A clumsy, cold film.", "Rain is expected."]


@pytest.fixture
def classifier():
    return shared_bundle(CLASSIFIER, "onnx")


def test_a_search_finds_a_recipe():
    recipe = kf.search(shared_model(CLASSIFIER), "onnx", min_agreement=0.9, progress=False)
    assert recipe.min_agreement == 0.9 and not recipe.exact


def test_training_lowers_the_loss():
    model = ROWS[CLASSIFIER].model()
    data = kf.training.dataset(model, TEXTS, [0, 1, 1, 0], batch_size=2)
    model.compile(kf.training.optimizer(model, 5e-3, steps=5 * len(data)), data.loss, jit_compile=False)
    losses = model.fit(data, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]


def test_interpretability_shows_distributions():
    layers = kf.attention(shared_model(CLASSIFIER), TEXTS[0]).stacks[0].layers
    assert len(layers) == shared_model(CLASSIFIER).config.num_layers
    for layer in layers:
        np.testing.assert_allclose(layer.weights.sum(axis=-1), 1.0, rtol=1e-5)


def test_evaluation_counts_right_answers(classifier):
    best = [answer["label"] for answer in kf.pipeline(classifier)(TEXTS, top_k=1)]
    assert kf.evaluate(classifier, TEXTS, best)["accuracy"] == 1.0


def test_a_server_answers(classifier):
    models = open_models([f"one={classifier}"], Limits(), Measurements())
    with TestClient(application(models, Limits(), Measurements())) as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["one"]


def test_a_page_is_built(classifier, tmp_path):
    runtimes = write_runtimes(tmp_path / "packages")  # the real ones come from npm
    site = build([f"One={classifier}"], tmp_path / "site", runtime_files=runtimes)
    assert "<title>" in (site / "index.html").read_text() and json.loads((site / "site.json").read_text())


def test_bench_measures_a_bundle(classifier):
    (subject,) = bench([classifier], rounds=1, num_threads=1).subjects
    assert subject.works[0].median_s > 0


def test_a_file_of_llama_cpp_loads(tmp_path):
    row = next(row for row in FILES if row.architecture == "gpt2")
    reference = row.source().reference("text-generation")
    model = kf.load(write_model(row, reference, tmp_path / "model.gguf"))
    with torch.no_grad():
        expected = reference(torch.tensor([[5, 3, 8, 1]])).logits.numpy()
    received = np.asarray(model({"input_ids": [[5, 3, 8, 1]]}))
    np.testing.assert_allclose(received, expected, atol=1e-5 * np.abs(expected).max())


def test_other_libraries_are_named_by_their_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(MissingExtraError, match="keras-hub"):
        kf.zoo.to_keras_hub(shared_model(CLASSIFIER))
