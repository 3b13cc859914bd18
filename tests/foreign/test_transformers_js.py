"""Pipelines of transformers.js give the answers of Keras from bundles, in Node and in Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx import file_writer as onnx_files
from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.export.targets import TARGETS
from kerasformer.pipelines.base import sigmoid
from tests import tiny_text
from tests.core.export.text_models import OTHERS, ROWS
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
from tests.foreign.environments import HERE, need, started
from tests.foreign.test_litert_lm import CHAT, text_model
from tests.foreign.test_targets import RUNS
from tests.grids import grid
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_classes, check_tokens, cosines
from tests.tools.web.sites import browser, served_folder

PROGRAM = "transformers_js.js"
TEXTS = list(READING[:3])
NEW = 16
GREEDY = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
SEARCHES = [GREEDY, {**GREEDY, "repetition_penalty": 1.5}, {**GREEDY, "no_repeat_ngram_size": 2}]

Ask = Callable[[Path, str, list[Any], bool], list[Any]]
"""A function from a bundle, a task, calls of its pipeline, and whether to return tokens, to the answers."""

PAGE = """async (request) => {
    const { answers } = await import("/transformers_js.js");
    const library = await import("/npm/@huggingface/transformers/dist/transformers.min.js");
    library.env.backends.onnx.wasm.wasmPaths = "/npm/onnxruntime-web/dist/";
    library.env.useWasmCache = library.env.useBrowserCache = false;
    return answers(library, request);
}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the bundles, with the files that a page needs."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "npm").symlink_to(need("node"))
    (folder / "index.html").write_text("<!doctype html>", encoding="utf-8")
    shutil.copyfile(HERE / "programs" / PROGRAM, folder / PROGRAM)
    return folder


@pytest.fixture(scope="module")
def in_node() -> Iterator[Ask]:
    with started("node", PROGRAM) as ask:

        def answers(folder: Path, task: str, calls: list[Any], stream: bool = False) -> list[Any]:
            reply = ask(_request(folder, str(folder.parent), task, calls, stream))
            assert "error" not in reply, reply["error"]
            return reply["value"]

        yield answers


@pytest.fixture(scope="module")
def in_browser(home: Path) -> Iterator[Ask]:
    need("chromium")
    with served_folder(home) as url, browser() as page:
        page.open(url)

        def answers(folder: Path, task: str, calls: list[Any], stream: bool = False) -> list[Any]:
            return page.call(PAGE, _request(folder, "/", task, calls, stream))

        yield answers


@pytest.fixture(scope="module")
def both(in_node: Ask, in_browser: Ask) -> list[Ask]:
    return [in_node, in_browser]


def _request(folder: Path, home: str, task: str, calls: list[Any], stream: bool) -> dict[str, Any]:
    return {"home": home, "folder": folder.name, "task": task, "calls": calls, "stream": stream}


@dataclass
class Exported:
    """A bundle and its model."""

    model: Any
    folder: Path


Export = Callable[..., Exported]


@pytest.fixture(scope="module")
def exported(home: Path) -> Export:
    """Exports a case for transformers.js, once for both runtimes."""
    done: dict[str, Exported] = {}

    def export(case: Case, **settings: Any) -> Exported:
        name = "-".join([str(case), case.task, *map(str, settings.values())])
        if name not in done:
            model = case.model()
            done[name] = Exported(model, case.export(home / name, model, target="transformers.js", **settings))
        return done[name]

    return export


@dataclass(frozen=True)
class Reading:
    """The calls of both pipelines for a task, and functions that extract decisions and numbers from the answers."""

    calls: Callable[[Any], list[Any]]
    ours: Callable[[Any], list[Any]]
    decisions: Callable[[Any], Any]
    numbers: Callable[[Any], Any]


def _classes(answer: list[dict[str, Any]]) -> list[float]:
    return [each["score"] for each in sorted(answer, key=lambda each: each["label"])]


MASKED = ["The [MASK] was long.", "He [MASK] to the house and it was day."]


def masked(pipe: Any) -> list[str]:
    """Returns texts with the mask token of the tokenizer."""
    return [text.replace("[MASK]", pipe.tokenizer.mask_token) for text in MASKED]


QUESTION = "Who was there?"
SIMPLE = {"aggregation_strategy": "simple"}

