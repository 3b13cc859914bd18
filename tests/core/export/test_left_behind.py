"""What a model, its compiled functions, an export and an opened bundle leave in the process: nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer.layers.activations import _ACTIVATIONS
from tests.core.export.text_models import ROWS

pytestmark = [
    pytest.mark.grid,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graphs are TensorFlow's"),
]

TEXT = "The rain falls on the town."
FEW = {"prefill_lengths": (8,), "cache_lengths": (), "batch_sizes": (), "verify_lengths": ()}


def _graphs() -> dict[int, Any]:
    """The graphs that exist, and the functions that TensorFlow keeps for marks and gradients."""
    from tensorflow.python.framework import ops
    from tensorflow.python.framework.func_graph import FuncGraph
    from tensorflow.python.ops.script_ops import _py_funcs

    gc.collect()
    graphs = {id(found): found for found in gc.get_objects() if isinstance(found, FuncGraph)}
    return {**graphs, "gradients": len(ops.gradient_registry.list()), "functions": _py_funcs.size()}


def _generate(model: Any, folder: Path) -> None:
    model.generate([TEXT], max_new_tokens=2, jit_compile=False)


def _answer(model: Any, folder: Path) -> None:
    kf.pipeline(model)(TEXT)


def _train(model: Any, folder: Path) -> None:
    ids = np.asarray(model.tokenizer([TEXT]).input_ids)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit({"input_ids": ids}, ids if model.generates else np.zeros(len(ids), "int32"), verbose=0)


def _exported(format: str, **options: Any) -> Callable[[Any, Path], None]:
    def export(model: Any, folder: Path) -> None:
        bundle = kf.export.export(model, folder / "bundle", format, capacity=40, progress=False, **options)
        kf.pipeline(bundle)(TEXT, max_new_tokens=2)

    return export


@pytest.mark.parametrize(
    ("name", "use"),
    [
        pytest.param("llama-text-generation", _generate, id="generate"),
        pytest.param("llama-text-generation", _train, id="train", marks=pytest.mark.grid),
        pytest.param("llama-text-generation", _exported("tflite", **FEW), id="tflite"),
        pytest.param("llama-text-generation", _exported("onnx"), id="onnx"),
        pytest.param("llama-text-generation", _exported("saved-model"), id="saved-model", marks=pytest.mark.grid),
        pytest.param("marian-text2text-generation", _generate, id="encoder-decoder", marks=pytest.mark.grid),
        pytest.param("bert-text-classification", _answer, id="classify"),
        pytest.param("bert-text-classification", _train, id="train a classifier", marks=pytest.mark.grid),
    ],
)
def test_a_dropped_model_is_freed_with_its_graphs(name: str, use: Callable[[Any, Path], None], tmp_path: Path) -> None:
    def run() -> weakref.ref[Any]:
        model = ROWS[name].model()
        use(model, tmp_path)
        return weakref.ref(model)

    before = _graphs()
    model = run()
    assert _graphs() == before
    assert model() is None


@pytest.mark.parametrize("name", sorted(_ACTIVATIONS))
def test_an_activation_keeps_no_graph(name: str) -> None:
    import tensorflow as tf

    before = _graphs()
    tf.function(kf.layers.activation(name)).get_concrete_function(tf.TensorSpec((2, 3)))
    assert _graphs() == before
