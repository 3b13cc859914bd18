"""Bundles for LiteRT.js run in Chromium with the code on their cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle import Manifest, ModelInfo, Signature, TensorInfo
from kerasformer.errors import ExportError
from kerasformer.export.graph.functions import Function
from kerasformer.export.reference_texts import READING
from kerasformer.export.targets import TARGETS
from kerasformer.pipelines.base import softmax
from tests.foreign.cases import DECODERS, EMBEDDERS, ENCODER_DECODERS, Case, cases, embedder, tiny
from tests.foreign.environments import need
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_classes, check_tokens
from tests.web.pages import Page, chromium, served

TEXTS = ["A fine film.", READING[0], READING[1]]
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    need("chromium")
    with chromium() as opened:
        yield opened


def card_page(folder: Path) -> Path:
    """Writes the page of the model card into the bundle's folder."""
    card = (folder / "README.md").read_text(encoding="utf-8").partition("## LiteRT.js")[2]
    html, code = (re.findall(rf"```{language}\n(.*?)```", card, re.DOTALL)[0] for language in ("html", "javascript"))
    (folder / "index.html").write_text(f"<!doctype html><title>card</title>{html}", encoding="utf-8")
    (folder / "model.js").write_text(code, encoding="utf-8")
    (folder / "node_modules").symlink_to(need("node"))
    return folder


def opened(case: Case, folder: Path) -> tuple[Any, Path]:
    """Returns the Keras model and its bundle."""
    model = case.model()
    return model, case.export(folder, model, target="litert-web")


def answers(page: Page, text: str) -> dict[str, list[float]]:
    """Returns the result of the card's function `run`."""
    code = "async (text) => Object.entries(await (await import('./model.js')).run(text)).map(([k, v]) => [k, [...v]])"
    return dict(page.call(code, text))


def tokens(page: Page, text: str) -> list[int]:
    """Returns the result of the card's function `generate`."""
    return page.call("async (text, count) => (await import('./model.js')).generate(text, count)", text, NEW_TOKENS)


def close(received: Any, expected: np.ndarray) -> None:
    """Checks float32 values from other kernels: within 1e-5 of the greatest value."""
    np.testing.assert_allclose(np.reshape(received, expected.shape), expected, atol=1e-5 * np.abs(expected).max())


ENCODERS = [
    tiny("bert", "text-classification"),
    tiny("bert", "token-classification"),
    tiny("bert", "question-answering"),
    tiny("bert", "fill-mask"),
    tiny("bert", "feature-extraction"),
    tiny("distilbert", "text-classification"),
    tiny("albert", "text-classification"),
    tiny("roberta", "text-classification"),
    tiny("xlm-roberta", "feature-extraction"),
    tiny("electra", "fill-mask"),
    tiny("mobilebert", "text-classification"),
    tiny("mpnet", "feature-extraction"),
    tiny("modernbert", "token-classification"),
    tiny("longformer", "text-classification"),
    tiny("big_bird", "question-answering"),
    tiny("deberta", "token-classification"),
    tiny("xlm", "fill-mask"),
]
GENERATORS = [
    tiny("gpt2", "text-generation"),
    tiny("t5", "text2text-generation"),
    tiny("bart", "text2text-generation"),
]


@pytest.mark.foreign("litert-web")
@cases(
    *ENCODERS,
    embedder("bert"),
    rest=[
        tiny("deberta-v2", "token-classification"),
        *(embedder(name) for name in EMBEDDERS if name != "bert"),
    ],
)
def test_encoders(case: Case, page: Page, tmp_path: Path) -> None:
    model, folder = opened(case, tmp_path / "bundle")
    with served(card_page(folder)) as url:
        page.open(url)
        for text in TEXTS:
            encoded = model.tokenizer(text)
            arrays = {"input_ids": encoded.input_ids, "attention_mask": encoded.attention_mask}
            arrays["token_type_ids"] = encoded.token_type_ids
            expected = model.named(model({name: arrays[name] for name in model.input_names}))
            received = answers(page, text)
            assert set(received) == set(expected)
            for name, tensor in expected.items():
                values = keras.ops.convert_to_numpy(tensor)
                # In outputs with an entry for each token, the entries of padding come last.
                close(received[name][: values.size], values)


