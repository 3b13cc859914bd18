"""The library of the page in Chromium gives the ids, numbers and texts of the Python package."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
import kerasformer.tools.web
from kerasformer import bundle
from kerasformer.tokenization import hard_texts
from tests.code_blocks import blocks
from tests.core.export.text_models import Row, SpanRow, shared_bundle, shared_model
from tests.core.tokenization.conftest import CASES, Checkpoint, checkpoint  # noqa: F401 (a fixture)
from tests.core.tokenization.samples import CORPUS
from tests.foreign.cases import CROSS_ENCODER, NLI, Case, embedder, tiny
from tests.grids import grid
from tests.margins import check_classes, check_same
from tests.mobile.task_vectors import answer as python_answer
from tests.tools.web.sites import Browser, LinkFollowingHandler, browser, served

pytestmark = [
    pytest.mark.foreign("web"),
    pytest.mark.filterwarnings("ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning"),
]


MODELS = {
    "classes": ("bert-text-classification", "none", "tflite"),
    "classes-onnx": ("bert-text-classification", "int8", "onnx"),
    "entities": ("bert-token-classification", "none", "tflite"),
    "answers": ("bert-question-answering", "none", "onnx"),
    "gaps": ("bert-fill-mask", "none", "tflite"),
    "vectors": ("bert-feature-extraction", "none", "onnx"),
    "yes-or-no": ("distilbert-text-classification", "none", "tflite"),
    "story": ("gpt2-text-generation", "none", "tflite"),
    "story-int8": ("gpt2-text-generation", "int8", "tflite"),
    "story-onnx": ("gpt2-text-generation", "none", "onnx"),
    "text2text": ("t5-text2text-generation", "none", "tflite"),
    "text2text-onnx": ("t5-text2text-generation", "none", "onnx"),
}
_LFM2: dict[str, Any] = {
    "hidden_dim": 48, "num_layers": 3, "num_heads": 6, "num_key_value_heads": 2, "intermediate_dim": 96,
    "max_length": 96, "layer_types": ["conv", "full_attention", "conv"],
}  # fmt: skip
CONVOLUTIONS = Case(Row("lfm2", "text-generation", _LFM2))
"""A model with layers that keep inputs of a convolution instead of keys and values."""
OTHER_MODELS = {
    "story-convolutions": (CONVOLUTIONS, {"format": "tflite"}),
    "story-convolutions-onnx": (CONVOLUTIONS, {"format": "onnx"}),
    "embeddings": (embedder("bert"), {"format": "onnx"}),
    "embeddings-tflite": (embedder("bert"), {"format": "tflite"}),
    "pooled": (tiny("bert", "feature-extraction"), {"target": "mediapipe", "lengths": (64,)}),
    "ranking": (CROSS_ENCODER, {"format": "tflite"}),
    "topics": (NLI, {"format": "onnx"}),
    "named": (Case(SpanRow()), {"format": "tflite"}),
    "named-onnx": (Case(SpanRow()), {"format": "onnx"}),
    "story-portable": (tiny("gpt2", "text-generation"), {"format": "onnx", "profile": "portable"}),
}
OTHER_SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "embeddings-dot": ("embeddings", {}, {"similarity": "dot", "truncate_dim": 24, "normalized": False}),
    "embeddings-manhattan": ("embeddings", {}, {"similarity": "manhattan", "default_prompt": "query"}),
    "embeddings-euclidean": ("embeddings", {}, {"similarity": "euclidean", "prompts": {"corpus": "the ", "x": "a "}}),
    "ranking-tanh": ("ranking", {"score_activation": "torch.nn.modules.activation.Tanh"}, {}),
    "ranking-relu": ("ranking", {"score_activation": "torch.nn.modules.activation.ReLU"}, {}),
    "ranking-classes": ("topics", {"task": "text-ranking"}, {}),
    "topics-reversed": ("topics", {"labels": ("entailment", "neutral", "contradiction")}, {}),
    "topics-missing": ("topics", {"labels": ("a", "b", "c")}, {}),
}
"""Copies of the bundles above with other settings in the manifest: of the model, and of its embeddings."""


@pytest.fixture(scope="module")
def exported(site: Path) -> Any:
    """Returns a function that puts a bundle into the site by its name, unless it is there."""

    def make(name: str) -> Path:
        folder = site / "models" / name
        if not folder.is_dir():
            folder.parent.mkdir(exist_ok=True)
            if name in MODELS:
                row, recipe, format = MODELS[name]
                folder.symlink_to(shared_bundle(row, format, recipe))
            elif name in OTHER_SETTINGS:
                source, model, embedding = OTHER_SETTINGS[name]
                shutil.copytree(make(source), folder)
                change_info(folder, model, embedding)
            else:
                case, settings = OTHER_MODELS[name]
                if settings.keys() == {"format"}:
                    folder.symlink_to(case.shared(settings["format"]))
                else:
                    case.export(folder, **settings)
        return folder

    return make


class Open(LinkFollowingHandler):
    """Serves files to the pages of all hosts."""

    def end_headers(self) -> None:
        """Adds the header."""
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


def test_a_page_of_another_host_has_the_answer(site: Path, exported: Any, tmp_path: Path) -> None:
    [page] = blocks(Path("docs/web.md"), "html")
    row = python_answer(kf.pipeline(exported("classes")), "A warm and funny film.", {})[0]
    with served(site, handler=Open) as host, served(tmp_path, plain=True) as other, browser() as opened:
        page = page.replace("https://example.org/site/", host).replace("sentiment-bert/litert-int8", "classes")
        (tmp_path / "index.html").write_text(page)
        opened.open(other)
        opened("until", script="answer.textContent")
        assert opened("text", at="#answer") == f"{row['label']} {row['score']:.3f}"


def change_info(folder: Path, model: dict[str, Any], embedding: dict[str, Any]) -> None:
    manifest = bundle.read(folder)
    info = replace(manifest.info, **model)
    if embedding:
        info = replace(info, embedding=replace(info.embedding, **embedding))
    (folder / bundle.MANIFEST).unlink()
    bundle.write(folder, replace(manifest, info=info))


def run(page: Browser, name: str, calls: list[tuple[Any, dict[str, Any]]], **options: Any) -> list[Any]:
    """Runs a bundle on inputs with options; returns `{result, figures, pieces}` or `{name, message}` for each."""
    return page.call(
        """async (base, options, calls) => {
          const { openBundle } = await import("/library/index.js");
          const bundle = await openBundle(base, options);
          const answers = [];
          for (const [inputs, settings] of calls) {
            const pieces = [];
            const onToken = (piece) => pieces.push(piece);
            try {
              answers.push({ pieces, ...(await bundle.run(inputs, settings, { onToken })) });
            } catch ({ name, message }) {
              answers.push({ name, message });
            }
          }
          bundle.close();
          return answers;
        }""",
        f"/models/{name}/",
        options,
        calls,
    )


def test_litert_uses_no_gpu_and_does_not_ask_for_one(page: Browser, exported: Any) -> None:
    """LiteRT.js would warn that it found none, or occupy one that is not used."""
    exported("classes")
    asked = page.call(
        """async (base) => {
          let asked = 0;
          const gpu = { requestAdapter: async () => { asked += 1; return null; } };
          Object.defineProperty(navigator, "gpu", { value: gpu, configurable: true });
          const warnings = [];
          const { warn } = console;
          console.warn = (...parts) => warnings.push(parts.join(" "));
          const { openBundle } = await import("/library/index.js");
          for (const threads of [1, 2]) (await openBundle(base, { threads })).close(); // each loads the runtime
          console.warn = warn;
          delete navigator.gpu; // the page is that of other tests, too
          return { asked, warnings };
        }""",
        "/models/classes/",
    )
    assert asked == {"asked": 0, "warnings": []}


def test_a_different_tokenizer_is_an_error(exported: Any, page: Browser, site: Path) -> None:
    """Opening fails and names the text. Here, the ids of one text are replaced by those of another."""
    folder = site / "models" / "different"
    shutil.copytree(exported("classes"), folder)
    rows = json.loads((folder / hard_texts.FILE).read_text())
    rows[3]["ids"] = rows[4]["ids"]
    (folder / hard_texts.FILE).write_text(json.dumps(rows))
    bundle.write(folder, replace(bundle.read(folder, check=False), files=bundle.checksums(folder)))
    opened = "async (base) => (await import('/library/index.js')).openBundle(base).then(() => 0, String)"
    assert page.call(opened, "/models/classes/") == 0
    message = page.call(opened, "/models/different/")
    assert message.startswith("TokenizerError: the page's tokenizer reads a text differently")
    assert f"Text: {json.dumps(rows[3]['text'], ensure_ascii=False)}" in message
    assert f"Expected ids: {', '.join(map(str, rows[3]['ids']))}. Received: 2" in message


@pytest.mark.parametrize("value", ["NaN", pytest.param("Infinity", marks=pytest.mark.release)])
def test_outputs_that_are_not_finite(value: str, page: Browser) -> None:
    received = page.call(
        """async (value) => {
          const { forward } = await import("/library/tasks/shared.js");
          const run = async () => ({ logits: Float32Array.of(1, Number(value)) });
          return await forward({ engine: { run } }, []).catch((error) => `${error.name}: ${error.message}`);
        }""",
        value,
    )
    assert received.startswith("InputError: The model's output for a text is not finite.")
    assert f"Received: {value} in logits" in received


LONG = "Anna 🙂 lives in Rome, not in Zoe\u0301's Ännchen. Otto 👩‍👩‍👧 unbelievably lives in Paris.   " * 9
QUERY, DOCUMENTS = "Anna lives in Rome.", ["The cat", "", LONG, "Otto lives in Paris.", "word " * 63]
PAIRS = {"query": QUERY, "documents": DOCUMENTS}
LABELS = ["rome", "an unbelievably fine film", "Paris"]
NAMED = {"labels": ["person", "city"], "threshold": 0.4}
TASKS: list[tuple[str, Any, dict[str, Any]]] = [
    ("classes", {"text": "A fine film.", "pair": "A bad one."}, {"top_k": 2}),
    ("classes", LONG, {"top_k": None, "combine": "max"}),
    ("yes-or-no", LONG, {}),
    ("entities", LONG, {"aggregation_strategy": "max", "combine": "entities", "chunk_length": 20, "stride": 9}),
    ("answers", {"question": "Who?", "context": LONG}, {"top_k": 3, "chunk_length": 20, "doc_stride": 4}),
    ("gaps", "A [MASK] film [MASK].", {"top_k": 2}),
    ("vectors", LONG, {"pooling": "cls", "stride": 3}),
    # Empty, exactly as long as the model (64 tokens with special ones), and longer by a token.
    *((name, "a " * count, {}) for name in ("classes", "entities", "vectors") for count in (0, 62, 63)),
    ("pooled", LONG, {"pooling": "mean", "normalize": True, "stride": 3}),
    ("embeddings-tflite", LONG, {"chunk_length": 20, "stride": 4}),
    *(
        (name, inputs, {})
        for name in ("embeddings", "embeddings-dot", "embeddings-manhattan", "embeddings-euclidean")
        for inputs in (DOCUMENTS, PAIRS, {"some": DOCUMENTS[:2], "others": DOCUMENTS[1:]})
    ),
    *((name, PAIRS, {"top_k": 3, "combine": "mean"}) for name in ("ranking", "ranking-tanh")),
    ("ranking-classes", PAIRS, {"label": "NEUTRAL"}),
    *((name, LONG, {"candidate_labels": LABELS, "multi_label": True}) for name in ("topics", "topics-reversed")),
    *(
        (name, inputs, {**NAMED, **options})
        for name in ("named", "named-onnx")
        for inputs, options in ((QUERY, {}), (LONG[:90], {"flat_ner": False, "truncation": True}), ("", {}))
    ),
]
"""A few calls of each bundle: the vectors of tests/mobile/ have those of all options."""


MAIN = ("classes", "entities", "answers", "gaps", "vectors", "embeddings", "ranking", "topics", "named", "named-onnx")
"""A bundle for each task, of those of `TASKS`, and both engines where inputs have lengths of their own."""


@pytest.mark.parametrize("name", grid(dict.fromkeys(name for name, _, _ in TASKS), always=MAIN, others="release"))
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.TruncationWarning")
def test_tasks(name: str, page: Browser, exported: Any) -> None:
    pipe = kf.pipeline(exported(name))
    calls = [(inputs, options) for each, inputs, options in TASKS if each == name]
    for (inputs, options), answer in zip(calls, run(page, name, calls), strict=True):
        expected = python_answer(pipe, inputs, options)
        assert "result" in answer, answer
        check_same(answer["result"], expected.tolist() if isinstance(expected, np.ndarray) else expected)


def test_what_was_read(page: Browser, exported: Any) -> None:
    """The figures say how many chunks a text had, and how many of its tokens were not read."""
    exported("classes")
    calls = [("a " * count, options) for count in (62, 63, 130) for options in ({}, {"truncation": True})]
    figures = [answer["figures"] for answer in run(page, "classes", calls)]
    assert [each["chunks"] for each in figures] == [1, 1, 2, 1, 3, 1]
    assert [each["lost_tokens"] for each in figures] == [0, 0, 0, 1, 0, 68]
    # The stride is 15 of 62 tokens: chunks of 62, 62 and 36 tokens, each with two special tokens.
    assert [each["prompt_tokens"] for each in figures] == [64, 64, 64 + 18, 64, 64 + 64 + 38, 64]


def test_what_was_read_of_several_texts(page: Browser, exported: Any) -> None:
    """Documents of 1 and 2 chunks; a text of 2 chunks with each of 2 classes."""
    texts = {"query": "a", "documents": ["a", "a " * 61]}
    for name, inputs, options in (("embeddings", texts, {}), ("ranking", texts, {}), ("topics", "a " * 61, {})):
        exported(name)
        settings = {"candidate_labels": ["b", "c"], "hypothesis_template": "{}"} if name == "topics" else options
        (answer,) = run(page, name, [(inputs, settings)])
        counts = {"embeddings": (3, 1), "ranking": (2, 2), "topics": (1, 2)}[name]
        figures = answer["figures"]
        assert (figures["texts"], figures["chunks"], figures["lost_tokens"]) == (*counts, 0)


def test_another_task_of_the_same_model(page: Browser, exported: Any) -> None:
    """A bundle for classification ranks texts and classifies them by named classes on request."""
    exported("topics")
    exported("vectors")
    change = "async (base, task) => (await (await import('/library/index.js')).openBundle(base, { task })).info.task"
    assert page.call(change, "/models/topics/", "text-classification") == "text-classification"
    for name, task in (("topics", "text2text-generation"), ("vectors", "text-ranking")):
        error = opening(page, f"/models/{name}/", task=task)
        assert error["name"] == "InputError" and f"Received: the task {task}" in error["message"]


def test_int8_on_onnx_runtime_web(page: Browser, exported: Any) -> None:
    """The fused operators of the profile `ort` work; classes and scores are within the margins of the Keras model."""
    folder, texts = exported("classes-onnx"), ["A fine film.", *CORPUS[:5]]
    pipe = kf.pipeline(shared_model(MODELS["classes-onnx"][0]), "text-classification")
    answers = run(page, "classes-onnx", [(text, {"top_k": len(pipe.info.labels)}) for text in texts])
    rows = [
        [[{each["label"]: each["score"] for each in answer}[label] for label in pipe.info.labels] for answer in source]
        for source in (pipe(texts, top_k=None), [answer["result"] for answer in answers])
    ]
    check_classes(folder, *rows)


PROMPTS = ["Once upon a time", "The cat", "x"]
GENERATION_SETTINGS: list[dict[str, Any]] = [
    {"max_new_tokens": 25, "no_repeat_ngram_size": 2},
    {"seed": 3, "temperature": 3.0, "max_new_tokens": 40, "stop_strings": ["e", "##"]},
    {"max_new_tokens": 500},
    {"num_beams": 4, "early_stopping": True, "no_repeat_ngram_size": 2, "length_penalty": 0.3},
]


GENERATING = ("story", "story-onnx", "text2text", "text2text-onnx", "story-convolutions", "story-convolutions-onnx")


@pytest.mark.parametrize("name", grid(GENERATING, always=("story", "text2text-onnx"), others="release"))
@pytest.mark.filterwarnings("ignore:the cache is full")
def test_texts(name: str, page: Browser, exported: Any) -> None:
    """Texts and finish reasons are those of Python, also with a seed."""
    rows = [row for row in GENERATION_SETTINGS if row.get("max_new_tokens") != 500 or name.startswith("story")]
    calls = [(prompt, settings) for prompt in PROMPTS[:2] for settings in rows]
    pipe = kf.pipeline(exported(name))
    for (prompt, settings), answer in zip(calls, run(page, name, calls), strict=True):
        assert "result" in answer, answer
        assert answer["result"] == pipe(prompt, **settings)
        output = pipe(prompt, **settings, return_dict_in_generate=True)
        assert answer["figures"]["finish_reason"] == output.finish_reasons[0]
        assert answer["figures"]["tokens"] == len(output.sequences[0])
        before = prompt if name.startswith("story") else ""
        assert before + "".join(answer["pieces"]) == answer["result"][0]["generated_text"]


LIVE = """async (base, calls) => {
  const { openBundle } = await import("/library/index.js");
  const { Heap, HeapTensor } = await import("/library/engines/onnx_heap.js");
  const live = new Set();
  const original = [Heap.prototype.allocate, Heap.prototype.run, HeapTensor.prototype.release];
  Heap.prototype.allocate = function (...args) {
    const tensor = original[0].apply(this, args);
    live.add(tensor);
    return tensor;
  };
  Heap.prototype.run = function (...args) {
    const outputs = original[1].apply(this, args);
    for (const each of outputs) live.add(each);
    return outputs;
  };
  HeapTensor.prototype.release = function () {
    if (!live.delete(this)) throw new Error("a tensor was released twice");
    return original[2].apply(this);
  };
  const bundle = await openBundle(base);
  const counts = [];
  let copies = 0;
  const { copied } = Object.getPrototypeOf(bundle.engine.decoder);
  bundle.engine.decoder.copied = function (...args) { copies++; return copied.apply(this, args); };
  for (const [text, settings] of calls) {
    copies = 0;
    const { result } = await bundle.run(text, settings);
    counts.push([result, live.size, copies / bundle.engine.caches.length]);
  }
  bundle.close();
  [Heap.prototype.allocate, Heap.prototype.run, HeapTensor.prototype.release] = original;
  return counts;
}"""


@pytest.mark.parametrize(
    "name",
    ["story-portable", "story-convolutions-onnx", pytest.param("story-onnx", marks=pytest.mark.release)],
)
def test_tensors_of_onnx_runtime_are_released_and_rarely_copied(name: str, page: Browser, exported: Any) -> None:
    """Caches that are updated in place are copied when they are created or a beam branches; growing ones never."""
    pipe = kf.pipeline(exported(name))
    settings = [{"max_new_tokens": 20, "num_beams": beams} for beams in (1, 1, 3)]
    answers = page.call(LIVE, f"/models/{name}/", [["Rain", each] for each in settings])
    assert [result for result, *_ in answers] == [pipe("Rain", **each) for each in settings]
    in_place = int(name != "story-portable")
    assert [counts for _, *counts in answers[:2]] == [[0, in_place]] * 2
    assert answers[2][1] == 0 and (answers[2][2] > 0) == in_place


def test_threads(page: Browser, exported: Any) -> None:
    exported("story")
    answers = page.call(
        """async () => {
          const { openBundle } = await import("/library/index.js");
          const texts = [];
          for (const threads of [1, 2]) {
            const bundle = await openBundle("/models/story/", { threads });
            const { result, figures } = await bundle.run("The cat", { max_new_tokens: 8 });
            texts.push([bundle.info.threads, result, figures.memory_bytes > 1e6]);
            bundle.close();
          }
          return texts;
        }"""
    )
    assert [threads for threads, _, _ in answers] == [1, 2]
    assert answers[0][1:] == answers[1][1:] == [answers[0][1], True]


LETTERS = [chr(ord("a") + number) for number in range(33)]
BAD: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("story", "word " * 100, {}, "CapacityError", "leaves no space for a new token. Expected at most 79 tokens"),
    ("story", 3, {}, "InputError", "A prompt was expected. Received: 3"),
    ("story", "x", {"top_q": 1}, "GenerationError", "top_q is not a generation setting"),
    ("story", "x", {"num_beams": 2, "top_p": 0.5}, "GenerationError", "beam search with sampling"),
    ("text2text", "word " * 600, {}, "CapacityError", "at most 64 tokens"),
    ("classes", "x", {"topk": 1}, "InputError", "Unknown options: topk. Expected: top_k, truncation"),
    ("classes", "x", {"stride": 62}, "InputError", "stride must be an integer from 0 to 61. Received: 62"),
    ("pooled", "x", {"pooling": "cls"}, "InputError", "computes the mean"),
    ("embeddings", {"query": "a"}, {}, "InputError", "A list of documents was expected"),
    ("ranking-relu", {"query": "a", "documents": ["b"]}, {}, "InputError", "unsupported function for scores"),
    ("topics", "x", {"candidate_labels": "a", "hypothesis_template": "{} {0}"}, "InputError", "no other braces"),
    ("topics-missing", "x", {"candidate_labels": "a"}, "InputError", "a class whose name starts with 'entail'"),
    ("named", "x", {}, "InputError", r'labels must be names of types, such as \["person", "city"\].*Received: ""'),
    ("named", "x", {"labels": ["a", 3]}, "InputError", "A text was expected. Received: 3"),
    ("named", "x", {"labels": "a, b, a"}, "InputError", "labels must differ. Received several times: a"),
    ("named", "x", {"labels": "a", "threshold": "0.5"}, "InputError", 'a number from 0 to 1. Received: "0.5"'),
    ("named", "x", {"labels": LETTERS}, "CapacityError", "at most 32 labels in one call. Received: 33"),
    ("named-onnx", "x", {"labels": LETTERS}, "CapacityError", "The labels leave no space for a text"),
    ("named", "a " * 21, {"labels": "a"}, "CapacityError", "21 words, of which 20 can be read.*truncation: true"),
]
"""The vectors of tests/mobile/ have the names of the other errors."""


@pytest.mark.parametrize(
    "name", grid(dict.fromkeys(name for name, *_ in BAD), always=("story", "classes", "named"), others="release")
)
def test_bad_input(name: str, page: Browser, exported: Any) -> None:
    exported(name)
    rows = [row[1:] for row in BAD if row[0] == name]
    answers = run(page, name, [(inputs, options) for inputs, options, _, _ in rows])
    for (_, _, kind, message), answer in zip(rows, answers, strict=True):
        assert answer.get("name") == kind, answer
        assert re.search(message, answer["message"])


def opening(page: Browser, base: str, **options: Any) -> dict[str, str]:
    """Returns the error of opening a bundle, or the name `none`."""
    return page.call(
        """async (base, options) => {
          const { openBundle } = await import("/library/index.js");
          try {
            await openBundle(base, options);
          } catch ({ name, message }) {
            return { name, message };
          }
          return { name: "none", message: "it opened" };
        }""",
        base,
        options,
    )


def _cut(folder: Path) -> None:
    path = folder / "model.tflite"
    path.write_bytes(path.read_bytes()[:1000])


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / bundle.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE: dict[str, tuple[Any, str, str]] = {
    "cut": (_cut, "BundleError", "model.tflite must have sha256"),
    "missing": (lambda folder: (folder / "model.tflite").unlink(), "BundleError", "model.tflite is missing"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "BundleError", "tokenizer.json is missing"),
    "other capacity": (lambda folder: _edit(folder, capacity=100), "BundleError", "was changed after its export"),
    "newer": (lambda folder: _edit(folder, format_version=3), "BundleError", "written by a newer kerasformer"),
    "no version": (lambda folder: _edit(folder, format_version="1"), "BundleError", "must be a positive integer"),
    "no json": (lambda folder: (folder / bundle.MANIFEST).write_text("<!doctype"), "BundleError", "is not a manifest"),
    "no manifest": (lambda folder: (folder / bundle.MANIFEST).unlink(), "BundleError", "kerasformer.json is missing"),
}


@pytest.mark.parametrize("damage", grid(DAMAGE, always=("cut", "other capacity", "newer"), others="release"))
def test_damaged_bundles(damage: str, page: Browser, exported: Any, site: Path) -> None:
    change, kind, message = DAMAGE[damage]
    folder = site / "models" / f"damaged {damage}"
    shutil.copytree(exported("story"), folder)
    change(folder)
    error = opening(page, f"/models/{folder.name}/")
    assert error["name"] == kind, error
    assert message in error["message"]


def test_a_manifest_with_all_kinds_of_values(page: Browser, exported: Any, site: Path) -> None:
    """The checksum of a manifest depends on the notation of numbers, which JavaScript would change."""
    folder = site / "models" / "notation"
    shutil.copytree(exported("story"), folder)
    (folder / bundle.MANIFEST).unlink()
    manifest = bundle.read(exported("story"))
    odd = {
        "small": 1e-07,
        "whole": 3.0,
        "text": 'ä "quoted" \\ \u2028 🙂 \x7f',
        "none": None,
        "list": [[], {}, [1, {}]],
    }
    bundle.write(folder, replace(manifest, fidelity={**manifest.fidelity, **odd}))
    assert opening(page, "/models/notation/")["name"] == "none"


def test_errors_of_options(page: Browser, exported: Any) -> None:
    exported("story")
    error = opening(page, "/models/story/", engine="onnx")
    assert error["name"] == "InputError"
    assert "This bundle runs on litert" in error["message"]
    error = opening(page, "/models/story/", vendor="/nowhere/")
    assert error["name"] == "RuntimeError"
    assert "/nowhere/tokenizers/tokenizers.min.mjs" in error["message"]


def test_worker(page: Browser, exported: Any) -> None:
    """Progress, answers and errors are messages; runs are sequential; a cancelled run returns its text so far."""
    exported("story")
    seen = page.call(
        """async () => {
          const worker = new Worker("/worker.js");
          const seen = [];
          const ended = new Map();
          worker.onmessage = ({ data }) => {
            seen.push(data);
            if (data.type === "token" && data.id === 3) worker.postMessage({ type: "cancel", id: 3 });
            if (["loaded", "result", "error"].includes(data.type)) ended.get(data.id)(data);
          };
          const ask = (message) => new Promise((resolve) => {
            ended.set(message.id, resolve);
            worker.postMessage(message);
          });
          const early = await ask({ type: "run", id: 0, inputs: "x", options: {} });
          const loaded = await ask({ type: "load", id: 1, base: "models/story/", engine: "litert", threads: 1 });
          const both = await Promise.all([
            ask({ type: "run", id: 2, inputs: "The cat", options: { max_new_tokens: 4 } }),
            ask({ type: "run", id: 3, inputs: "The cat", options: { max_new_tokens: 50 } }),
          ]);
          const beams = { num_beams: 4, max_new_tokens: 50 };
          const searched = ask({ type: "run", id: 6, inputs: "The cat", options: beams });
          setTimeout(() => worker.postMessage({ type: "cancel", id: 6 }), 20);
          await searched;
          const wrong = await ask({ type: "run", id: 4, inputs: "The cat", options: { top_p: 2 } });
          const missing = await ask({ type: "load", id: 5, base: "models/nothing/" });
          worker.terminate();
          const progress = seen.filter(({ type }) => type === "progress");
          return { early, loaded, both, searched: await searched, wrong, missing, progress };
        }"""
    )
    assert seen["early"]["type"] == "error"
    assert seen["loaded"]["info"]["capacity"] == 80
    assert seen["loaded"]["bytes"] > 100_000
    first, second = seen["both"]
    assert first["figures"]["tokens"] == 4
    assert second["figures"]["finish_reason"] == "cancelled"
    assert 0 < second["figures"]["tokens"] < 50
    assert second["result"][0]["generated_text"].startswith("The cat")
    assert seen["searched"]["figures"]["finish_reason"] == "cancelled"
    assert (seen["wrong"]["name"], seen["wrong"]["id"]) == ("GenerationError", 4)
    assert (seen["missing"]["name"], seen["missing"]["id"]) == ("BundleError", 5)
    stages = {(each["stage"], each["file"]) for each in seen["progress"]}
    assert {("download", "kerasformer.json"), ("download", "model.tflite"), ("compile", "model.tflite")} <= stages
    whole = [each for each in seen["progress"] if each["file"] == "model.tflite" and each["stage"] == "download"][-1]
    assert whole["loaded"] == whole["total"] > 100_000
