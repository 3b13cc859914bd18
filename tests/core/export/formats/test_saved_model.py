"""SavedModels: content of the files, generation in the graph, and refusals."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import kerasformer as kf
from kerasformer import bundle
from kerasformer.engines import open_engine
from kerasformer.engines.fidelity import verification
from kerasformer.engines.saved_model import SavedModelStep
from kerasformer.errors import BundleError, ExportError, ExportMismatchError, InputError, MissingExtraError
from kerasformer.export.formats.saved_model import loops, tf_text
from tests.core.export import onnx_bundles, saved_model_bundles
from tests.core.export.text_models import ROWS
from tests.extras import need

pytestmark = pytest.mark.grid

MODELS = ("bert-fill-mask", "gpt2-text-generation", "t5-text2text-generation")


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "t5"])
def test_weights_are_stored_once(model_type, tmp_path):
    """The file of variables has the model's values, and the graphs contain none."""
    model = onnx_bundles.tiny(model_type)
    saved_model_bundles.write(tmp_path, model, 32 if model.generates else None)
    stored = dict(tf.train.list_variables(str(tmp_path / "variables" / "variables")))
    shapes = sorted(tuple(shape) for name, shape in stored.items() if name.startswith("weights"))
    assert shapes == sorted(tuple(variable.shape) for variable in model.trainable_variables)
    saved = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    constants = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    assert max(tensor.ByteSize() for tensor in constants if tensor.dtype == tf.float32.as_datatype_enum) < 100


def test_a_graph_calls_a_step_and_does_not_repeat_it(tmp_path):
    manifest = saved_model_bundles.write(tmp_path, onnx_bundles.tiny("gpt2"), 32)
    assert list(manifest.signatures) == ["prefill", "decode", "generate", "sample"]
    saved = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    large = [function for function in functions if len(function.node_def) > 200]
    assert len(large) == 2, [function.signature.name for function in large]  # prefill and decode


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> tuple[Any, SavedModelStep, Any]:
    """Returns a model, its bundle in the runtime, and its signatures."""
    folder, model = tmp_path_factory.mktemp("bundle"), onnx_bundles.tiny("gpt2")
    engine = SavedModelStep(folder, saved_model_bundles.write(folder, model, 32))
    loaded = tf.saved_model.load(str(folder))
    return model, engine, loaded


def sampled(loaded: Any, prompts: int, **settings: Any) -> np.ndarray:
    """Returns the first sampled token of each of several equal prompts."""
    ids = tf.constant([[5, 9, 7]] * prompts)
    given = {"temperature": 1.0, "top_k": 0, "seed": 3, **settings}
    drawn = loaded.signatures["sample"](
        input_ids=ids, attention_mask=tf.ones_like(ids), max_new_tokens=tf.constant(1),
        **{name: tf.constant(value, "float32" if name == "temperature" else "int32") for name, value in given.items()},
    )  # fmt: skip
    return drawn["output_ids"].numpy()[:, 0]


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 4)], ids=str)
def test_samples_follow_the_distribution(temperature, top_k, decoder):
    model, _, loaded = decoder
    count = 4000
    logits = np.asarray(model({"input_ids": np.array([[5, 9, 7]])}))[0, -1] / temperature
    if top_k:
        logits = np.where(logits >= np.sort(logits)[-top_k], logits, -np.inf)
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    found = np.bincount(sampled(loaded, count, temperature=temperature, top_k=top_k), minlength=len(expected)) / count
    # Five standard deviations of a frequency.
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / count)).all()
    assert (found > 0).sum() > 3


def test_texts_end_at_their_end_token(tmp_path):
    """Each row ends separately and is padded; the loop stops when all rows have ended."""
    model = onnx_bundles.tiny("gpt2", eos_token_id=[11, 12], pad_token_id=3)
    ids = np.random.default_rng(1).integers(4, 61, (12, 5)).astype("int32")
    mask = np.ones_like(ids)
    free = SavedModelStep(tmp_path / "a", saved_model_bundles.write(tmp_path / "a", onnx_bundles.tiny("gpt2"), 32))
    likely = np.bincount(np.concatenate(free.generate(ids, mask, 16))).argsort()[-2:].tolist()
    model = onnx_bundles.tiny("gpt2", eos_token_id=likely, pad_token_id=3)
    engine = SavedModelStep(tmp_path / "b", saved_model_bundles.write(tmp_path / "b", model, 32))
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=16, jit_compile=False)
    assert engine.generate(ids, mask, 16) == [row.tolist() for row in expected]
    lengths = {len(row) for row in expected}
    assert len(lengths) > 2 and min(lengths) < 16, "no text ends early"