READINGS: Mapping[str, Reading] = {
    "text-classification": Reading(
        lambda pipe: [[TEXTS, {"top_k": len(pipe.info.labels)}]],
        lambda pipe: [pipe(TEXTS, top_k=len(pipe.info.labels))],
        lambda texts: [answer[0]["label"] for answer in texts],
        lambda texts: [_classes(answer) for answer in texts],
    ),
    "token-classification": Reading(
        # It drops tokens with ignored labels before it groups the rest, which joins entities that they separate.
        lambda pipe: [[TEXTS, {**every, "ignore_labels": []}] for every in ({}, SIMPLE)],
        lambda pipe: [pipe(TEXTS, **every, ignore_labels=()) for every in ({}, SIMPLE)],
        lambda texts: [
            [(each.get("entity"), each.get("entity_group"), each.get("index")) for each in answer] for answer in texts
        ],
        lambda texts: [each["score"] for answer in texts for each in answer],
    ),
    "question-answering": Reading(
        lambda pipe: [[QUESTION, text] for text in TEXTS],
        lambda pipe: [pipe(question=QUESTION, context=text, max_answer_len=1000) for text in TEXTS],
        # transformers.js returns the vocabulary's form of the answer, this package that of the text.
        lambda answer: re.sub(r"[\W_]", "", answer["answer"]).lower(),
        lambda answer: answer["score"],
    ),
    "fill-mask": Reading(
        lambda pipe: [[masked(pipe), {"top_k": 3}]],
        lambda pipe: [pipe(masked(pipe), top_k=3)],
        lambda texts: [answer[0]["token"] for answer in texts],
        lambda texts: [[each["score"] for each in answer] for answer in texts],
    ),
    "feature-extraction": Reading(
        lambda pipe: [[text] for text in TEXTS],
        lambda pipe: [[pipe(text)] for text in TEXTS],
        np.shape,
        np.array,
    ),
}


def compare_reading(runtimes: list[Ask], case: Case, folder: Path, source: Any, tolerance: float) -> None:
    """Checks that decisions are equal, and that numbers differ by at most a share of the largest."""
    reading, pipe = READINGS[case.task], keras_pipeline(source, case.task)
    expected = reading.ours(pipe)
    for answers in runtimes:
        for received, from_keras in zip(answers(folder, case.task, reading.calls(pipe), False), expected, strict=True):
            assert reading.decisions(received) == reading.decisions(from_keras)
            numbers = np.array(reading.numbers(from_keras))
            np.testing.assert_allclose(
                reading.numbers(received), numbers, atol=tolerance * np.abs(numbers).max(), rtol=0
            )


def compare_writing(runtimes: list[Ask], case: Case, folder: Path, source: Any) -> None:
    """Checks that the tokens are equal."""
    pipe = keras_pipeline(source, case.task)
    calls = writing_calls()
    outputs = [pipe(text, return_dict_in_generate=True, num_beams=1, **settings) for text, settings in calls]
    expected = [output.sequences[0].tolist() for output in outputs]
    for answers in runtimes:
        assert answers(folder, case.task, calls, True) == expected


def writing_calls() -> list[Any]:
    """Returns the calls of a generating pipeline: each prompt with each search."""
    return [[prompt, {"max_new_tokens": NEW, **search}] for search in SEARCHES for prompt in PROMPTS[:3]]


def check_quantized_writing(runtimes: list[Ask], bundle: Exported, case: Case) -> None:
    """Checks the tokens of a quantized bundle by the margins of its Keras model."""
    calls, ends = writing_calls(), bundle.model.info().eos_token_id
    prefix = next(iter(bundle.model.task_prefixes.values()), "")
    prompts = [bundle.model.tokenizer.encode(prefix + text) for text in PROMPTS[:3]]
    for answers in runtimes:
        generated = [before(ends, row) for row in answers(bundle.folder, case.task, calls, True)]
        for index, search in enumerate(SEARCHES):
            check_tokens(bundle.model, bundle.folder, prompts, generated[3 * index : 3 * index + 3], NEW, search)


def before(ends: Collection[int], row: list[int]) -> list[int]:
    """Returns the tokens before the first end token."""
    return row[: next((index for index, token in enumerate(row) if token in ends), len(row))]


def check_quantized_reading(runtimes: list[Ask], bundle: Exported, case: Case) -> None:
    """Checks the probabilities of a quantized bundle by the margins of its Keras model."""
    reading, pipe, most = READINGS[case.task], keras_pipeline(bundle.model, case.task), 1000
    texts, key = (masked(pipe), "token") if case.task == "fill-mask" else (TEXTS, "label")
    names = list(range(bundle.model.config.vocab_size)) if key == "token" else list(pipe.info.labels)
    expected = [_row(answer, key, names) for answer in pipe(texts, top_k=most if key == "token" else None)]
    for answers in runtimes:
        (received,) = answers(bundle.folder, case.task, reading.calls(pipe), False)
        check_classes(bundle.folder, expected, [_row(answer, key, names) for answer in received])


