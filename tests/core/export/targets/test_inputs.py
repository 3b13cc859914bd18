"""Models with an input that a runtime does not pass, or with a tokenizer that it cannot read."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle, zoo
from kerasformer.errors import ExportError, InputError
from kerasformer.tokenization import Tokenizer
from tests.code_blocks import card_texts
from tests.core.export.text_models import shared_model
from tests.core.tokenization.conftest import MOSES, write

pytestmark = pytest.mark.grid


@pytest.mark.parametrize("target", ["mediapipe", "optimum", "transformers.js"])
def test_a_model_with_languages_is_refused(target: str, tmp_path: Path) -> None:
    model = shared_model("xlm-token-classification")
    with pytest.raises(ExportError, match="XlmTokenClassification, which also has langs. Remove target"):
        kf.export.export(model, tmp_path / "out", target=target)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_splits_special_tokens_is_refused(tmp_path: Path) -> None:
    """Only of transformers' own tokenizer is it known that it does so, too; the plain bundle has the setting."""
    model = shared_model("bert-text-classification")
    model.tokenizer.save(tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_special_tokens": True}))
    original, model.tokenizer = model.tokenizer, Tokenizer.load(tmp_path / "tokenizer")
    try:
        for target in ("mediapipe", "transformers.js", "litert-web", "triton", "litert-lm"):
            with pytest.raises(ExportError, match="reads names of special tokens .*split_special_tokens=True.*Remove"):
                kf.export.export(model, tmp_path / "out", target=target)
        for target in (None, "optimum"):
            folder = kf.export.export(model, tmp_path / str(target), "onnx", target=target)
            bundled = kf.pipeline(folder).tokenizer
            assert bundled.encode("a [SEP] b") == model.tokenizer.encode("a [SEP] b") != original.encode("a [SEP] b")
    finally:
        model.tokenizer = original


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of two languages with a tokenizer of its family."""
    vocabulary, config, _ = MOSES["xlm"]
    folder = write(tmp_path_factory.mktemp("xlm"), {**vocabulary(), "config.json": config})
    tokenizer = Tokenizer.load(folder)
    keras.utils.set_random_seed(3)
    sizes = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "max_length": 48, "initializer_range": 0.3}
    languages = {"n_languages": 2, "lang2id": {"en": 0, "fr": 1}}
    model = zoo.build("xlm", "fill-mask", vocab_size=tokenizer.vocab_size, **sizes, **languages)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("format", ["tflite", "onnx", "saved-model"])
def test_texts_of_a_language(multilingual: Any, format: str, tmp_path: Path) -> None:
    folder = kf.export.export(multilingual, tmp_path / "out", format)
    ours, bundled = (kf.pipeline(source, "fill-mask") for source in (multilingual, folder))
    answers = {}
    for language in (None, "en", "fr"):  # without a language, the model adds no language embedding
        if language is not None:
            ours.tokenizer.language = bundled.tokenizer.language = language
        expected, received = (pipe("The <special1> was, long!", top_k=400) for pipe in (ours, bundled))
        answers[language] = [each["score"] for each in sorted(expected, key=lambda each: each["token"])]
        scores = [each["score"] for each in sorted(received, key=lambda each: each["token"])]
        np.testing.assert_allclose(scores, answers[language], atol=1e-6)
    ours.tokenizer.language = None
    for one, other in itertools.combinations(answers.values(), 2):
        assert not np.allclose(one, other, atol=1e-4)
    with pytest.raises(InputError, match="langs must be from -1 to 1. Received: 2 to 2"):
        bundled.model.run({"input_ids": np.array([[5]]), "langs": np.array([[2]])})
    card = card_texts(folder)
    assert not (folder / "tokenizer.json").exists() and "AutoTokenizer.from_pretrained(" in card
    assert "Tokenizer.from_file" not in card
    # Other programs choose no language either: they read the default of the input in the manifest.
    defaults = [inputs["langs"].default for inputs in (each.inputs for each in bundle.read(folder).signatures.values())]
    assert defaults and set(defaults) == {-1}


@pytest.mark.parametrize("target", ["litert-web", "transformers.js"])
def test_a_tokenizer_without_its_file_is_refused(multilingual: Any, target: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="reads tokenizer.json, .* Received: MosesTokenizer. Remove target"):
        kf.export.export(multilingual, tmp_path / "out", target=target)
