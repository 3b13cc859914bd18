"""optimum runs the plain ONNX folder with the answers of Keras; unsupported settings are refused at export."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.errors import ExportError
from kerasformer.export.reference_texts import PROMPTS
from kerasformer.pipelines.base import sigmoid, softmax
from tests import tiny_text
from tests.core.export.text_models import ROWS, Row
from tests.foreign.cards import block
from tests.foreign.cases import (
    CROSS_ENCODER,
    CROSS_ENCODER_OF_PIECES,
    DECODERS,
    EMBEDDERS,
    NLI,
    Case,
    cases,
    embedder,
    tiny,
)
from tests.foreign.environments import started
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_arrays, check_classes, check_tokens, cosines

TEXTS = list(PROMPTS[:5])
NEW = 12
SEARCHES = [
    {"max_new_tokens": NEW, "do_sample": False, "num_beams": 1},
    {"max_new_tokens": NEW, "do_sample": False, "num_beams": 3},
]
# The decoders of these rows have heads whose sizes add up to the hidden size, as optimum requires.
OF_FULL_SIZE = [
    Case(dataclasses.replace(case.source, settings={**case.source.settings, "head_dim": 12}))
    if case.model_type in ("gemma3_text", "llama")
    else case
    for case in DECODERS
]
BART = dataclasses.replace(
    ROWS["bart-text2text-generation"],
    settings={**ROWS["bart-text2text-generation"].settings, "decoder_num_heads": 3},
)
# Its table is large enough to be stored in a third file.
T5 = Row(
    "t5",
    "text2text-generation",
    {
        "hidden_dim": 168,
        "head_dim": 56,
        "num_layers": 2,
        "num_heads": 3,
        "intermediate_dim": 90,
        "decoder_start_token_id": 0,
        "task_specific_params": {
            "summarization": {"prefix": "the way of "},
            "translation": {"prefix": "home from "},
        },
    },
    tiny_text.pieces,
    min_agreement=0.95,
    seed=3,
)
TASKS = ("text-classification", "token-classification", "question-answering", "fill-mask", "feature-extraction")


Ask = Callable[[Any], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Starts the program once, because loading takes longer than its runs."""
    with started("optimum", "optimum_answers.py") as answer:
        yield answer


def request(folder: Path) -> dict[str, Any]:
    """Returns the request that opens a bundle as its card does."""
    card = (folder / "README.md").read_text().partition("## optimum")[2]
    match = re.search(r"(ORTModelFor\w+)\.from_pretrained\(folder(?:, (\w+)=\"(.+)\")?\)", card)
    assert match is not None, card
    options = {match[2]: match[3]} if match[2] else {}
    return {"folder": str(folder), "class": match[1], "options": options}


def successful(answer: Any) -> Any:
    """Returns an answer; fails if it is an error."""
    assert "error" not in answer, answer["error"]
    return answer


def assert_same(actual: Any, expected: Any) -> None:
    """Checks that names and texts are equal, and numbers nearly equal."""
    if isinstance(expected, dict):
        assert actual.keys() >= expected.keys()
        for name, value in expected.items():
            assert_same(actual[name], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-4, atol=1e-5)
    else:
        assert actual == expected


def calls(task: str, mask: str) -> list[dict[str, Any]]:
    """Returns the calls of the pipelines."""
    if task == "question-answering":
        return [{"args": [], "kwargs": {"question": "Who came home?", "context": text}} for text in TEXTS[:2]]
    texts = [f"{text} {mask}" for text in TEXTS[:2]] if task == "fill-mask" else TEXTS[:2]
    return [{"args": [text], "kwargs": {}} for text in texts]


def for_transformers(task: str, call: dict[str, Any]) -> dict[str, Any]:
    """Returns the equivalent call of the transformers pipeline."""
    options = {"align_to_words": False} if task == "question-answering" else {}
    return {**call, "kwargs": {**call["kwargs"], **options}}


def normalized(task: str, answer: Any, call: dict[str, Any]) -> Any:
    """Removes two differences of the transformers pipeline: an extra dimension, and words in the vocabulary's form."""
    if task == "feature-extraction":
        return answer[0]
    if task == "token-classification":
        (text,) = call["args"]
        return [{**token, "word": text[token["start"] : token["end"]]} for token in answer]
    return answer