# Verification.


@pytest.mark.parametrize("name", MODELS[1:])
def test_a_graph_that_generates_different_tokens_is_not_published(name, tmp_path, monkeypatch):
    monkeypatch.setattr(
        loops.Loop, "greedy", lambda self, max_new_tokens, **inputs: self._run(inputs, max_new_tokens, lambda s, p: -s)
    )
    with pytest.raises(ExportMismatchError, match="steps of the signature 'generate'"):
        kf.export.export(ROWS[name].model(), tmp_path / "out", "saved-model")
    assert not list(tmp_path.iterdir())


def test_verify_checks_generation_in_the_graph(tmp_path):
    folder = kf.export.export(ROWS["gpt2-text-generation"].model(), tmp_path / "out", "saved-model", capacity=64)
    manifest, references = bundle.read(folder), bundle.read_references(folder)
    found = verification.verify(open_engine(folder, manifest), manifest, references)
    assert found.steps["generate"].generated == 1.0 and found.steps["generate"].answers > 100
    assert not found.failed(manifest.promise)
    references["tokens"][0, 3] += 1
    found = verification.verify(open_engine(folder, manifest), manifest, references)
    assert 0.99 < found.steps["generate"].agreement < 1 and "generate" in found.failed(manifest.promise)


def test_a_different_tokenizer_in_the_graph_is_not_published(tmp_path, monkeypatch):
    need("tensorflow_text")
    encode = tf_text.encode

    def cased(tokenizer: Any, texts: Any, limit: int | None) -> Any:
        return {**encode(tokenizer, texts, limit), "input_ids": encode(tokenizer, texts, limit)["input_ids"] // 2}

    monkeypatch.setattr(tf_text, "encode", cased)
    with pytest.raises(ExportMismatchError, match="differ from those of the Keras model"):
        kf.export.export(
            ROWS["bert-text-classification"].model(), tmp_path / "out", "saved-model", tokenizer="in-graph"
        )
    assert not list(tmp_path.iterdir())


# The bundle in its runtime.


def test_a_damaged_graph(tmp_path):
    manifest = saved_model_bundles.write(tmp_path, onnx_bundles.tiny("bert"))
    with pytest.raises(BundleError, match="lacks the signatures"):
        open_engine(
            tmp_path, replace(manifest, signatures={**manifest.signatures, "x": manifest.signatures["serving_default"]})
        )
    shutil.rmtree(tmp_path / "variables")
    with pytest.raises(BundleError, match="(?s)TensorFlow cannot load .* Export the model again"):
        open_engine(tmp_path, manifest)


def test_without_tensorflow(tmp_path, monkeypatch):
    manifest = saved_model_bundles.write(tmp_path, onnx_bundles.tiny("bert"))
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingExtraError, match=r"\[tensorflow\]"):
        open_engine(tmp_path, manifest)


# Refusals.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quantize": "int8"}, ExportError, "stores its weights in float32"),
        ({"profile": "ort"}, InputError, "profile is only for format='onnx'"),
        ({"tokenizer": "in-graph"}, ExportError, "generates text"),
    ],
    ids=str,
)
def test_invalid_options(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kf.export.export(onnx_bundles.tiny("gpt2"), tmp_path / "out", **{"format": "saved-model", **options})
    assert not list(tmp_path.iterdir())


def test_a_model_in_half_precision(tmp_path):
    model = ROWS["bert-text-classification"].model()
    folder = model.save_pretrained(tmp_path / "checkpoint")
    half = kf.zoo.load(folder, dtype="bfloat16")
    with pytest.raises(ExportError, match="computes in float32"):
        kf.export.export(half, tmp_path / "out", "saved-model")
