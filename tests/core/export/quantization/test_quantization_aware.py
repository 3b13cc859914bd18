"""Bundles contain, bit for bit, the weights with which a quantization-aware model was trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.graph.variable_names import below_model
from kerasformer.export.quantization.quantization_aware import QuantizationAware
from kerasformer.tools.training import Distiller, SoftTargets, quantization_aware
from tests import tiny_text
from tests.core.export import onnx_bundles, tflite_bundles
from tests.core.export.formats.test_onnx_recipes import values

pytestmark = pytest.mark.grid

SIZES = {"hidden_dim": 64, "num_layers": 1, "num_heads": 4, "max_length": 64}
RNG = np.random.default_rng(0)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def built(name: str) -> Any:
    """Returns a model whose intermediate layer is no multiple of the blocks."""
    keras.utils.set_random_seed(0)
    encoder = name == "bert"
    tokenizer = tiny_text.wordpiece() if encoder else tiny_text.byte_pairs()
    sizes = {**SIZES, "intermediate_dim" if encoder else "inner_dim": 104, "vocab_size": tokenizer.vocab_size}
    model = zoo.build(name, "text-classification" if encoder else "text-generation", **sizes)
    model.tokenizer = tokenizer
    return model


def trained(name: str, quantize: str, format: str) -> QuantizationAware:
    """Returns a model after a few steps, in which its scales have changed."""
    aware = quantization_aware(built(name), quantize, format, steps=3)
    ids = RNG.integers(5, 60, (4, 9))
    aware.compile(keras.optimizers.Adam(3e-3), LOSS, run_eagerly=True)
    labels = RNG.integers(0, 2, 4) if name == "bert" else ids
    history = aware.fit({"input_ids": ids}, labels, epochs=4, batch_size=2, verbose=0).history["loss"]
    assert history[-1] < history[0] and len(aware.stored_weights()) >= 7
    return aware


def stored(model: Any, format: str, folder: Path) -> dict[str, np.ndarray]:
    """Returns the dequantized matrices of files `(N, K)` by path, read without this package."""
    if format == "litert":
        return {name: value for name, (_, value) in tflite_bundles.stored_matrices(folder / "model.tflite").items()}
    file = sorted((folder / "onnx").glob("*.onnx"))[0]
    found = values(onnx_bundles.load(folder, file.stem).graph, model)
    return {name: value.T if name.endswith("kernel") else value for name, value in found.items()}


def assert_same(aware: QuantizationAware, read: Mapping[str, np.ndarray]) -> None:
    """Compares the matrices of a file with those of training, bit for bit."""
    for path, value in aware.stored_weights().items():
        np.testing.assert_array_equal(value, read[below_model(path)], err_msg=path)
    kernel = next(variable for variable in aware.model.variables if variable.path.endswith("query/kernel"))
    assert not np.array_equal(aware.stored_weights()[kernel.path], np.asarray(kernel).T)


@pytest.mark.parametrize(
    ("name", "format", "quantize"),
    [
        pytest.param("bert", "litert", "int8", marks=pytest.mark.grid),
        ("bert", "litert", "int4"),
        ("gpt2", "onnx", "int8"),
        ("gpt2", "onnx", "int4"),
    ],
)
def test_files_have_the_weights_of_training(name: str, format: str, quantize: str, tmp_path: Path) -> None:
    aware = trained(name, quantize, format)
    if format == "litert":
        functions = tflite_functions(aware.model, None, None, [8])
        tflite_bundles.write(tmp_path, aware.model, functions, f"{quantize}_trained")
    else:
        onnx_bundles.write(tmp_path, aware.model, f"{quantize}_trained")
    assert_same(aware, stored(aware.model, format, tmp_path))


def test_bundles_have_the_weights_of_training(tmp_path: Path) -> None:
    aware = trained("bert", "int8", "onnx")  # with limits for the sums of adjacent levels
    bundle = aware.export(tmp_path / "bundle")
    assert bundle.manifest.recipe["name"] == "int8_trained" and bundle.manifest.fidelity["agreement"] == 1.0
    read = stored(aware.model, "onnx", bundle.path)
    assert_same(aware, read)
    # What is saved has float32 weights, from which the recipe makes the same file.
    aware.model.save_pretrained(tmp_path / "saved")
    again = zoo.load(tmp_path / "saved").export(tmp_path / "again", "onnx", "int8_trained")
    for path, value in stored(aware.model, "onnx", again.path).items():
        np.testing.assert_array_equal(value, read[path])


def test_the_student_of_a_distiller() -> None:
    teacher, student = built("bert"), built("bert")
    before = quantization_aware(student, "int4", steps=2).stored_weights()
    aware = quantization_aware(student, "int4", steps=2)
    distiller = Distiller(teacher, aware, SoftTargets())
    distiller.compile(keras.optimizers.Adam(3e-3), run_eagerly=True)
    distiller.fit({"input_ids": RNG.integers(5, 60, (4, 9))}, epochs=3, batch_size=2, verbose=0)
    fresh = quantization_aware(student, "int4").stored_weights()  # with the scales of the final weights
    for path, value in aware.stored_weights().items():
        np.testing.assert_array_equal(value, fresh[path])
    assert any(not np.array_equal(before[path], fresh[path]) for path in fresh)


def test_errors() -> None:
    model = built("bert")
    for arguments, message in {("int3",): "int3", ("int8", "saved_model"): "saved_model"}.items():
        with pytest.raises(InputError, match=message):
            quantization_aware(model, *arguments)
    model.enable_lora(rank=2)
    with pytest.raises(InputError, match="merge_adapter"):
        quantization_aware(model)
