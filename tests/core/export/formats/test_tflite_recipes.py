"""Each recipe in a TFLite file: the stored values, and the answers of LiteRT compared with those of Keras."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.engines.litert.engine import open_engine
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite import convert as to_tflite
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.variable_names import by_path
from kerasformer.export.quantization.calibration import Calibration, Ranges
from kerasformer.layers import primitives
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.layers.tensor import Tensor
from tests.core.export import tflite_bundles
from tests.core.export.small_models import TinyEncoder, functions_of, tiny_decoder, tiny_seq2seq


@dataclass(frozen=True)
class Case:
    """A recipe, how far stored values may be from the variables' (root mean square, as a share), and how far results
    may be, likewise, from those of a Keras model that has the stored values: that is what activations lose."""

    recipe: Recipe
    storages: tuple[str, ...]
    stored: float
    computed: float


def made_of(name: str, **changes: Any) -> Recipe:
    return replace(RECIPES[name], **changes)


CASES = {
    "none": Case(RECIPES["none"], ("float32",), 0.0, 1e-5),
    "fp16": Case(RECIPES["fp16"], ("float16",), 3e-4, 1e-5),
    # Eight bits for a Gaussian row of a hundred values: the largest, about 2.6 standard deviations, is 127 levels.
    "int8": Case(RECIPES["int8"], ("int8",), 0.008, 0.06),
    "int8_fast": Case(RECIPES["int8_fast"], ("int8",), 0.008, 0.06),
    "int8_weights": Case(RECIPES["int8_weights"], ("int8",), 0.008, 5e-4),
    "int8_static": Case(RECIPES["int8_static"], ("int8",), 0.008, 0.06),
    "int4": Case(RECIPES["int4"], ("int4", "int8"), 0.1, 0.06),
    "int4_channel": Case(RECIPES["int4_channel"], ("int4", "int8"), 0.12, 0.06),
    "int4 in blocks of 128, which do not divide 96": Case(made_of("int4", block=128), ("int4", "int8"), 0.11, 0.06),
    "int4 weights": Case(made_of("int4", activations="float"), ("int4", "int8"), 0.1, 5e-4),
    "int4 static": Case(made_of("int4", activations="static"), ("int4", "int8"), 0.11, 0.06),
    "int4 tables": Case(made_of("int4", tables="int4"), ("int4",), 0.1, 0.06),
    "mixed": Case(
        made_of("int8", layers=(("*feed_forward*", "int4"), ("*attention*", "float16"))),
        ("float16", "int4", "int8"),
        0.1,
        0.06,
    ),
}
MODELS = {
    "encoder": lambda: (model := TinyEncoder(dim=96)) and (model, [model.function(8)]),
    "decoder": lambda: (model := tiny_decoder(96)) and (model, functions_of(model, 4)),
    "encoder-decoder": lambda: (model := tiny_seq2seq(96)) and (model, functions_of(model, 8)),
}


# Custom recipes for one model, and RECIPES for all.
PAIRS = [(model, case) for model in MODELS for case in CASES if model == "decoder" or case in RECIPES]


@pytest.fixture(scope="module")
def traced(request: Any) -> Iterator[tuple[Any, list[Function]]]:
    """Yields a model whose graphs are traced once for all recipes with the same activations."""
    tracer, convert = to_tflite._tracer, to_tflite._convert
    tracers: dict[Any, Any] = {}
    seen: dict[Any, bytes] = {}

    def one_tracer(functions: Any, weights: Any, recipe: Recipe, scales: Any, wide: Any) -> Any:
        key = recipe.activations == "float" and recipe.weights, wide
        if key not in tracers:
            tracers[key] = tracer(functions, weights, recipe, scales, wide)
        return tracers[key]

    def once(functions: Any, weights: Any, trace: Any) -> bytes:
        key = tuple(function.name for function in functions), trace
        if key not in seen:
            seen[key] = convert(functions, weights, trace)
        return seen[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_tflite, "_tracer", one_tracer)
        patch.setattr(to_tflite, "_convert", once)
        yield MODELS[request.param]()


def questions(functions: list[Function], count: int = 3) -> Iterator[tuple[Function, dict[str, np.ndarray]]]:
    generator = np.random.default_rng(0)
    for function in functions:
        for _ in range(count):
            yield function, {name: question(name, info, generator) for name, info in function.inputs.items()}


def question(name: str, info: TensorInfo, generator: np.random.Generator) -> np.ndarray:
    if info.dtype == "float32":
        return generator.normal(0, 0.5, info.shape).astype("float32")
    if name == "input_pos":
        return np.arange(5, 5 + info.shape[0], dtype="int32")
    if "mask" in name:
        return (np.arange(info.shape[1]) < info.shape[1] - 2).astype("int32")[None]
    return generator.integers(0, 2 if "type" in name else 190, info.shape).astype("int32")


class Observer(Primitives):
    """Plain primitives that record the ranges of products."""

    def __init__(self) -> None:
        self.ranges: dict[str, Ranges] = {}

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        y = super().linear(x, kernel, bias, transposed=transposed)
        ends = [np.array([np.min(t), np.max(t)]) for t in (x, y)]
        if old := self.ranges.get(kernel.path):
            ends = [
                np.array([min(new[0], was[0]), max(new[1], was[1])])
                for new, was in zip(ends, (old.input, old.output), strict=True)
            ]
        self.ranges[kernel.path] = Ranges(*(tuple(map(float, end)) for end in ends))
        return y


def calibration(functions: list[Function]) -> Calibration:
    observer = Observer()
    with lowering(observer):
        for function, inputs in questions(functions):
            function.call(**{name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()})
    return observer.ranges


ALWAYS = {
    *(("decoder", name) for name in ("none", "int8", "int4", "int8_static")),
    ("encoder", "int8"),
    ("encoder-decoder", "int4"),
}
IN_CI = {("encoder", "int8_static")}


@pytest.mark.parametrize(
    ("traced", "name"),
    [
        pytest.param(
            *pair,
            marks=()
            if pair in ALWAYS
            else pytest.mark.grid
            if pair[0] == "decoder" or pair in IN_CI
            else pytest.mark.release,
        )
        for pair in PAIRS
    ],
    indirect=["traced"],
)
def test_stored_values_and_answers(name: str, traced: tuple[Any, list[Function]], tmp_path: Path) -> None:
    case, (model, functions), path = CASES[name], traced, tmp_path / "model.tflite"
    write_tflite(functions, model.variables, case.recipe, path, calibration(functions))
    stored = tflite_bundles.stored_matrices(path)
    variables = {name: v for name, v in by_path(model.variables).items() if v.dtype == "float32"}
    original = {name: np.asarray(v.value) for name, v in variables.items()}
    # Biases of static products are integers, which the comparison below covers.
    read = {name for name, value in original.items() if value.ndim == 2 or case.recipe.activations != "static"}
    assert read <= set(stored) <= set(original) | {f"{name}/int32" for name in original}
    assert {kind for kind, _ in stored.values()} == {*case.storages, "float32"}
    try:
        for weight, variable in variables.items():
            if weight in stored:
                kind, value = stored[weight]
                value = value.T if variable.path.endswith("kernel") else value
                lost = np.sqrt(np.mean((value - original[weight]) ** 2) / np.mean(original[weight] ** 2))
                assert lost <= (0 if kind == "float32" else case.stored), weight
                variable.assign(value)
        compare(functions, path, case.computed)
    finally:
        for weight, variable in variables.items():
            variable.assign(original[weight])


def compare(functions: list[Function], path: Path, tolerance: float) -> None:
    """Compares the answers to all questions for each function; the loss in a single one depends on chance."""
    engine, same = open_engine(path, 1), []
    errors: dict[tuple[str, str], list[np.ndarray]] = {}
    values: dict[tuple[str, str], list[np.ndarray]] = {}
    for function, inputs in questions(functions):
        received = engine.run(function.name, inputs)
        expected = function.call(**{name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()})
        for name in function.outputs:
            value = np.asarray(expected[name])
            # The new entries of a cache; start_logits are a column of the hidden states.
            new = value != inputs.get(name, np.inf)
            errors.setdefault((function.name, name), []).append((received[name] - value)[new])
            values.setdefault((function.name, name), []).append(value[new])
            if name == "logits":
                same.append(received[name].argmax(-1) == value.argmax(-1))
    root_mean_square = {key: np.sqrt(np.mean(np.concatenate(parts) ** 2)) for key, parts in values.items()}
    lost = {key: np.sqrt(np.mean(np.concatenate(parts) ** 2)) / root_mean_square[key] for key, parts in errors.items()}
    assert {key: part for key, part in lost.items() if part > tolerance and key[1] != "start_logits"} == {}
    assert np.mean(np.concatenate([answers.ravel() for answers in same])) >= 2 / 3


@pytest.fixture(scope="module")
def product() -> tuple[keras.Variable, keras.Variable, Function]:
    """Returns the function `relu(x @ kernel + bias) @ kernel^T` and its variables."""
    generator = np.random.default_rng(1)
    kernel = keras.Variable(generator.normal(0, 1, (64, 96)).astype("float32"), name="kernel")
    bias = keras.Variable(generator.normal(0, 1, 96).astype("float32"), name="bias")

    def call(x: Tensor) -> dict[str, Tensor]:
        wide = keras.ops.relu(primitives.linear(x, kernel, bias))
        return {"wide": wide + 0.0 * wide, "y": primitives.linear(wide, kernel, transposed=True)}

    shapes = {"wide": (1, 5, 96), "y": (1, 5, 64)}
    outputs = {name: TensorInfo(shape, "float32") for name, shape in shapes.items()}
    return kernel, bias, Function("f", {"x": TensorInfo((1, 5, 64), "float32")}, outputs, call)


def test_static_products_need_ranges(product: Any, tmp_path: Path) -> None:
    kernel, bias, function = product
    with pytest.raises(ExportError, match=r"needs the activation ranges of every product. Received: none for kernel"):
        write_tflite([function], [kernel, bias], RECIPES["int8_static"], tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


def test_rows_of_an_odd_length_are_not_stored_in_four_bits(tmp_path: Path) -> None:
    kernel = keras.Variable(np.random.default_rng(0).normal(0, 1, (75, 64)).astype("float32"), name="odd")
    info = {"x": TensorInfo((1, 75), "float32")}, {"y": TensorInfo((1, 64), "float32")}
    function = Function("f", *info, lambda x: {"y": primitives.linear(x, kernel)})
    write_tflite([function], [kernel], RECIPES["int4"], tmp_path / "model.tflite")
    assert tflite_bundles.stored_matrices(tmp_path / "model.tflite")["odd"][0] == "int8"