def _row(answer: list[dict[str, Any]], key: str, names: list[Any]) -> list[float]:
    """Returns the probabilities of all classes, NaN for missing ones."""
    scores = {each[key]: each["score"] for each in answer}
    return [scores.get(name, float("nan")) for name in names]


MULTILINGUAL = "xlm-token-classification"
"""The row whose model has the language of each token as an input, which transformers.js does not pass."""
READERS = [
    tiny(row.model_type, row.task)
    for name, row in {**ROWS, **OTHERS}.items()
    if row.task in READINGS and name in RUNS["transformers.js"] and name != MULTILINGUAL
]
READERS.sort(key=lambda case: case.model_type != "bert")  # it has every task
WRITERS = [tiny("gpt2", "text-generation"), tiny("t5", "text2text-generation")]


@pytest.mark.foreign("transformers.js")
@cases(*READERS, by_task=True)
def test_reading(case: Case, exported: Export, both: list[Ask]) -> None:
    bundle = exported(case)
    compare_reading(both, case, bundle.folder, bundle.model, 1e-4)


@pytest.mark.foreign("transformers.js")
@cases(*(embedder(name) for name in EMBEDDERS), embedder("bert", "int8_weights"))
def test_embeddings(case: Case, exported: Export, both: list[Ask]) -> None:
    """Of a padded batch; pooling and all that follows it are in the graph."""
    bundle = exported(case)
    keras = np.array(kf.pipeline(bundle.model, case.task).encode(TEXTS))
    for answers in both:
        calls = [[TEXTS, {"padding": True, "truncation": True}]]
        (outputs,) = answers(bundle.folder, "AutoModel", calls, False)
        received = np.array(outputs["sentence_embedding"])
        if case.quantize == "none":
            np.testing.assert_allclose(received, keras, atol=1e-5 * np.abs(keras).max(), rtol=0)
        assert cosines(received, keras).min() >= (0.9999 if case.quantize == "none" else case.source.min_cosine)


@pytest.mark.foreign("transformers.js")
@cases(tiny("bert", "feature-extraction"))
def test_embeddings_of_hidden_states(case: Case, exported: Export, both: list[Ask]) -> None:
    """Its pipeline can do what a checkpoint of sentence-transformers with a mean and a normalization does."""
    bundle = exported(case)
    states = [kf.pipeline(bundle.model, case.task)(text) for text in TEXTS]
    keras = np.stack([np.mean(state, axis=0) / np.linalg.norm(np.mean(state, axis=0)) for state in states])
    for answers in both:
        (received,) = answers(bundle.folder, case.task, [[TEXTS, {"pooling": "mean", "normalize": True}]], False)
        np.testing.assert_allclose(received, keras, atol=1e-5 * np.abs(keras).max(), rtol=0)


@pytest.mark.foreign("transformers.js")
@cases(CROSS_ENCODER, CROSS_ENCODER_OF_PIECES)
def test_scores_of_pairs(case: Case, exported: Export, both: list[Ask]) -> None:
    """Logits of a cross-encoder, for a padded batch of pairs."""
    bundle, settings = exported(case), {"text_pair": TEXTS, "padding": True, "truncation": True}
    pipe = kf.pipeline(bundle.model, case.task)
    scores = {row["corpus_id"]: row["score"] for row in pipe.rank(QUESTION, TEXTS)}
    for answers in both:
        calls = [[[QUESTION] * len(TEXTS), settings]]
        (outputs,) = answers(bundle.folder, "AutoModelForSequenceClassification", calls, False)
        received = sigmoid(np.array(outputs["logits"])[:, 0])
        np.testing.assert_allclose(received, [scores[row] for row in range(len(TEXTS))], atol=1e-5)
        assert len(set(np.round(received, 3))) == len(TEXTS)


@pytest.mark.foreign("transformers.js")
@cases(NLI)
@pytest.mark.parametrize("multi_label", [False, True])
def test_zero_shot_classification(multi_label: bool, case: Case, exported: Export, both: list[Ask]) -> None:
    bundle, labels = exported(case), ["a house", "the river", "rain"]
    expected = kf.pipeline(bundle.model, case.task)(TEXTS, labels, multi_label=multi_label)
    for answers in both:
        (received,) = answers(bundle.folder, case.task, [[TEXTS, labels, {"multi_label": multi_label}]], False)
        for one, other in zip(received, expected, strict=True):
            assert (one["sequence"], one["labels"]) == (other["sequence"], other["labels"])
            np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-4)