@pytest.mark.foreign("litert-web")
@cases(*GENERATORS, rest=[*DECODERS, *ENCODER_DECODERS, tiny("m2m_100", "text2text-generation")])
def test_generators(case: Case, page: Page, tmp_path: Path) -> None:
    model, folder = opened(case, tmp_path / "bundle")
    with served(card_page(folder)) as url:
        page.open(url)
        for text in [*TEXTS, "Once upon a time"]:
            expected = model.generate(
                model.tokenizer(text).input_ids, max_new_tokens=NEW_TOKENS, do_sample=False, jit_compile=False
            )
            assert tokens(page, text) == np.asarray(expected)[0].tolist(), text


@pytest.mark.foreign("litert-web")
@cases(tiny("bert", "text-classification", "int8"), Case("sentiment-bert", "int8"))
def test_int8_classes(case: Case, page: Page, tmp_path: Path) -> None:
    """Checked by the margins of the Keras model."""
    model, folder = opened(case, tmp_path / "bundle")
    pipe = keras_pipeline(model, case.task)
    with served(card_page(folder)) as url:
        page.open(url)
        received = softmax(np.array([answers(page, text)["logits"] for text in TEXTS]))
    expected = [{each["label"]: each["score"] for each in classes} for classes in pipe(TEXTS, top_k=None)]
    check_classes(folder, [[scores[label] for label in pipe.info.labels] for scores in expected], received)


@pytest.mark.foreign("litert-web")
@cases(
    tiny("gpt2", "text-generation", "int8"), Case("story-gpt2", "int8"), Case("summarizer-t5", "int8", "summarization")
)
def test_int8_tokens(case: Case, page: Page, tmp_path: Path) -> None:
    """Greedy tokens, checked by the margins of the Keras model."""
    model, folder = opened(case, tmp_path / "bundle")
    prefix = kf.pipeline(folder, case.task).info.task_prefixes.get(case.task, "")
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    with served(card_page(folder)) as url:
        page.open(url)
        generated = [tokens(page, text) for text in TEXTS]
    prompts = [model.tokenizer.encode(prefix + text) for text in TEXTS]
    check_tokens(model, folder, prompts, generated, NEW_TOKENS, greedy)


def test_signatures_that_a_page_does_not_call(tmp_path: Path) -> None:
    """They are omitted, and the bundle still works in Python."""
    model, folder = opened(tiny("gpt2", "text-generation"), tmp_path / "bundle")
    names = bundle.read(folder).signatures
    assert "decode" in names
    assert not [name for name in names if "rows" in name or "verify" in name]
    expected = keras_pipeline(model, "text-generation")("Once upon a time", max_new_tokens=4)
    assert kf.pipeline(folder, "text-generation")("Once upon a time", max_new_tokens=4) == expected


@pytest.mark.parametrize(
    "info",
    [TensorInfo((1, 4), "int64"), TensorInfo((1, 4), "bool"), TensorInfo(("batch_size", 4), "int32")],
    ids=["int64", "bool", "dynamic"],
)
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_unsupported_tensors(info: TensorInfo, side: str) -> None:
    tensors = {"inputs": {}, "outputs": {}, side: {"tokens": info}}
    function = Function("decode", call=dict, **tensors)
    with pytest.raises(
        ExportError,
        match="LiteRT.js supports only float32 and int32 tensors with static shapes. Received: tokens of decode",
    ):
        TARGETS["litert-web"].functions(None, [function])


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    manifest = Manifest("tflite", ModelInfo("fill-mask"), {"forward_16": Signature("model.tflite", {}, {})})
    with (tmp_path / "model.tflite").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ExportError, match=r"smaller than 2 GB. Received: model.tflite of 2.1 GB"):
        TARGETS["litert-web"].finish(None, manifest, tmp_path)


def test_another_format(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="requires format='tflite'. Received: format='onnx'"):
        kf.export.export("sentiment-bert", tmp_path / "out", format="onnx", target="litert-web")
