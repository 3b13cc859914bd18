"""Export of encoders for long texts, with a sliding window or in blocks: short texts are computed densely."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import interpreter

from kerasformer.bundle import recipes
from kerasformer.export.formats.onnx.layout import OnnxLayout
from kerasformer.export.formats.tflite.layout import TfliteLayout
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.quantization import model_matrices
from kerasformer.export.quantization.simulation import Simulation
from tests.core.export import onnx_bundles, tflite_bundles
from tests.grids import grid

LENGTHS = (16, 61)
"""Two lengths: dense in all layers; and in blocks, without being a multiple of a window."""
HIDDEN = -1e5
"""Scores below this are those of a question, which cannot be part of an answer of BigBird."""
ALLOWED = {"none": 1e-5, "int8": 0.05, "int4": 0.05}
"""Root mean square error relative to a Keras model with the stored values, for the order of summation or 8-bit
activations."""


pytestmark = [pytest.mark.grid, pytest.mark.usefixtures("small_matrices_too")]


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(name):
        if name not in made:
            made[name] = onnx_bundles.tiny(*name.split(" "))
        return made[name]

    return get


def texts(model, length: int, question: int = 3, padding: int = 4) -> dict[str, np.ndarray]:
    """Returns a text with a question of this many tokens and some padding."""
    ids = np.random.default_rng(length).integers(6, 61, (1, length)).astype("int32")
    mask = np.ones((1, length), "int32")
    mask[:, length - padding :] = 0
    ids[:, [question, question + 1, length - padding - 2]] = 2
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": (np.arange(length)[None] > 7).astype("int32")}
    return {name: inputs[name] for name in model.input_names}


def assert_answers(model, run, layout, quantize, lengths):
    """Checks that the answers are those of Keras with the stored values, and NaN for a question of more tokens than can
    be global."""
    simulation = Simulation(model, model_matrices.matrices(model), layout)
    simulation.store(recipes.recipe(quantize))
    # A text much shorter than the length at which it is run has the answer that it has alone.
    for length, padding in [*((length, 4) for length in lengths), (61, 45)]:
        inputs, count = texts(model, length, padding=padding), length - padding
        want = simulation.run({name: array[:, :count] for name, array in inputs.items()})
        for name, got in run(inputs).items():
            expected = want[name]
            got = got[:, :count] if expected.shape[:2] == (1, count) else got
            shown = expected > HIDDEN
            np.testing.assert_array_equal(got > HIDDEN, shown)
            error = np.sqrt(np.square(got - expected)[shown].mean() / np.square(expected)[shown].mean())
            assert error < ALLOWED[quantize], f"{count} of {length} tokens: {error:.1e}"
    if hasattr(model, "global_token_limit") and model.task == "question-answering":
        assert all(np.isnan(value).all() for value in run(texts(model, 61, question=7)).values())


@pytest.mark.parametrize(
    ("name", "quantize"),
    [
        pytest.param("longformer fill-mask", "none", marks=pytest.mark.release),
        pytest.param("longformer text-classification", "none", marks=pytest.mark.release),
        *grid(
            ["longformer question-answering"], ALLOWED, always=lambda _, quantize: quantize == "none", others="release"
        ),
        pytest.param("big_bird fill-mask", "none", marks=pytest.mark.release),
        ("big_bird question-answering", "none"),
        *grid(
            ["big_bird text-classification"],
            ("int8", "int4"),
            always=lambda _, quantize: quantize == "int8",
            others="release",
        ),
    ],
)
def test_tflite(models, tmp_path, name, quantize):
    model = models(name)
    tflite_bundles.write(tmp_path, model, tflite_functions(model, None, None, LENGTHS), quantize)
    opened = interpreter.Interpreter(str(tmp_path / "model.tflite"))
    runners = {length: opened.get_signature_runner(f"forward_{length}") for length in LENGTHS}
    assert_answers(
        model, lambda inputs: runners[inputs["input_ids"].shape[1]](**inputs), TfliteLayout(), quantize, LENGTHS
    )


# The standard operators of opset 17 do not support four-bit matrices.
ONNX = (
    ("longformer fill-mask", "ort", "none"),
    ("longformer text-classification", "portable", "none"),
    ("longformer question-answering", "ort", "none"),
    ("longformer question-answering", "ort", "int4"),
    ("longformer question-answering", "portable", "none"),
    ("longformer question-answering", "portable", "int8"),
    ("big_bird fill-mask", "ort", "none"),
    ("big_bird text-classification", "portable", "none"),
    ("big_bird question-answering", "ort", "none"),
    ("big_bird text-classification", "ort", "int4"),
    ("big_bird text-classification", "portable", "int8"),
)


ALWAYS = {
    ("longformer fill-mask", "ort", "none"),
    ("longformer question-answering", "ort", "none"),
    ("longformer question-answering", "portable", "int8"),
    ("big_bird text-classification", "portable", "none"),
    ("big_bird question-answering", "ort", "none"),
}
RELEASE = {
    ("longformer text-classification", "portable", "none"),
    ("longformer question-answering", "portable", "none"),
    ("big_bird text-classification", "portable", "int8"),
}
"""Each of these layers, profiles and recipes is in another case."""


@pytest.mark.parametrize(
    ("name", "profile", "quantize"),
    [
        pytest.param(
            *case, marks=() if case in ALWAYS else pytest.mark.release if case in RELEASE else pytest.mark.release
        )
        for case in ONNX
    ],
)
def test_onnx(models, tmp_path, name, profile, quantize):
    model = models(name)
    onnx_bundles.write(tmp_path, model, quantize, profile, opset=17)

    def run(inputs):
        feeds = {name: value.astype("int64") for name, value in inputs.items()}
        return onnx_bundles.run(tmp_path / "onnx" / "model.onnx", feeds)

    assert_answers(model, run, OnnxLayout(profile, 17), quantize, (7, *LENGTHS))
    if profile == "ort":
        operators = [node.op_type for node in onnx_bundles.load(tmp_path).graph.node]
        # For each layer, one for windows and one for global tokens; or blocks, the first and last block, short texts.
        of_first_token = not name.endswith(("fill-mask", "question-answering"))
        fused = (4 if of_first_token else 6) if name.startswith("big_bird") else 2 if name.endswith("fill-mask") else 4
        assert operators.count("MultiHeadAttention") == fused and "Softmax" not in operators
