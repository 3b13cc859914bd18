"""Bundles for LiteRT.js run in Chromium, with a program that knows only their manifest."""

from __future__ import annotations

import json
import re
import shutil
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
from tests.foreign.environments import HERE, need
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_classes, check_tokens
from tests.tools.web.sites import Browser, browser, served_folder

TEXTS = ["A fine film.", READING[0], READING[1]]
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    need("chromium")
    with browser() as opened:
        yield opened


def with_page(folder: Path) -> Path:
    """Writes the program, and a page with the import map in its first lines."""
    shutil.copyfile(HERE / "programs" / "litert_web.js", folder / PROGRAM)
    lines = (folder / PROGRAM).read_text(encoding="utf-8").splitlines()
    comment = "\n".join(line.removeprefix("//") for line in lines if line.startswith("//"))
    (imports,) = re.findall(r"<script type=.importmap.>.*?</script>", comment, re.DOTALL)
    (folder / "index.html").write_text(f"<!doctype html><title>bundle</title>{imports}", encoding="utf-8")
    (folder / "node_modules").symlink_to(need("node"))
    return folder


def opened(case: Case, folder: Path) -> tuple[Any, Path]:
    """Returns the Keras model and its bundle."""
    model = case.model()
    return model, case.export(folder, model, target="litert-web")


PROGRAM = "./litert_web.js"


def answers(page: Browser, *texts: str) -> dict[str, list[float]]:
    """Returns the result of the program's function `run`."""
    code = "async (path, ...texts) => Object.entries(await (await import(path)).run(...texts))"
    return dict(page.call(f"async (...all) => (await ({code})(...all)).map(([k, v]) => [k, [...v]])", PROGRAM, *texts))


def tokens(page: Browser, text: str, language: str | None = None) -> list[int]:
    """Returns the result of the program's function `generate`."""
    code = "async (path, text, count, ...rest) => (await import(path)).generate(text, count, () => {}, ...rest)"
    return page.call(code, PROGRAM, text, NEW_TOKENS, *filter(None, [language]))


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
@cases(*ENCODERS, tiny("deberta-v2", "token-classification"), *(embedder(name) for name in EMBEDDERS))
def test_encoders(case: Case, page: Browser, tmp_path: Path) -> None:
    model, folder = opened(case, tmp_path / "bundle")
    with served_folder(with_page(folder)) as url:
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
@cases(*GENERATORS, *DECODERS, *ENCODER_DECODERS, tiny("m2m_100", "text2text-generation"))
def test_generators(case: Case, page: Browser, tmp_path: Path) -> None:
    model, folder = opened(case, tmp_path / "bundle")
    with served_folder(with_page(folder)) as url:
        page.open(url)
        for text in [*TEXTS, "Once upon a time"]:
            expected = model.generate(
                model.tokenizer(text).input_ids, max_new_tokens=NEW_TOKENS, do_sample=False, jit_compile=False
            )
            assert tokens(page, text) == np.asarray(expected)[0].tolist(), text


@pytest.mark.foreign("litert-web")
def test_a_pair_of_texts(page: Browser, tmp_path: Path) -> None:
    model, folder = opened(tiny("bert", "question-answering"), tmp_path / "bundle")
    encoded = model.tokenizer(["Who?"], [TEXTS[0]])
    expected = model.named(model({name: getattr(encoded, name) for name in model.input_names}))
    with served_folder(with_page(folder)) as url:
        page.open(url)
        received = answers(page, "Who?", TEXTS[0])
    for name, tensor in expected.items():
        values = keras.ops.convert_to_numpy(tensor)
        close(received[name][: values.size], values)


@pytest.mark.foreign("litert-web")
def test_forbidden_and_first_tokens_and_limits(page: Browser, tmp_path: Path) -> None:
    model = tiny("bart", "text2text-generation").model()
    prompt = model.tokenizer(TEXTS[:1]).input_ids
    greedy = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "jit_compile": False}
    forbidden, *words = dict.fromkeys(np.asarray(model.generate(prompt, **greedy))[0].tolist()[:3])
    settings = {"suppress_tokens": (forbidden,), "bad_words_ids": [[word] for word in words]}
    model.generation_config = model.generation_config.replace(forced_bos_token_id=120, **settings)
    folder = kf.export.export(model, tmp_path / "bundle", "tflite", target="litert-web", capacity=64, lengths=[16])
    expected = np.asarray(model.generate(prompt, **greedy))[0].tolist()
    with served_folder(with_page(folder)) as url:
        page.open(url)
        assert tokens(page, TEXTS[0]) == expected
        assert expected[0] == 120 and not {*expected} & {forbidden, *words}
        with pytest.raises(AssertionError, match="A text can have 1 to 16 tokens. Received: "):
            tokens(page, TEXTS[0] * 9)
    # The same for a language that an argument selects.
    manifest = json.loads((folder / bundle.MANIFEST).read_text())
    manifest["info"]["languages"] = {"ids": {"deu": 120, "ron": 121}, "setting": "forced_bos_token_id"}
    del manifest["info"]["generation"]["forced_bos_token_id"]
    (folder / bundle.MANIFEST).write_text(json.dumps(manifest))
    with served_folder(folder) as url:
        page.open(url)
        assert tokens(page, TEXTS[0], "deu") == expected and tokens(page, TEXTS[0], "ron")[0] == 121
        with pytest.raises(AssertionError, match="Pass the language of the output, one of deu, ron"):
            tokens(page, TEXTS[0])


@pytest.mark.foreign("litert-web")
@cases(tiny("bert", "text-classification", "int8"), recipes=("int8",))
def test_int8_classes(case: Case, page: Browser, tmp_path: Path) -> None:
    """Checked by the margins of the Keras model."""
    model, folder = opened(case, tmp_path / "bundle")
    pipe = keras_pipeline(model, case.task)
    with served_folder(with_page(folder)) as url:
        page.open(url)
        received = softmax(np.array([answers(page, text)["logits"] for text in TEXTS]))
    expected = [{each["label"]: each["score"] for each in classes} for classes in pipe(TEXTS, top_k=None)]
    check_classes(folder, [[scores[label] for label in pipe.info.labels] for scores in expected], received)


@pytest.mark.foreign("litert-web")
@cases(tiny("gpt2", "text-generation", "int8"))  # test_int8_classes has the same kernels
def test_int8_tokens(case: Case, page: Browser, tmp_path: Path) -> None:
    """Greedy tokens, checked by the margins of the Keras model."""
    model, folder = opened(case, tmp_path / "bundle")
    prefix = kf.pipeline(folder, case.task).info.task_prefixes.get(case.task, "")
    greedy = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    with served_folder(with_page(folder)) as url:
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