@pytest.mark.parametrize("labels", [("no", "entails"), ("neutral", "entailment", "contradiction")])
def test_classes_that_it_would_confuse_are_refused(labels: tuple[str, ...], tmp_path: Path) -> None:
    case = replace(
        NLI, source=replace(NLI.source, settings={**NLI.source.settings, "id2label": dict(enumerate(labels))})
    )
    with pytest.raises(ExportError, match="needs the classes 'entailment' and 'contradiction' or .* Received: n"):
        case.export(tmp_path / "out", target="transformers.js")


@pytest.mark.parametrize(
    "case",
    grid([embedder("bert"), CROSS_ENCODER, NLI], always=(embedder("bert"),), others="release"),
    ids=lambda case: case.task,
)
def test_the_javascript_of_the_card(case: Case, exported: Export) -> None:
    """Unchanged, except for the folder."""
    bundle = exported(case)
    printed, pipe = program_of_the_card(bundle.folder), keras_pipeline(bundle.model, case.task)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-\d+)?", printed)]
    if case.task == "sentence-similarity":
        expected = pipe.encode(["A text."])[0]  # Node prints the first hundred numbers
    elif case.task == "text-ranking":
        scores = {row["corpus_id"]: row["score"] for row in pipe.rank("A query.", ["A text.", "Another text."])}
        numbers, expected = sigmoid(np.array(numbers)), [scores[0], scores[1]]
    else:
        expected = pipe("A text.", ["a class", "another class"])["scores"]
    np.testing.assert_allclose(numbers, expected[: len(numbers)], atol=1e-4)
    assert len(numbers) == min(len(expected), 100)


@pytest.mark.foreign("transformers.js")
@cases(
    *WRITERS,
    tiny("bart", "text2text-generation"),
    tiny("gpt2", "text-generation", "fp16"),
    tiny("t5", "text2text-generation", "fp16"),
    tiny("marian", "text2text-generation"),
    *(case for case in DECODERS if case.model_type not in ("ctrl", "gpt_bigcode", "openai-gpt", "xglm")),
    tiny("mt5", "text2text-generation"),
)
def test_writing(case: Case, exported: Export, both: list[Ask]) -> None:
    bundle = exported(case)
    if case.quantize == "none":
        compare_writing(both, case, bundle.folder, bundle.model)
    else:
        check_quantized_writing(both, bundle, case)


@pytest.mark.foreign("transformers.js")
@cases(
    tiny("bert", "text-classification", "int8"),
    tiny("bert", "text-classification", "fp16"),
    tiny("bert", "text-classification", "int4"),
    tiny("albert", "fill-mask", "int8"),
    tiny("mobilebert", "text-classification", "int8"),
    recipes=("int8",),
)
def test_recipes_of_readers(case: Case, exported: Export, both: list[Ask]) -> None:
    """Integer kernels in Node and in a browser round differently."""
    check_quantized_reading(both, exported(case), case)


@pytest.mark.foreign("transformers.js")
@cases(
    tiny("gpt2", "text-generation", "int8"),
    tiny("gpt2", "text-generation", "int4"),
    tiny("t5", "text2text-generation", "int8"),
    tiny("t5", "text2text-generation", "int4"),
    tiny("bart", "text2text-generation", "int8"),
    recipes=("int4",),
    shown=WRITERS,
)
def test_recipes_of_writers(case: Case, exported: Export, both: list[Ask]) -> None:
    """The kernel for blocks of integers in a browser does not round activations."""
    check_quantized_writing(both, exported(case), case)


def test_the_portable_profile(exported: Export, both: list[Ask]) -> None:
    case = tiny("gpt2", "text-generation", "int8")
    folder = exported(case, profile="portable").folder
    compare_writing(both, case, folder, folder)


def test_several_texts_at_once(exported: Export, both: list[Ask]) -> None:
    case = WRITERS[0]
    bundle, prompts = exported(case), list(PROMPTS[:3])
    settings = {"max_new_tokens": NEW, **GREEDY}
    expected = keras_pipeline(bundle.model, case.task)(prompts, **settings)
    for answers in both:
        assert answers(bundle.folder, case.task, [[prompts, settings]], False) == [expected]


@pytest.mark.foreign("transformers.js")
@cases(tiny("gpt2", "text-generation"))
def test_conversations(case: Case, home: Path, both: list[Ask]) -> None:
    """With the chat template and the end token of the bundle; the answer is added to the messages."""
    model = text_model(case)
    model.tokenizer.chat_template = CHAT
    folder = case.export(home / "conversations", model, target="transformers.js")
    messages = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Who is late?"}]
    pipe, settings = keras_pipeline(model), {"max_new_tokens": NEW, **GREEDY}
    turns = [messages, [*pipe(messages, **settings)[0]["generated_text"], {"role": "user", "content": "Why?"}]]
    expected = [pipe(turn, **settings) for turn in turns]
    for answers in both:
        assert answers(folder, case.task, [[turn, settings] for turn in turns], False) == expected


