"""Entities of types that are named in the call: the answers of GLiNER, its folders, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file

import kerasformer as kf
from kerasformer.bundle import Bundle
from kerasformer.errors import (
    CapacityError,
    CheckpointError,
    ExportError,
    InputError,
    SourceError,
    UnsupportedConfigError,
)
from kerasformer.files import gliner
from kerasformer.models.config import ConfigWarning
from kerasformer.tokenization.truncation import TruncationWarning
from tests import shared, tiny_text
from tests.core.pipelines.gliner_folders import ANSWERS, CALLS, CONFIGS, LABELS, TEXTS, write_folder

RECORDED = json.loads(ANSWERS.read_text())
EXACT = 1e-5


def compare(pipe: Any, kind: str, exact: float = EXACT) -> None:
    for call, expected in zip(CALLS, RECORDED[kind]["answers"], strict=True):
        for text, entities, row in zip(TEXTS, pipe(TEXTS, LABELS, batch_size=3, **call), expected, strict=True):
            assert [[each["start"], each["end"], each["entity_group"]] for each in entities] == [x[:3] for x in row]
            assert [each["score"] for each in entities] == pytest.approx([x[3] for x in row], abs=exact)
            assert all(each["word"] == text[each["start"] : each["end"]] for each in entities)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("gliner")
    return {kind: write_folder(root / kind, kind, RECORDED[kind]["shapes"]) for kind in CONFIGS}


@pytest.fixture(scope="module")
def pipe(folders: dict[str, Path]) -> Any:
    return kf.pipeline(folders["deberta-v2"])


@pytest.mark.parametrize("kind", CONFIGS)
def test_answers_are_those_of_gliner(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    model = kf.load(folders[kind], "token-classification")
    pipe = kf.pipeline(model, "ner")
    assert pipe.task == model.task == "zero-shot-token-classification"
    compare(pipe, kind)
    alone, together = pipe(TEXTS[0], "person, the train, city"), pipe(TEXTS[:2], LABELS)[0]
    assert alone and len(alone) == len(together)
    assert all(a == pytest.approx(b) for a, b in zip(alone, together, strict=True))
    # The folder that is saved has the same tensors; `gliner` does not use the pooler of BERT.
    model.save_pretrained(tmp_path / "saved")
    saved, written = (load_file(path / "model.safetensors") for path in (folders[kind], tmp_path / "saved"))
    assert {name for name in saved if ".pooler." not in name} == set(written)
    assert all((saved[name] == written[name]).all() for name in written)
    compare(kf.pipeline(tmp_path / "saved"), kind)


def test_early_folders_name_their_encoder(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, base = tmp_path / "early", tmp_path / "base"
    config = CONFIGS["bert"]["encoder_config"]
    write_folder(early, "bert", RECORDED["bert"]["shapes"], encoder_config=None, model_name="owner/base")
    base.mkdir()
    (base / "config.json").write_text(json.dumps({**config, "vocab_size": 3, "architectures": ["BertForMaskedLM"]}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (early / name).rename(base / name)
    tensors = load_file(early / "model.safetensors")
    torch.save({name: torch.tensor(value) for name, value in tensors.items()}, early / "pytorch_model.bin")
    (early / "model.safetensors").unlink()
    monkeypatch.setattr(gliner, "resolve", {"owner/base": base}.__getitem__)
    compare(kf.pipeline(early), "bert")
    (early / "gliner_config.json").write_text(json.dumps({"model_name": "../base"}))
    with pytest.raises(
        SourceError, match="must name its encoder, a preset or a hub id.*Received: model_name='../base'"
    ):
        kf.load(early)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "tokens": ({"span_mode": "token_level"}, "only span_mode='markerV0'. Received: span_mode='token_level'"),
    "other spans": ({"span_mode": "markerV1"}, "only span_mode='markerV0'"),
    "two encoders": ({"labels_encoder": "owner/base"}, "labels_encoder=False or ''. Received: .*='owner/base'"),
    "relations": ({"relations_layer": "none"}, "relations_layer=.*Received: relations_layer='none'"),
    "decoder": ({"labels_decoder": "gpt2"}, "Received: labels_decoder='gpt2'"),
    "pooling": ({"subtoken_pooling": "mean"}, "only subtoken_pooling='first'"),
    "words": ({"words_splitter_type": "spacy"}, "only words_splitter_type='whitespace'"),
    "model type": ({"model_type": "gliner_bi_encoder_span"}, "Received: model_type='gliner_bi_encoder_span'"),
    "two LSTMs": ({"num_rnn_layers": 2}, "num_rnn_layers must be an integer from 0 to 1. Received: 2"),
    "odd": ({"hidden_size": 21}, "hidden_size must be even"),
    "marks": ({"sep_token": "<<ENT>>"}, "must be two different tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_not_implemented_are_refused(name: str, tmp_path: Path) -> None:
    changes, message = REFUSED[name]
    folder = write_folder(tmp_path / "model", "deberta-v2", RECORDED["deberta-v2"]["shapes"], **changes)
    with pytest.raises(UnsupportedConfigError, match=message):
        kf.load(folder)


def test_folders_with_defects(tmp_path: Path) -> None:
    shapes = RECORDED["bert"]["shapes"]
    unknown = write_folder(tmp_path / "unknown", "bert", shapes, span_temperature=2)
    with pytest.warns(ConfigWarning, match="unsupported keys, which are ignored: span_temperature"):
        kf.load(unknown)
    tensors = load_file(unknown / "model.safetensors")
    del tensors["prompt_rep_layer.3.bias"]
    save_file({**tensors, "rnn.lstm.weight_ih_l0": tensors["prompt_rep_layer.0.weight"]}, unknown / "model.safetensors")
    with pytest.warns(ConfigWarning), pytest.raises(CheckpointError, match=r"prompt_rep_layer\.3\.bias"):
        kf.load(unknown)
    encoder = {**CONFIGS["bert"]["encoder_config"], "model_type": "roberta"}
    with pytest.raises(InputError, match="roberta has no such task"):
        kf.load(write_folder(tmp_path / "roberta", "bert", shapes, encoder_config=encoder))
    with pytest.raises(InputError, match="the tokens <<ENT>> and <<SEP>>.*Received: one without <<ENT>> and <<SEP>>"):
        folder = write_folder(tmp_path / "tokenizer", "bert", shapes)
        kf.pipeline(folder, tokenizer=tiny_text.wordpiece())


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "none": ({"labels": []}, InputError, r"names of types.*Received: \[\]"),
    "empty": ({"labels": ["person", " "]}, InputError, "none of them empty"),
    "commas": ({"labels": "person,,city"}, InputError, "none of them empty. Received: 'person,,city'"),
    "double": ({"labels": ["city", "a", "city"]}, InputError, "labels must differ. Received several times: 'city'"),
    "mark": ({"labels": ["a <<ENT>> b"]}, InputError, "must not contain <<ENT>> or <<SEP>>. Received: 'a <<ENT>> b'"),
    "no text": ({"labels": ["city"], "inputs": 3}, InputError, "A text or a list of them was expected"),
    "long": ({"labels": ["the sea " * 40]}, CapacityError, "leave no space for a text. Expected: fewer than 64 tokens"),
    "many": ({"labels": [f"city {i}" for i in range(100)]}, CapacityError, r"Received: \d+ tokens of 100 labels"),
    "threshold": ({"labels": ["city"], "threshold": 1.5}, InputError, "threshold must be"),
    "flat": ({"labels": ["city"], "flat_ner": "no"}, InputError, "flat_ner must be True or False"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str, pipe: Any) -> None:
    arguments, error, message = BAD[name]
    with pytest.raises(error, match=message):
        pipe(**{"inputs": TEXTS[0], **arguments})


def test_long_texts_are_refused_or_truncated(pipe: Any) -> None:
    words, label = "the " * 50, ["the"]  # more words than the model may read
    with pytest.raises(CapacityError, match="at most 40 words and, with the labels, 64 tokens.*50 words, of which 40"):
        pipe(words, label)
    with pytest.warns(TruncationWarning, match="50 words, of which 40"):
        assert pipe(words, label, truncation=True, threshold=0.3) == pipe("the " * 40, label, threshold=0.3) != []
    pieces = "remembered " * 30  # fewer words, of several tokens each
    with pytest.warns(TruncationWarning, match="30 words, of which") as warned:
        entities = pipe(pieces, LABELS, truncation=True, threshold=0.3)
    count = int(str(warned[0].message).split(", of which ")[1].split()[0])
    assert 0 < count < 30 and entities == pipe("remembered " * count, LABELS, threshold=0.3)
    with pytest.raises(CapacityError):
        pipe("remembered " * (count + 1), LABELS)


def exported(folder: Path, format: str, quantize: str = "none") -> Path:
    sizes: dict[str, Any] = {"lengths": (32, 64), "num_labels": len(LABELS)} if format == "litert" else {}
    return shared.exported(kf.load(folder), format, quantize, **sizes)


@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_bundles_have_the_answers_of_gliner(format: str, folders: dict[str, Path]) -> None:
    folder = exported(folders["deberta-v2"], format)
    pipe = kf.pipeline(folder, "token-classification")
    compare(pipe, "deberta-v2")
    # Texts of any number of words are read together, and by the smallest signature that holds them.
    assert pipe("Rain", ["sea"], threshold=0.0) == pipe(["Rain", TEXTS[0]], ["sea"], threshold=0.0)[0]
    with pytest.raises(CapacityError, match="leave no space for a text"):
        pipe(TEXTS[0], ["the sea " * 40])
    if format == "litert":
        assert pipe.info.spans.max_words == 40 and pipe.info.spans.max_labels == 3
        with pytest.raises(CapacityError, match="at most 3 labels in one call. Received: 100.*larger num_labels"):
            pipe(TEXTS[0], [f"city {i}" for i in range(100)])
    signature = next(iter(Bundle(folder).manifest.signatures.values()))
    assert list(signature.outputs) == ["span_logits"] and signature.inputs["word_slots"].default == -1


@pytest.mark.grid
def test_bundles_in_int8(folders: dict[str, Path]) -> None:
    fidelity = Bundle(exported(folders["deberta-v2"], "litert", "int8")).manifest.fidelity
    assert fidelity["agreement"] > 0.98 and fidelity["max_error"] < 0.03 and fidelity["answers"] > 4000


@pytest.mark.grid
@pytest.mark.parametrize(
    ("kind", "format"),
    [
        pytest.param("bert", "litert", marks=pytest.mark.release),
        pytest.param("modernbert", "litert", marks=pytest.mark.release),
        ("modernbert", "onnx"),
    ],
)
def test_bundles_of_other_encoders(kind: str, format: str, folders: dict[str, Path]) -> None:
    compare(kf.pipeline(exported(folders[kind], format)), kind)
    assert Bundle(exported(folders[kind], format, "int8")).manifest.fidelity["agreement"] > 0.98


def test_exports_that_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    model = kf.load(folders["bert"])
    with pytest.raises(ExportError, match="exported in the formats litert and onnx.*Received: format='saved-model'"):
        model.export(tmp_path / "bundle", "saved_model")
    with pytest.raises(InputError, match="tokenizer is not for models that read slots"):
        model.export(tmp_path / "bundle", "litert", tokenizer="in-graph")
    with pytest.raises(InputError, match="num_labels is only for zero-shot-token-classification"):
        kf.zoo.build("bert", num_layers=1, vocab_size=180).export(tmp_path / "bundle", "litert", num_labels=3)
    with pytest.raises(ExportError, match="passes only input_ids, attention_mask.*Received: BertSpanExtraction"):
        model.export(tmp_path / "bundle", target="mediapipe")


def test_models_for_other_tasks(folders: dict[str, Path], pipe: Any) -> None:
    assert kf.pipeline(folders["bert"], "feature-extraction")("Rain").shape[-1] == 24
    with pytest.raises(InputError, match="zero-shot-token-classification needs a model of GLiNER"):
        model = kf.zoo.build("bert", "token-classification", num_layers=1, vocab_size=180)
        kf.pipeline(model, "zero-shot-token-classification", tokenizer=tiny_text.wordpiece())
    with pytest.raises(InputError, match="This source is for zero-shot-token-classification"):
        kf.pipeline(kf.load(folders["bert"]), "fill-mask")
    assert pipe.model.model.max_length == 64 and "\x00" not in pipe("Rain \x00 sea", LABELS, threshold=0.0)[0]["word"]
