"""Export of encoders with a sliding window and global tokens: dense for short texts, in blocks for long ones."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.quantization import model_matrices, recipes
from kerasformer.export.quantization.sensitivity import Simulation
from tests.export import onnx_bundles, tflite_bundles
from tests.grids import grid

LENGTHS = (16, 61)
"""Two lengths: dense in all layers; and in blocks, without being a multiple of a window."""
ALLOWED = {"none": 1e-5, "int8": 0.05, "int4": 0.05}
"""Root mean square error relative to a Keras model with the stored values, for the order of summation or 8-bit
activations."""


@pytest.fixture(scope="module", autouse=True)
def small_matrices_too():
    """Quantizes small matrices too, since the models of these tests have no others."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (recipes, model_matrices):
            patch.setattr(module, "MIN_QUANTIZED", 0)
        yield


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(task):
        if task not in made:
            made[task] = onnx_bundles.tiny("longformer", task)
        return made[task]

    return get


def texts(length: int, question: int = 3) -> dict[str, np.ndarray]:
    """Returns a padded text with a question of this many tokens."""
    ids = np.random.default_rng(length).integers(6, 61, (1, length)).astype("int32")
    mask = np.ones((1, length), "int32")
    mask[:, length - 4 :] = 0
    ids[:, [question, question + 1, length - 6]] = 2
    return {"input_ids": ids, "attention_mask": mask}


def assert_answers(model, run, layout, quantize, lengths):
    """Checks that the answers are those of Keras with the stored values, and NaN for a question of more tokens than can
    be global."""
    simulation = Simulation(model, model_matrices.matrices(model), layout)
    simulation.store(recipes.recipe(quantize))
    for length in lengths:
        inputs = texts(length)
        want = simulation.run(inputs)
        for name, got in run(inputs).items():
            expected = want[name]
            if expected.shape[:2] == inputs["input_ids"].shape:
                got, expected = got[:, : length - 4], expected[:, : length - 4]
            error = np.sqrt(np.square(got - expected).mean() / np.square(expected).mean())
            assert error < ALLOWED[quantize], f"{length} tokens: {error:.1e}"
    if model.task == "question-answering":
        assert all(np.isnan(value).all() for value in run(texts(61, question=7)).values())


@pytest.mark.parametrize(
    ("task", "quantize"),
    [
        pytest.param("fill-mask", "none", marks=pytest.mark.grid),
        pytest.param("text-classification", "none", marks=pytest.mark.grid),
        *grid(["question-answering"], ALLOWED, always=lambda _, quantize: quantize != "int4"),
    ],
)
def test_tflite(models, tmp_path, task, quantize):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model = models(task)
    tflite_bundles.write(tmp_path, model, tflite_functions(model, None, None, LENGTHS), quantize)
    opened = interpreter.Interpreter(str(tmp_path / "model.tflite"))
    runners = {length: opened.get_signature_runner(f"forward_{length}") for length in LENGTHS}
    assert_answers(
        model, lambda inputs: runners[inputs["input_ids"].shape[1]](**inputs), TfliteLayout(), quantize, LENGTHS
    )


# The standard operators of opset 17 do not support four-bit matrices.
ONNX = (
    ("fill-mask", "ort", "none"),
    ("text-classification", "portable", "none"),
    ("question-answering", "ort", "none"),
    ("question-answering", "ort", "int4"),
    ("question-answering", "portable", "none"),
    ("question-answering", "portable", "int8"),
)


ALWAYS = {
    ("fill-mask", "ort", "none"),
    ("question-answering", "ort", "none"),
    ("question-answering", "portable", "int8"),
}


@pytest.mark.parametrize(
    ("task", "profile", "quantize"),
    [pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.grid) for case in ONNX],
)
def test_onnx(models, tmp_path, task, profile, quantize):
    model = models(task)
    onnx_bundles.write(tmp_path, model, quantize, profile, opset=17)

    def run(inputs):
        feeds = {name: value.astype("int64") for name, value in inputs.items()}
        return onnx_bundles.run(tmp_path / "onnx" / "model.onnx", feeds)

    assert_answers(model, run, OnnxLayout(profile, 17), quantize, (7, *LENGTHS))
    if profile == "ort":
        operators = [node.op_type for node in onnx_bundles.load(tmp_path).graph.node]
        fused = 2 if task == "fill-mask" else 4  # for each layer, one for windows and one for global tokens
        assert operators.count("MultiHeadAttention") == fused and "Softmax" not in operators