@pytest.mark.foreign("optimum")
@cases(
    *(
        tiny(model_type, task)
        for model_type in ("bert", "distilbert", "albert", "electra", "mobilebert", "mpnet", "modernbert", "roberta")
        for task in TASKS
    ),
    tiny("camembert", "fill-mask"),
    tiny("xlm-roberta", "feature-extraction"),
    tiny("deberta", "fill-mask"),
    tiny("deberta", "token-classification"),
    tiny("xlm", "fill-mask"),
    tiny("xlm", "text-classification"),
    tiny("gpt2", "text-classification"),
    tiny("gpt2", "feature-extraction"),
    tiny("t5", "feature-extraction"),
    tiny("longformer", "text-classification"),
    tiny("big_bird", "question-answering"),
    tiny("bart", "text-classification"),
    *(tiny("bert", task, "int8") for task in TASKS),
    tiny("distilbert", "text-classification", "int8"),
    tiny("albert", "text-classification", "int8"),
    tiny("mobilebert", "text-classification", "int8"),
    tiny("bert", "text-classification", "fp16"),
    tiny("bert", "text-classification", "int4"),
    tiny("bloom", "feature-extraction"),
    tiny("llama", "text-classification"),
    tiny("gemma3_text", "text-classification"),
    tiny("deberta-v2", "token-classification"),
    *(tiny("longformer", task) for task in TASKS if task != "text-classification"),
    *(tiny("big_bird", task) for task in TASKS if task != "question-answering"),
    tiny("longformer", "text-classification", "int8"),
    *(tiny("bart", task) for task in ("feature-extraction", "question-answering")),
    by_task=True,
)
def test_answers_are_those_of_keras(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Outputs of the model for a padded batch, and of the pipeline; with a recipe, within the margins of the model."""
    model = case.model()
    folder = case.export(tmp_path / "bundle", model, target="optimum")
    mask = model.tokenizer.id_to_token(model.tokenizer.mask_token_id) if case.task == "fill-mask" else ""
    pipeline_calls = calls(case.task, mask)
    pipeline = {"task": case.task, "calls": [for_transformers(case.task, each) for each in pipeline_calls]}
    answer = successful(ask({**request(folder), **pipeline, "texts": TEXTS}))
    arrays = {name: np.array(rows, "int32") for name, rows in answer["inputs"].items() if name in model.input_names}
    outputs = {name: np.asarray(value) for name, value in model.named(model(arrays)).items()}
    if case.quantize == "none":
        for name, value in outputs.items():
            difference = np.abs(np.array(answer["outputs"][name]) - value).max()
            assert difference < 1e-5 * np.abs(value).max(), name
    else:
        check_quantized(case, model, folder, outputs, {name: np.array(answer["outputs"][name]) for name in outputs})
    # Both pipelines compute the same results from the same outputs.
    pipe = keras_pipeline(model if case.quantize == "none" else folder, case.task)
    for result, each in zip(answer["pipeline"], pipeline_calls, strict=True):
        assert_same(normalized(case.task, result, each), pipe(*each["args"], **each["kwargs"]))


@pytest.mark.foreign("optimum")
@cases(*(embedder(name) for name in EMBEDDERS), embedder("bert", "int8_weights"))
def test_embeddings(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Of a padded batch; pooling and all that follows it are in the graph."""
    model = case.model()
    folder = case.export(tmp_path / "bundle", model, target="optimum")
    received = np.array(successful(ask({**request(folder), "texts": TEXTS}))["outputs"]["sentence_embedding"])
    keras = np.array(kf.pipeline(model, case.task).encode(TEXTS))
    if case.quantize == "none":
        np.testing.assert_allclose(received, keras, atol=1e-5 * np.abs(keras).max(), rtol=0)
    assert cosines(received, keras).min() >= (0.9999 if case.quantize == "none" else case.source.min_cosine)


@pytest.mark.foreign("optimum")
@cases(embedder("bert"))
def test_sentence_transformers_pools_hidden_states(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Its ONNX backend needs hidden states and the checkpoint's files; a bundle of embeddings is an error."""
    model = case.model()
    checkpoint = model.save_pretrained(tmp_path / "checkpoint")
    folder = kf.export.export(checkpoint, tmp_path / "bundle", "onnx", task="feature-extraction")
    modules = [each["path"] for each in json.loads((checkpoint / "modules.json").read_text()) if each["path"]]
    for name in modules:
        shutil.copytree(checkpoint / name, folder / name)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        shutil.copy(checkpoint / name, folder)
    code = """from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r}, backend="onnx", device="cpu")
print(model.encode({texts!r}).tolist())"""
    answer = successful(ask({"program": code.format(folder=str(folder), texts=TEXTS)}))
    keras = np.array(kf.pipeline(model, case.task).encode(TEXTS))
    np.testing.assert_allclose(ast.literal_eval(answer["printed"]), keras, atol=1e-5 * np.abs(keras).max(), rtol=0)
    embeddings = case.export(tmp_path / "embeddings", model, target="optimum")
    refused = ask({"program": code.format(folder=str(embeddings), texts=TEXTS)})
    assert refused["error"] == "KeyError: 'last_hidden_state'"
    assert "KeyError: 'last_hidden_state'" in (embeddings / "README.md").read_text()


@pytest.mark.foreign("optimum")
@cases(CROSS_ENCODER, CROSS_ENCODER_OF_PIECES)
def test_scores_of_pairs(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Logits of a cross-encoder, for a padded batch of pairs."""
    model = case.model()
    folder = case.export(tmp_path / "bundle", model, target="optimum")
    query = "Who came home?"
    answer = successful(ask({**request(folder), "texts": [query] * len(TEXTS), "pairs": TEXTS}))
    scores = {row["corpus_id"]: row["score"] for row in kf.pipeline(model, case.task).rank(query, TEXTS)}
    received = sigmoid(np.array(answer["outputs"]["logits"])[:, 0])
    np.testing.assert_allclose(received, [scores[row] for row in range(len(TEXTS))], atol=1e-5)
    assert len(set(np.round(received, 3))) == len(TEXTS)


@pytest.mark.foreign("optimum")
@cases(NLI)
def test_zero_shot_classification(case: Case, ask: Ask, tmp_path: Path) -> None:
    model = case.model()
    folder = case.export(tmp_path / "bundle", model, target="optimum")
    labels, pipe = ["a house", "the river", "rain"], kf.pipeline(model, case.task)
    each = [{"args": [TEXTS[0], labels], "kwargs": {"multi_label": multi}} for multi in (False, True)]
    answer = successful(ask({**request(folder), "texts": TEXTS, "task": case.task, "calls": each}))
    for call, received in zip(each, answer["pipeline"], strict=True):
        assert_same(received, pipe(*call["args"], **call["kwargs"]))


def test_a_model_without_a_class_of_entailment_is_refused(tmp_path: Path) -> None:
    settings = {**NLI.source.settings, "id2label": {0: "yes", 1: "no"}}
    case = dataclasses.replace(NLI, source=dataclasses.replace(NLI.source, settings=settings))
    for target in ("optimum", "transformers.js"):
        with pytest.raises(ExportError, match="whose name starts with 'entail' .* Received: yes, no"):
            case.export(tmp_path / "bundle", target=target)


def check_quantized(case: Case, model: Any, folder: Path, expected: dict[str, Any], received: dict[str, Any]) -> None:
    """Checks numbers by the tolerance of the recipe, and classes, tokens and positions by their margins."""
    real = np.array(model.tokenizer(TEXTS).attention_mask) > 0
    check_arrays(folder, expected, received)
    for name in (name for name in expected if name != "last_hidden_state"):
        theirs, ours = (softmax(arrays[name]) for arrays in (expected, received))
        by_token = case.task in ("token-classification", "fill-mask")
        check_classes(folder, *((theirs[real], ours[real]) if by_token else (theirs, ours)))


def generated(ask: Ask, folder: Path, model: Any, texts: list[str]) -> list[list[list[int]]]:
    """Returns the new tokens of each text for each search; the texts are one batch."""
    answer = successful(ask({**request(folder), "texts": texts, "searches": SEARCHES}))
    start = 1 if model.is_encoder_decoder else len(answer["inputs"]["input_ids"][0])
    return [[before(model, row[start:]) for row in rows] for rows in answer["tokens"]]


def expected(source: Any, model: Any, texts: list[str]) -> list[list[list[int]]]:
    """Returns the same from a Keras model, or from a bundle on the engine of this package."""
    pipe = keras_pipeline(source, model.task)
    outputs = [pipe(texts, return_dict_in_generate=True, **each) for each in SEARCHES]
    return [[before(model, output.sequences[0].tolist()) for output in each] for each in outputs]


def pipeline_texts(case: Case, ask: Ask, folder: Path) -> tuple[Any, Any]:
    """Returns the texts that the pipelines of transformers and of this package generate."""
    each = [{"args": [text], "kwargs": SEARCHES[0]} for text in TEXTS]
    answer = successful(ask({**request(folder), "texts": TEXTS, "searches": [], "task": case.task, "calls": each}))
    pipe = kf.pipeline(folder, case.task)
    return answer["pipeline"], [pipe(text, **SEARCHES[0]) for text in TEXTS]


def before(model: Any, row: list[int]) -> list[int]:
    """Returns the tokens before the first end token; the rest is padding."""
    ends = model.info().eos_token_id
    return row[: next((index for index, token in enumerate(row) if token in ends), len(row))]


def one_by_one(generate: Callable[..., list[list[list[int]]]], *arguments: Any) -> list[list[list[int]]]:
    """Generates each text in its own batch, because int8 rounds the rows of a batch together."""
    rows = [generate(*arguments, [text]) for text in TEXTS]
    return [[each[search][0] for each in rows] for search in range(len(SEARCHES))]


@pytest.mark.foreign("optimum")
@cases(
    tiny("gpt2", "text-generation"),
    tiny("gpt2", "text-generation", "int8"),
    tiny("gpt2", "text-generation", "fp16"),
    tiny("gpt2", "text-generation", "int4"),
    Case(BART),
    Case(T5),
    Case(T5, "int8"),
    Case(T5, "int4"),
    *OF_FULL_SIZE,
    Case(BART, "int8"),
    *(tiny(name, "text2text-generation") for name in ("marian", "pegasus")),
)
def test_tokens_are_those_of_keras(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Greedy search and beam search, with padding; and the texts of the pipeline."""
    model = case.model()
    folder = case.export(tmp_path / "bundle", model, target="optimum")
    if case.quantize == "none":
        assert generated(ask, folder, model, TEXTS) == expected(model, model, TEXTS)
    else:
        greedy, beams = one_by_one(generated, ask, folder, model)
        prompts = [model.tokenizer.encode(text) for text in TEXTS]
        check_tokens(model, folder, prompts, greedy, NEW, SEARCHES[0])
        # Beams have no margins of single tokens, so they are compared with the same file in another runtime.
        assert beams == one_by_one(expected, folder, model)[1]
    assert_same(*pipeline_texts(case, ask, folder))


@pytest.mark.foreign("optimum")
@cases(Case(T5, as_task="summarization"), Case(T5, as_task="translation"), by_task=True)
def test_task_prefixes(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Pipelines of transformers read the prefix from the configuration."""
    folder = case.export(tmp_path / "bundle", target="optimum")
    assert_same(*pipeline_texts(case, ask, folder))


@pytest.mark.parametrize(
    "case",
    [
        tiny("bert", "question-answering"),
        Case(T5, "int8", as_task="translation"),
        embedder("bert"),
        *(
            pytest.param(case, marks=pytest.mark.release)
            for case in (
                tiny("bert", "fill-mask", "int8"), tiny("gpt2", "text-generation", "int8"), CROSS_ENCODER, NLI,
            )
        ),
    ],
    ids=str,
)  # fmt: skip
def test_the_python_of_the_card(case: Case, ask: Ask, tmp_path: Path) -> None:
    """Unchanged, except for the folder."""
    folder = case.export(tmp_path / "bundle", target="optimum")
    program, pipe = block(folder, "optimum").replace("path/to/this/folder", str(folder)), kf.pipeline(folder, case.task)
    printed = ast.literal_eval(successful(ask({"program": program}))["printed"])
    if case.task == "question-answering":  # transformers aligns the answer to words
        assert printed["answer"] == "text"
    elif case.task == "sentence-similarity":
        assert_same(printed, np.array(pipe.encode(["A text."])).tolist())
    elif case.task == "text-ranking":
        scores = {row["corpus_id"]: row["score"] for row in pipe.rank("A query.", ["A text.", "Another text."])}
        assert_same(sigmoid(np.array(printed)).tolist(), [[scores[0]], [scores[1]]])
    else:
        call = re.search(r"print\((pipe.*)\)$", program, re.MULTILINE)
        assert call is not None
        tokenizer = SimpleNamespace(mask_token="[MASK]")  # a name that occurs in the call
        assert_same(printed, eval(call[1], {"pipe": pipe, "tokenizer": tokenizer}))


def test_it_is_the_plain_bundle(tmp_path: Path) -> None:
    """Except for a section of the card. A table that two files share is in a third file."""
    case = Case(T5)
    model = case.model()
    plain = bundle.read(case.export(tmp_path / "plain", model, format="onnx")).files
    files = bundle.read(case.export(tmp_path / "bundle", model, target="optimum")).files
    assert files.keys() == plain.keys()
    assert {name for name in plain if plain[name] != files[name]} == {"README.md"}
    assert "onnx/decoder_model_merged.onnx_data" in files


def test_unsupported_settings_are_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    case = tiny("gpt2", "text-generation")
    model = case.model()
    model.generation_config = model.generation_config.replace(frequency_penalty=0.5)
    with pytest.raises(ExportError, match=r"ignores these settings\. Received: frequency_penalty=0\.5"):
        case.export(tmp_path / "bundle", model, target="optimum")
    assert not (tmp_path / "bundle").exists()