@pytest.mark.foreign("transformers.js")
@cases(
    tiny("t5", "text2text-generation", as_task="summarization"),
    tiny("t5", "text2text-generation", as_task="translation"),
    by_task=True,
)
def test_tasks_with_a_prefix(case: Case, home: Path, both: list[Ask]) -> None:
    """transformers.js also adds the prefix to the text, for any languages in the name of the task."""
    model = case.model()
    params = {"summarization": {"prefix": "the long river: "}, "translation_en_to_de": {"prefix": "to the house: "}}
    model.config = replace(model.config, task_specific_params=params)
    folder = case.export(home / case.task, model, target="transformers.js")
    assert kf.pipeline(folder, case.task).info.task_prefixes
    compare_writing(both, case, folder, folder)


def test_a_decoder_fails_beyond_its_last_position(exported: Export, in_node: Ask) -> None:
    """With an error; the card contains the position."""
    case = tiny("gpt2", "text-generation")
    bundle = exported(case)
    assert f"together have at most {bundle.model.max_length} tokens" in (bundle.folder / "README.md").read_text("utf-8")
    with pytest.raises(AssertionError, match="out of data bounds"):
        in_node(bundle.folder, case.task, [[PROMPTS[0], {"max_new_tokens": bundle.model.max_length}]], False)


def test_the_plain_bundle_is_the_same(exported: Export, tmp_path: Path) -> None:
    bundle = exported(READERS[0])
    plain = READERS[0].export(tmp_path / "plain", bundle.model, format="onnx")
    different = {"README.md", "kerasformer.json"}
    for path in (path for path in plain.rglob("*") if path.is_file() and path.name not in different):
        assert path.read_bytes() == (bundle.folder / path.relative_to(plain)).read_bytes(), path


def test_a_shared_table_is_in_both_files(
    home: Path, in_node: Ask, both: list[Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain bundle stores it once, which works in Node but not in a browser."""
    monkeypatch.setattr(onnx_files, "SHARED_LIMIT", 0)
    case = WRITERS[1]
    model = case.model()
    plain = case.export(home / "shared", model, format="onnx")
    alone = case.export(home / "alone", model, target="transformers.js")
    assert [path.name for path in plain.glob("onnx/*_data")] == ["decoder_model_merged.onnx_data"]
    assert not list(alone.glob("onnx/*_data"))
    compare_writing([in_node], case, plain, plain)
    compare_writing(both, case, alone, plain)


def program_of_the_card(folder: Path) -> str:
    """Returns what the card's program for Node prints."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```javascript\n(import path.*?)```", card, re.DOTALL)[0]
    program = need("node").parent / f"{os.getpid()}-card.mjs"
    try:
        program.write_text(code.replace("path/to/this/folder", str(folder)), encoding="utf-8")
        done = subprocess.run(["node", str(program)], capture_output=True, text=True, timeout=120)
    finally:
        program.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_whose_name_it_cannot_resolve(home: Path) -> None:
    """The export warns; the program of the card opens it in Node by its complete path."""
    case = READERS[0]
    with pytest.warns(
        UserWarning, match=r"Below env.localModelPath, transformers.js finds only names .* Received: 'of two words'"
    ):
        folder = case.export(home / "of two words", target="transformers.js")
    assert "[" in program_of_the_card(folder)
    good = ["a", "my-model_1.5", "x" * 96]
    bad = ["a b", "", "é", "a--b", "a..b", "x" * 97, "-a", "a.git"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in (*good, *bad):
            TARGETS["transformers.js"].check_name(name)
    assert len(caught) == len(bad)


def test_other_recipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="supports only the recipes .* Received: 'int8_static'"):
        kf.export.export(READERS[0].model(), tmp_path / "out", target="transformers.js", quantize="int8_static")


def test_unsupported_tokenizers(tmp_path: Path) -> None:
    model = tiny("bert", "question-answering").model()
    model.tokenizer = tiny_text.byte_pairs()
    with pytest.raises(ExportError, match="needs a tokenizer like BERT's or ALBERT's .* Received: BPE"):
        kf.export.export(model, tmp_path / "out", target="transformers.js")
    model.tokenizer = None
    with pytest.raises(ExportError, match="needs a tokenizer, since its pipelines take texts"):
        kf.export.export(model, tmp_path / "out", target="transformers.js")
