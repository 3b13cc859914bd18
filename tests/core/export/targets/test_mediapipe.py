"""Bundles for MediaPipe in this package, and refused models; tests/foreign runs them in MediaPipe."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, normalizers, processors
from tokenizers import Tokenizer as Backend

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle import Limits, TensorInfo
from kerasformer.bundle.recipes import recipe
from kerasformer.engines import open_engine
from kerasformer.engines.fidelity.comparison import compare
from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.errors import ExportError, InputError
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.metadata import Tensor, attach, input_order, metadata
from kerasformer.export.graph.functions import Function
from kerasformer.export.targets.mediapipe.target import MediapipeTokenizerWarning
from kerasformer.export.targets.mediapipe.tokenizer_conversion import check, vocabulary
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.export.text_models import OTHERS, ROWS

pytestmark = pytest.mark.grid

TEXTS = [
    "A good film.",
    "The soup was hot, the bread was fresh.",
    "They walked along the river until the lamps were lit.",
]

quiet = pytest.mark.filterwarnings("ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning")


def exported(row: Any, folder: Path, **settings: Any) -> tuple[Any, Path]:
    model = row.model()
    return model, kf.export.export(model, folder, target="mediapipe", **settings)


@quiet
@pytest.mark.parametrize("name", ["bert-text-classification", "distilbert-text-classification"])
def test_a_bundle_answers_here_as_keras_does(name, tmp_path):
    model, folder = exported(ROWS[name], tmp_path / "out")
    pipe, keras_pipe = (kf.pipeline(source, "text-classification") for source in (folder, model))
    for own, theirs in zip(pipe(TEXTS, top_k=None), keras_pipe(TEXTS, top_k=None), strict=True):
        assert [each["label"] for each in own] == [each["label"] for each in theirs]
        np.testing.assert_allclose([each["score"] for each in own], [each["score"] for each in theirs], atol=1e-5)
    manifest = bundle.read(folder)
    (signature,) = manifest.signatures.values()
    assert list(signature.outputs) == ["probabilities"] and len(signature.inputs) == 3
    assert manifest.info.max_length == 64  # the model's limit, which is below the default length of 128
    with zipfile.ZipFile(folder / "model.tflite") as archive:
        assert archive.read("labels.txt").decode().splitlines() == list(model.info().labels)
        lines = archive.read("vocab.txt").decode().splitlines()
    assert [model.tokenizer.token_to_id(line) for line in lines] == list(range(len(lines)))
    code = (folder / "README.md").read_text(encoding="utf-8")
    assert 'TextClassifier.createFromFile(context, "model.tflite")' in code and "truncated to 64 tokens" in code


@quiet
def test_an_embedder_returns_the_mean(tmp_path):
    model, folder = exported(ROWS["bert-feature-extraction"], tmp_path / "out", lengths=[32])
    pipe, keras_pipe = (kf.pipeline(source, "feature-extraction") for source in (folder, model))
    expected = keras_pipe(TEXTS, pooling="mean")
    for pooling in (None, "mean"):
        np.testing.assert_allclose(pipe(TEXTS, pooling=pooling), expected, atol=1e-5)
    assert pipe(TEXTS[0]).shape == expected[0].shape
    with pytest.raises(InputError, match="computes the mean of the token vectors.*Received: pooling='cls'"):
        pipe(TEXTS, pooling="cls")


@quiet
@pytest.mark.parametrize("name", ["bert-text-classification", "distilbert-text-classification"])
def test_a_second_softmax_is_detected(name, tmp_path):
    _, folder = exported(ROWS[name], tmp_path / "out", lengths=[48])
    references = bundle.read_references(folder)
    engine = open_engine(folder, bundle.read(folder))
    exact = recipe("none")
    assert compare(engine, references).within(Limits(exact.tolerance, exact.min_agreement))

    class Twice:
        def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            powers = np.exp(engine.run(inputs)["probabilities"])
            return {"probabilities": powers / powers.sum(axis=-1, keepdims=True)}

    assert not compare(Twice(), references).within(Limits(exact.tolerance, 0))


@quiet
def test_probabilities_of_integers_are_no_ties(tmp_path):
    row = ROWS["bert-text-classification"]
    # Enough classes for the head's matrix to be stored in integers.
    model = replace(row, settings={**row.settings, "num_labels": 64}).model()
    loose = replace(recipe("int8_static"), tolerance=1.0, min_agreement=0.0)
    folder = kf.export.export(model, tmp_path / "out", target="mediapipe", quantize=loose, lengths=[32])
    pipe = kf.pipeline(folder, "text-classification")
    for classes in pipe(TEXTS, top_k=None):
        assert len({each["score"] for each in classes}) > 60


def test_a_warning_about_different_tokens(tmp_path):
    with pytest.warns(MediapipeTokenizerWarning, match="keeps accents"):
        exported(ROWS["bert-feature-extraction"], tmp_path / "out", lengths=[8])


@quiet
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bert-text-classification", {"lengths": [16, 32]}, r"single length .*lengths=\[16, 32\]"),
    ],
)
def test_other_models_are_refused(name, settings, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        exported({**ROWS, **OTHERS}[name], tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


@quiet
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "regression", "num_labels": 1}, "a regression model"),
        *(
            ({"num_labels": None, "id2label": {0: "good", 1: label}}, "one name per line")
            for label in ("so\nso", "so\rso", "so\r", "so\0so", " ")
        ),
    ],
)
def test_other_answers_are_refused(changes, message, tmp_path):
    row = ROWS["bert-text-classification"]
    settings = {name: value for name, value in {**row.settings, **changes}.items() if value is not None}
    with pytest.raises(ExportError, match=message):
        exported(replace(row, settings=settings), tmp_path / "out")


def changed(change: Callable[[Backend], Any], **edits: Any) -> Tokenizer:
    """Returns the tiny WordPiece tokenizer with a change, and `edits` of its model."""
    content = json.loads(tiny_text.wordpiece().backend.to_str())
    content["model"] |= edits
    backend = Backend.from_str(json.dumps(content))
    change(backend)
    return Tokenizer(backend, special_tokens=tiny_text.wordpiece().special_tokens)


def _normalizer(**settings: Any) -> Callable[[Backend], None]:
    return lambda backend: setattr(backend, "normalizer", normalizers.BertNormalizer(**settings))


def _around(template: str) -> Callable[[Backend], None]:
    ids = [(token, tiny_text.wordpiece().token_to_id(token)) for token in ("[CLS]", "[SEP]", "[MASK]")]
    made = processors.TemplateProcessing(single=template, special_tokens=ids)
    return lambda backend: setattr(backend, "post_processor", made)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (changed(_normalizer(lowercase=False)), "a cased model"),
        (changed(_normalizer(handle_chinese_chars=False)), "isolates Chinese characters"),
        (changed(lambda each: setattr(each, "normalizer", normalizers.Lowercase())), "the tokenizer has Lowercase"),
        (changed(_around("[SEP] $A [SEP]")), r"the tokenizer \[SEP\] … \[SEP\]"),
        (changed(_around("[CLS]:1 $A:1 [SEP]:1")), "token type 0"),
        (changed(lambda each: each.add_tokens([AddedToken("wow")])), "added tokens; the tokenizer has wow"),
        (changed(lambda each: None, continuing_subword_prefix="@@"), "the tokenizer with '@@'"),
        (changed(lambda each: None, max_input_chars_per_word=50), "the tokenizer of more than 50"),
        (tiny_text.byte_pairs(), "of the kind BPE"),
        (None, "model.tokenizer=None"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_other_tokenizers_are_refused(tokenizer, message):
    with pytest.raises(ExportError, match=message):
        check(tokenizer)


def test_a_vocabulary_with_gaps_keeps_its_ids():
    vocab = {
        "[PAD]": 0,
        "[UNK]": 1,
        "[CLS]": 2,
        "[SEP]": 3,
        "": 4,
        "a": 6,
        "b\r": 7,
        "c": 8,
        "d\re": 9,
        "f\0g": 10,
        "h": 11,
    }
    tokenizer = changed(lambda each: None, vocab=vocab)
    lines = vocabulary(tokenizer).content.decode().split("\n")
    assert {line: place for place, line in enumerate(lines) if " " not in line and line} == {
        token: index for token, index in vocab.items() if token.isprintable() and token
    }


def test_metadata_leave_a_model_as_it_is(tmp_path):
    inputs = {name: TensorInfo((1, 8), "int32") for name in ("input_ids", "attention_mask")}
    outputs = {"sums": TensorInfo((1, 8), "int32")}
    function = Function("add", inputs, outputs, lambda input_ids, attention_mask: {"sums": input_ids + attention_mask})
    path = tmp_path / "model.tflite"
    write_tflite([function], [], recipe("none"), path)
    before = path.read_bytes()
    order = input_order(path)
    attach(
        path, metadata("name", "", [Tensor(name, "") for name in order], Tensor("sums", ""), VOCABULARY), {"a": b"b"}
    )
    after = path.read_bytes()
    start = after.index(before)
    assert start % 64 == 0 and input_order(path) == order
    old, new = (schema().ModelT.InitFromPackedBuf(bytearray(content), 0) for content in (before, after))
    assert [each.name for each in new.metadata] == [*(each.name for each in old.metadata), b"TFLITE_METADATA"]
    added = bytes(new.buffers[new.metadata[-1].buffer].data)
    assert added[4:8] == b"M001" and new.version == old.version
    assert [each.data is None or bytes(each.data) for each in new.buffers[:-1]] == [
        each.data is None or bytes(each.data) for each in old.buffers
    ]
    with pytest.raises(ExportError, match="Metadata can be added"):
        attach(path, added, {})


VOCABULARY = vocabulary(tiny_text.wordpiece())
