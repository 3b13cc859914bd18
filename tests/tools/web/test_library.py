"""The library of the page in Chromium gives the ids, numbers and texts of the Python package."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex

import kerasformer as kf
import kerasformer.tools.web
from kerasformer import bundle
from kerasformer.errors import InputError
from kerasformer.generation import GenerationConfig
from kerasformer.generation.history import History
from kerasformer.generation.rules import apply_rules, rules_of
from kerasformer.generation.samplers import sampler_of
from kerasformer.tokenization import Tokenizer, hard_texts
from kerasformer.tools.training.tokenizer_pruning import prune_tokenizer
from tests import tiny_text
from tests.core.export.text_models import ROWS, Row, shared_bundle, shared_model
from tests.core.tokenization.conftest import CASES, Checkpoint, checkpoint  # noqa: F401 (a fixture)
from tests.core.tokenization.samples import CORPUS, TEXTS
from tests.core.tokenization.test_hard_texts import split_at
from tests.core.zoo import lfm2
from tests.foreign.cases import CROSS_ENCODER, NLI, Case, embedder, tiny
from tests.grids import grid
from tests.margins import check_classes, check_same, check_tokens
from tests.mobile.task_vectors import answer as python_answer
from tests.tools.web.pages import Page

pytestmark = [
    pytest.mark.foreign("web"),
    pytest.mark.filterwarnings("ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning"),
]

PRESETS = ("sentiment-bert", "story-gpt2", "summarizer-t5")
SPLITS = {
    f"split-{behavior}-{sign}": partial(split_at, pattern, behavior)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    for sign, pattern in (("string", "|"), ("pattern", Regex(r"[|,]")))
}
TINY = {
    **SPLITS,
    "tiny-wordpiece": tiny_text.wordpiece,
    "tiny-bytes": tiny_text.byte_pairs,
    "tiny-pieces": tiny_text.pieces,
    "tiny-marian": tiny_text.marian,
    "tiny-utf8": tiny_text.utf8_bytes,
}
SAMPLE = [*TEXTS, *CORPUS]

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
    kf.zoo.register(lfm2)

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


def change_info(folder: Path, model: dict[str, Any], embedding: dict[str, Any]) -> None:
    manifest = bundle.read(folder)
    info = replace(manifest.info, **model)
    if embedding:
        info = replace(info, embedding=replace(info.embedding, **embedding))
    (folder / bundle.MANIFEST).unlink()
    bundle.write(folder, replace(manifest, info=info))


def run(page: Page, name: str, calls: list[tuple[Any, dict[str, Any]]], **options: Any) -> list[Any]:
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


def test_litert_uses_no_gpu_and_does_not_ask_for_one(page: Page, exported: Any) -> None:
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


# tests/mobile/test_vectors.py compares tokens, rules, samples and tasks of the same library with Python in Node.
@pytest.mark.parametrize("name", grid([*CASES, *PRESETS, *TINY], always=PRESETS, others="release"))
def test_tokens(name: str, page: Page, checkpoint: Checkpoint, tmp_path: Path) -> None:  # noqa: F811
    if name in TINY:
        ours = TINY[name]()
    else:
        ours = Tokenizer.load(Path("zoo/presets") / name if name in PRESETS else checkpoint(name))
    ours.save(tmp_path)
    hard = [text for text, _ in hard_texts.hard_texts(ours)]
    pairs = [(text, None) for text in (*SAMPLE, *hard)] + list(zip(CORPUS, TEXTS[3:], strict=False))
    pairs = [pair for pair in pairs if ours.dropped_characters.isdisjoint("".join(filter(None, pair)))]
    received = page.call(
        """async (content, settings, pairs) => {
          const { Tokenizer } = await import("/library/tokenization/tokenizer.js");
          const { TextStream } = await import("/library/tokenization/streaming.js");
          const tokenizer = new Tokenizer(await import("/vendor/tokenizers/tokenizers.min.mjs"), content, settings);
          return pairs.map(([text, pair]) => {
            const tokens = tokenizer.encode(text, pair);
            const ids = tokens.map(({ id }) => id);
            const stream = new TextStream(tokenizer);
            return {
              ids,
              types: tokens.map(({ type }) => type),
              sequences: tokens.map(({ sequence }) => sequence),
              words: tokens.map(({ word }) => word),
              offsets: tokens.map(({ offsets }) => offsets),
              plain: pair === null ? tokenizer.encode(text, null, false).map(({ id }) => id) : [],
              text: tokenizer.decode(ids),
              skipped: tokenizer.decode(ids, true),
              streamed: ids.map((id) => stream.put([id])).join("") + stream.end(),
            };
          });
        }""",
        json.loads((tmp_path / "tokenizer.json").read_text()),
        json.loads((tmp_path / "tokenizer_config.json").read_text()),
        pairs,
    )
    for (text, pair), theirs in zip(pairs, received, strict=True):
        assert theirs == encoded(ours, text, pair), (text, pair)


@pytest.mark.parametrize("name", grid(["xlm-roberta", "bert-cased", "nllb"], always=("bert-cased",), others="release"))
def test_characters_that_were_removed(name: str, page: Page, checkpoint: Checkpoint, tmp_path: Path) -> None:  # noqa: F811
    ours = prune_tokenizer(Tokenizer.load(checkpoint(name)), CORPUS[:5]).tokenizer
    ours.save(tmp_path)
    texts = [*CORPUS[:5], "a 日!", "a 龘!", "かな 日本 語 ГДЕ это? Γειά σου"]
    received = page.call(
        """async (content, settings, texts) => {
          const { Tokenizer } = await import("/library/tokenization/tokenizer.js");
          const tokenizer = new Tokenizer(await import("/vendor/tokenizers/tokenizers.min.mjs"), content, settings);
          return texts.map((text) => {
            try {
              return tokenizer.encode(text).map(({ id }) => id);
            } catch (error) {
              return String(error);
            }
          });
        }""",
        json.loads((tmp_path / "tokenizer.json").read_text()),
        json.loads((tmp_path / "tokenizer_config.json").read_text()),
        texts,
    )
    for text, theirs in zip(texts, received, strict=True):
        try:
            assert theirs == ours.encode(text)
        except InputError as error:
            assert theirs.startswith("InputError: A text contains characters that were removed from the vocabulary")
            shown = re.search("Received: (.*?)[.] ", str(error))
            assert shown and f"Received: {shown[1].replace(chr(39), '')}. " in theirs
    assert isinstance(received[-1], str) and isinstance(received[-3], str) and "日" in received[-3]


def test_incomplete_characters(page: Page, tmp_path: Path) -> None:
    """Bytes that are not valid UTF-8 are omitted, also between and at the end of others."""
    ours = tiny_text.utf8_bytes()
    ours.save(tmp_path)
    random = np.random.default_rng(0)
    bytes_ = np.array([*b"a\xe2\x82\xac\xf0\x9f\x99\x82\xef\xbf\xbd\xc3\xed\xa0\xff"]) + 3
    rows = [[*random.choice(bytes_, 14).tolist(), 1] for _ in range(200)]
    received = page.call(
        """async (content, settings, rows) => {
          const { Tokenizer } = await import("/library/tokenization/tokenizer.js");
          const tokenizer = new Tokenizer(await import("/vendor/tokenizers/tokenizers.min.mjs"), content, settings);
          return rows.map((ids) => tokenizer.decode(ids, true));
        }""",
        json.loads((tmp_path / "tokenizer.json").read_text()),
        json.loads((tmp_path / "tokenizer_config.json").read_text()),
        rows,
    )
    assert received == [ours.decode(ids, skip_special_tokens=True) for ids in rows]


def encoded(tokenizer: Tokenizer, text: str, pair: str | None) -> dict[str, Any]:
    encoding = tokenizer(text, pair)
    ids = encoding.input_ids[0]
    return {
        "ids": ids.tolist(),
        "types": encoding.token_type_ids[0].tolist(),
        "sequences": encoding.sequence_ids[0].tolist(),
        "words": encoding.word_ids[0].tolist(),
        "offsets": encoding.offsets[0].tolist(),
        "plain": tokenizer.encode(text, add_special_tokens=False) if pair is None else [],
        "text": tokenizer.decode(ids),
        "skipped": tokenizer.decode(ids, skip_special_tokens=True),
        "streamed": tokenizer.decode(ids, skip_special_tokens=True),
    }


def test_a_different_tokenizer_is_an_error(exported: Any, page: Page, site: Path) -> None:
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


@pytest.mark.parametrize(
    "strategy", grid(["only_first", "only_second", "longest_first"], always=("longest_first",), others="release")
)
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.TruncationWarning")
def test_chunks(strategy: Any, page: Page, tmp_path: Path) -> None:
    ours = tiny_text.wordpiece()
    ours.save(tmp_path)
    short, long = CORPUS[1][:40], CORPUS[0]
    texts = {"only_first": (long, short), "only_second": (short, long), "longest_first": CORPUS[:2]}[strategy]
    for stride, limit in ((0, 60), (3, 61), (1, 62)):
        in_chunks = strategy != "longest_first"
        expected = ours(
            *texts,
            truncation=strategy,
            max_length=limit,
            stride=stride if in_chunks else 0,
            return_overflowing_tokens=in_chunks,
            padding=True,
        )
        received = page.call(
            """async (content, settings, texts, strategy, limit, stride) => {
              const { Tokenizer } = await import("/library/tokenization/tokenizer.js");
              const tokenizer = new Tokenizer(await import("/vendor/tokenizers/tokenizers.min.mjs"), content, settings);
              const chunks = tokenizer.chunks(tokenizer.encode(...texts), limit, strategy, stride);
              return chunks.map((row) => row.map(({ id }) => id));
            }""",
            json.loads((tmp_path / "tokenizer.json").read_text()),
            json.loads((tmp_path / "tokenizer_config.json").read_text()),
            texts,
            strategy,
            limit,
            stride if in_chunks else 0,
        )
        rows = zip(expected.input_ids, expected.attention_mask > 0, strict=True)
        ids = [row[real].tolist() for row, real in rows]
        assert (received if in_chunks else received[:1]) == ids


@pytest.mark.parametrize("seed", grid([0, 1, 42, 2**32 + 5, 2**53 - 1], always=(2**53 - 1,), others="release"))
def test_random_numbers(seed: int, page: Page) -> None:
    received = page.call(
        """async (seed) => {
          const { Random } = await import("/library/decoding/random.js");
          const random = new Random(seed);
          return Array.from({ length: 100 }, () => random.next());
        }""",
        seed,
    )
    assert received == np.random.default_rng(seed).random(100).tolist()


@pytest.mark.parametrize("value", ["NaN", pytest.param("Infinity", marks=pytest.mark.release)])
def test_outputs_that_are_not_finite(value: str, page: Page) -> None:
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


SETTINGS: list[dict[str, Any]] = [
    {"do_sample": False},
    {"temperature": 0.6},
    {"temperature": 0, "top_p": 0.5},
    {"top_k": 7},
    {"top_p": 0.8},
    {"top_p": 0.0},
    {"min_p": 0.2},
    {"temperature": 1.7, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    {"repetition_penalty": 1.4, "do_sample": False},
    {"encoder_repetition_penalty": 1.4, "do_sample": False},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3},
    {"no_repeat_ngram_size": 2},
    {"encoder_no_repeat_ngram_size": 2},
    {"bad_words_ids": [[5], [3, 4]]},
    {"suppress_tokens": [1, 2, 3], "begin_suppress_tokens": [4]},
    {"min_new_tokens": 9, "eos_token_id": [6, 7]},
    {"forced_eos_token_id": 8, "max_new_tokens": 4},
]


FEW = [{"temperature": 1.7, "top_k": 40, "top_p": 0.95, "min_p": 0.01}, {"no_repeat_ngram_size": 2}]


@pytest.mark.parametrize("settings", grid(SETTINGS, always=FEW, others="release"), ids=str)
def test_rules_and_samplers(settings: dict[str, Any], page: Page) -> None:
    """Rules, cutoffs and samples for random logits, some of them equal."""
    random = np.random.default_rng(5)
    logits = (random.normal(0, 3, (40, 400)).round(1)).astype(np.float32)
    uniform = random.random(len(logits))
    prompt, generated = random.integers(0, 12, 9).tolist(), random.integers(0, 12, 3).tolist()
    config = GenerationConfig.from_dict({}).replace(**settings)
    ids = np.array([prompt + generated], np.int32)
    prompts = (np.array(prompt, np.int32),)
    history = History(ids, np.zeros(1, np.int64), len(prompt), prompts, np.zeros(1, np.int64))
    scores = np.concatenate([apply_rules(rules_of(config), history, row[None]) for row in logits])
    expected = sampler_of(config)(scores, uniform).tolist()
    received = page.call(
        """async (settings, logits, uniform, prompt, generated) => {
          const { settle } = await import("/library/decoding/settings.js");
          const { applyRules } = await import("/library/decoding/rules.js");
          const { choose } = await import("/library/decoding/samplers.js");
          const config = settle({}, settings);
          const history = { ids: [...prompt, ...generated], width: prompt.length, prompt };
          return logits.map((row, index) => {
            const scores = applyRules(history, Float32Array.from(row), config);
            const finite = Array.from(scores, (score) => score === -Infinity ? null : score);
            return [finite, choose(scores, config, () => uniform[index])];
          });
        }""",
        settings,
        logits.tolist(),
        uniform.tolist(),
        prompt,
        generated,
    )
    assert [[-np.inf if score is None else score for score in row] for row, _ in received] == scores.tolist()
    assert [token for _, token in received] == expected


LONG = (
    "Anna 🙂 lives in Rome, not in Zoe\u0301's Ännchen. Otto, e\u0301e\u0301 👩‍👩‍👧 unbelievably, lives in Paris.   "
    * 9
)
CHUNKS: list[dict[str, Any]] = [{}, {"stride": 0}, {"chunk_length": 24, "stride": 7}]
TASKS: list[tuple[str, Any, dict[str, Any]]] = [
    ("classes", "A fine film.", {}),
    ("classes", "A fine film.", {"top_k": None}),
    ("classes", {"text": "A fine film.", "pair": "A bad one."}, {"top_k": 2}),
    ("classes", "word " * 200, {"truncation": True}),
    ("yes-or-no", "Nobody came.", {"top_k": None}),
    ("entities", "Ännchen 🙂 lives in Rome, not in Paris.", {}),
    *(
        ("entities", "Anna lives in Rome.", {"aggregation_strategy": each})
        for each in ("simple", "first", "average", "max")
    ),
    ("answers", {"question": "Who?", "context": "Anna 🙂 lives in Rome. Otto lives in Paris."}, {}),
    ("answers", {"question": "Who?", "context": "Anna lives in Rome. Otto lives in Paris. " * 5}, {"top_k": 4}),
    ("answers", {"question": "Who?", "context": "Anna."}, {"top_k": 3, "handle_impossible_answer": True}),
    ("gaps", "A [MASK] film.", {"top_k": 3}),
    ("gaps", "A [MASK] film [MASK].", {"top_k": 2}),
    *(("classes", LONG, {"top_k": None, **each}) for each in CHUNKS),
    ("classes", LONG, {"top_k": None, "combine": "max"}),
    ("yes-or-no", LONG, {}),
    *(("entities", LONG, {**each, "ignore_labels": []}) for each in CHUNKS),
    *(
        ("entities", LONG, {"aggregation_strategy": strategy, "combine": combine, "chunk_length": 20, "stride": 9})
        for strategy in ("simple", "first", "average", "max")
        for combine in ("tokens", "entities")
    ),
    ("entities", LONG, {"truncation": True, "chunk_length": 30}),
    *(("vectors", LONG, {"pooling": pooling, "stride": 3}) for pooling in (None, "mean", "cls")),
    ("answers", {"question": "Who?", "context": LONG}, {"top_k": 3, "chunk_length": 20, "doc_stride": 4}),
    # Empty, exactly as long as the model (64 tokens with special ones), and longer by a token.
    *((name, "a " * count, {}) for name in ("classes", "entities", "vectors") for count in (0, 62, 63)),
    ("vectors", "A fine film.", {"pooling": "mean", "normalize": True}),
    ("vectors", "A fine film.", {"pooling": "cls"}),
    ("vectors", "A fine film.", {}),
]


QUERY, DOCUMENTS = (
    "Anna lives in Rome.",
    ["The cat", "", LONG, "Otto lives in Paris.", "word " * 63, "Anna lives in Rome."],
)
LABELS = ["rome", "an unbelievably fine film", "Paris"]
TASKS += [
    ("pooled", "A fine film.", {}),
    ("pooled", LONG, {"pooling": "mean", "normalize": True, "stride": 3}),
    *((name, text, {}) for name in ("embeddings", "embeddings-tflite") for text in ("A fine film.", LONG, "")),
    *((f"embeddings-{name}", DOCUMENTS, {}) for name in ("tflite", "dot", "manhattan", "euclidean")),
    ("embeddings-tflite", LONG, {"chunk_length": 20, "stride": 4}),
    ("embeddings-tflite", LONG, {"truncation": True}),
    ("embeddings-tflite", "A fine film.", {"prompt_name": "query", "truncate_dim": 5}),
    ("embeddings-tflite", "A fine film.", {"prompt": "Otto ", "normalize": False}),
    ("embeddings-dot", "A fine film.", {"normalize": True}),
    *(
        (name, inputs, {})
        for name in ("embeddings", "embeddings-dot", "embeddings-manhattan", "embeddings-euclidean")
        for inputs in ({"query": QUERY, "documents": DOCUMENTS}, {"some": DOCUMENTS[:2], "others": DOCUMENTS[1:]})
    ),
    ("embeddings", {"query": QUERY, "documents": DOCUMENTS}, {"top_k": 2, "return_documents": True, "stride": 3}),
    ("embeddings", {"query": QUERY, "documents": DOCUMENTS}, {"prompt": "a ", "truncate_dim": 9}),
    ("ranking", "The cat", {}),
    *(
        (name, {"query": QUERY, "documents": DOCUMENTS}, options)
        for name in ("ranking", "ranking-tanh")
        for options in ({}, {"top_k": 3, "combine": "mean", "chunk_length": 24, "stride": 5})
    ),
    ("ranking", {"query": QUERY, "documents": DOCUMENTS}, {"truncation": True, "return_documents": True}),
    ("ranking", {"query": LONG, "documents": DOCUMENTS}, {"truncation": True}),
    ("ranking", {"query": QUERY, "documents": []}, {}),
    ("ranking-classes", {"query": QUERY, "documents": DOCUMENTS}, {"label": "NEUTRAL"}),
    ("topics", "Anna lives in Rome.", {"candidate_labels": " rome,, Paris "}),
    *(
        (name, text, {"candidate_labels": LABELS, **options})
        for name in ("topics", "topics-reversed")
        for text in (QUERY, LONG, "")
        for options in ({}, {"multi_label": True, "combine": "max", "hypothesis_template": "the {} is"})
    ),
    ("topics", LONG, {"candidate_labels": LABELS, "stride": 0, "chunk_length": 40}),
    ("topics", LONG, {"candidate_labels": LABELS, "truncation": True}),
    ("topics", QUERY, {"candidate_labels": "Rome"}),
]


MAIN = ("classes", "entities", "answers", "gaps", "vectors", "embeddings", "ranking", "topics")
"""A bundle for each task, of those of `TASKS`."""


@pytest.mark.parametrize("name", grid(dict.fromkeys(name for name, _, _ in TASKS), always=MAIN, others="release"))
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.TruncationWarning")
def test_tasks(name: str, page: Page, exported: Any) -> None:
    pipe = kf.pipeline(exported(name))
    calls = [(inputs, options) for each, inputs, options in TASKS if each == name]
    for (inputs, options), answer in zip(calls, run(page, name, calls), strict=True):
        expected = python_answer(pipe, inputs, options)
        assert "result" in answer, answer
        check_same(answer["result"], expected.tolist() if isinstance(expected, np.ndarray) else expected)


def test_what_was_read(page: Page, exported: Any) -> None:
    """The figures say how many chunks a text had, and how many of its tokens were not read."""
    exported("classes")
    calls = [("a " * count, options) for count in (62, 63, 130) for options in ({}, {"truncation": True})]
    figures = [answer["figures"] for answer in run(page, "classes", calls)]
    assert [each["chunks"] for each in figures] == [1, 1, 2, 1, 3, 1]
    assert [each["lost_tokens"] for each in figures] == [0, 0, 0, 1, 0, 68]
    # The stride is 15 of 62 tokens: chunks of 62, 62 and 36 tokens, each with two special tokens.
    assert [each["prompt_tokens"] for each in figures] == [64, 64, 64 + 18, 64, 64 + 64 + 38, 64]


def test_what_was_read_of_several_texts(page: Page, exported: Any) -> None:
    """Documents of 1 and 2 chunks; a text of 2 chunks with each of 2 classes."""
    texts = {"query": "a", "documents": ["a", "a " * 61]}
    for name, inputs, options in (("embeddings", texts, {}), ("ranking", texts, {}), ("topics", "a " * 61, {})):
        exported(name)
        settings = {"candidate_labels": ["b", "c"], "hypothesis_template": "{}"} if name == "topics" else options
        (answer,) = run(page, name, [(inputs, settings)])
        counts = {"embeddings": (3, 1), "ranking": (2, 2), "topics": (1, 2)}[name]
        figures = answer["figures"]
        assert (figures["texts"], figures["chunks"], figures["lost_tokens"]) == (*counts, 0)


def test_another_task_of_the_same_model(page: Page, exported: Any) -> None:
    """A bundle for classification ranks texts and classifies them by named classes on request."""
    exported("topics")
    exported("vectors")
    change = "async (base, task) => (await (await import('/library/index.js')).openBundle(base, { task })).info.task"
    assert page.call(change, "/models/topics/", "text-classification") == "text-classification"
    for name, task in (("topics", "text2text-generation"), ("vectors", "text-ranking")):
        error = opening(page, f"/models/{name}/", task=task)
        assert error["name"] == "InputError" and f"Received: the task {task}" in error["message"]


def test_int8_on_onnx_runtime_web(page: Page, exported: Any) -> None:
    """The fused operators of the profile `ort` work; classes and scores are within the margins of the Keras model."""
    folder, texts = exported("classes-onnx"), ["A fine film.", *CORPUS[:5]]
    pipe = kf.pipeline(shared_model(MODELS["classes-onnx"][0]), "text-classification")
    answers = run(page, "classes-onnx", [(text, {"top_k": len(pipe.info.labels)}) for text in texts])
    rows = [
        [[{each["label"]: each["score"] for each in answer}[label] for label in pipe.info.labels] for answer in source]
        for source in (pipe(texts, top_k=None), [answer["result"] for answer in answers])
    ]
    check_classes(folder, *rows)


@pytest.mark.release  # tests/foreign/test_litert_web.py has int8 in LiteRT.js
def test_int8_tokens(page: Page, exported: Any) -> None:
    """Tokens equal those of LiteRT on this machine, which are within the margins of the Keras model."""
    folder, settings = exported("story-int8"), {"max_new_tokens": 20, "repetition_penalty": 1.3, "do_sample": False}
    model, pipe = shared_model(MODELS["story-int8"][0]), kf.pipeline(folder)
    outputs = [pipe(prompt, return_dict_in_generate=True, **settings) for prompt in PROMPTS]
    sequences = [output.sequences[0].tolist() for output in outputs]
    prompts = [model.tokenizer.encode(prompt) for prompt in PROMPTS]
    check_tokens(model, folder, prompts, sequences, 20, settings)
    for prompt, row, answer in zip(
        PROMPTS, sequences, run(page, "story-int8", [(p, settings) for p in PROMPTS]), strict=True
    ):
        expected = prompt + model.tokenizer.decode(row, skip_special_tokens=True)
        assert answer["result"][0]["generated_text"] == expected


PROMPTS = ["Once upon a time", "The cat", "x"]
GENERATION_SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_new_tokens": 30, "repetition_penalty": 1.3},
    {"seed": 1},
    {"seed": 7, "temperature": 0.7, "top_k": 20, "top_p": 0.9},
    {"max_new_tokens": 25, "no_repeat_ngram_size": 2},
    {"max_length": 30, "min_new_tokens": 5},
    {"seed": 3, "temperature": 3.0, "max_new_tokens": 40, "stop_strings": ["e", "##"]},
    {"max_new_tokens": 500},
    {"num_beams": 3, "max_new_tokens": 10},
    {"num_beams": 4, "early_stopping": True, "no_repeat_ngram_size": 2, "stop_strings": ["e"], "length_penalty": 0.3},
    {"num_beams": 2, "early_stopping": "never", "seed": 1, "length_penalty": 2.0, "repetition_penalty": 1.2},
]


GENERATING = ("story", "story-onnx", "text2text", "text2text-onnx", "story-convolutions", "story-convolutions-onnx")


@pytest.mark.parametrize("name", grid(GENERATING, always=("story", "text2text-onnx"), others="release"))
@pytest.mark.filterwarnings("ignore:the cache is full")
def test_texts(name: str, page: Page, exported: Any) -> None:
    """Texts and finish reasons are those of Python, also with a seed."""
    rows = [row for row in GENERATION_SETTINGS if row.get("max_new_tokens") != 500 or name.startswith("story")]
    # One engine with all settings and texts; the settings are the same code on the others.
    calls = (
        [(prompt, settings) for prompt in PROMPTS for settings in rows]
        if name == "story"
        else [(PROMPTS[0], settings) for settings in rows[::3]]
    )
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
def test_tensors_of_onnx_runtime_are_released_and_rarely_copied(name: str, page: Page, exported: Any) -> None:
    """Caches that are updated in place are copied when they are created or a beam branches; growing ones never."""
    pipe = kf.pipeline(exported(name))
    settings = [{"max_new_tokens": 20, "num_beams": beams} for beams in (1, 1, 3)]
    answers = page.call(LIVE, f"/models/{name}/", [["Rain", each] for each in settings])
    assert [result for result, *_ in answers] == [pipe("Rain", **each) for each in settings]
    in_place = int(name != "story-portable")
    assert [counts for _, *counts in answers[:2]] == [[0, in_place]] * 2
    assert answers[2][1] == 0 and (answers[2][2] > 0) == in_place


SHORT: dict[str, Any] = {"max_new_tokens": 8, "no_repeat_ngram_size": 1}
LANGUAGES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "nllb": [
        ("Rain is expected.", {}),
        *(("Rain is expected.", {"tgt_lang": code}) for code in ("ron_Latn", "eng_Latn", "ron")),
        ("Rain", {"src_lang": "zho_Hans", "tgt_lang": "ron_Latn", "num_beams": 2}),
        ("a " * 80, {"src_lang": "zho_Hans", "truncation": True}),
        ("Rain", {"tgt_lang": "ron_Latn", "forced_bos_token_id": 173}),
        ("Rain", {"src_lang": "xx"}),
    ],
    "nllb-without": [("Rain", {}), ("Rain", {"forced_bos_token_id": 174}), ("Rain", {"tgt_lang": "deu_Latn"})],
    "mbart": [
        ("Rain is expected.", {}),
        ("Rain is expected.", {"src_lang": "zh_CN", "tgt_lang": "ro_RO"}),
        ("Rain is expected.", {"src_lang": "zh_CN"}),
        ("Rain", {"tgt_lang": "RO_ro"}),
    ],
    "prefixes": [
        ("Rain", {}),
        ("Rain", {"tgt_lang": "fr"}),
        ("Rain", {"src_lang": "en", "tgt_lang": "de"}),
        ("Rain", {"prefix": "x: "}),
        ("Rain", {"src_lang": "en"}),
        ("Rain", {"src_lang": "en", "tgt_lang": "d"}),
        ("Rain", {"prefix": "x: ", "tgt_lang": "de"}),
    ],
    "marks": [
        ("Rain", {}),
        (">>ron<< Rain", {}),
        ("Rain", {"tgt_lang": "fra"}),
        ("Rain", {"tgt_lang": "fr"}),
        ("Rain", {"src_lang": "en", "tgt_lang": "fra"}),
    ],
}


@pytest.fixture(scope="module")
def translator(site: Path, exported: Any) -> Callable[[str], Path]:
    """Returns a function that puts a bundle of `LANGUAGES` into the site by its name, unless it is there.

    Their languages are selected by tokens of languages, prefixes, and tokens at the start of a text.
    """

    def make(name: str) -> Path:
        folder = site / "models" / name
        if folder.is_dir():
            return folder
        folder.parent.mkdir(exist_ok=True)
        if name == "marks":
            row = replace(ROWS["t5-text2text-generation"], tokenizer=tiny_text.language_marks)
            kf.export.export(row.model(), folder, "onnx")
        elif name == "prefixes":
            shutil.copytree(exported("text2text"), folder)
            change_info(folder, PREFIXES, {})
        else:
            row, format = ("mbart", "onnx") if name == "mbart" else ("m2m_100", "tflite")
            shutil.copytree(shared_bundle(f"{row}-text2text-generation", format), folder)
            if name == "nllb-without":
                change_info(folder, {"generation": {"decoder_start_token_id": 2}}, {})
        return folder

    return make


PREFIXES: dict[str, Any] = {
    "task_prefixes": {
        "translation_en_to_de": "to German: ",
        "translation_en_to_fr": "to French: ",
        "summarization": "in short: ",
    },
    "task_settings": {"translation_en_to_de": {"max_new_tokens": 5}, "translation_en_to_fr": {"num_beams": 2}},
}


@pytest.mark.parametrize("name", grid(LANGUAGES, always=("nllb", "prefixes"), others="release"))
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.TruncationWarning")
def test_languages(name: str, page: Page, translator: Callable[[str], Path]) -> None:
    """Texts, and errors with the known languages and the closest ones, are those of Python."""
    pipe = kf.pipeline(translator(name), "translation")
    calls = [(text, options if name == "prefixes" else {**SHORT, **options}) for text, options in LANGUAGES[name]]
    texts = set()
    for (text, options), answer in zip(calls, run(page, name, calls, task="translation"), strict=True):
        try:
            expected = pipe(text, **options)
        except InputError as error:
            # Python puts texts between single quotes, and None is null.
            known = str(error).replace("'", '"').replace("None", "null").replace("=…", "")
            assert answer["name"] == "InputError"
            if "several prefixes" not in known:
                assert answer["message"] == known
        else:
            assert answer.get("result") == expected, answer
            texts.add(str(expected))
    assert len(texts) > 1


def test_only_the_new_text(page: Page, exported: Any) -> None:
    exported("story")
    (answer,) = run(page, "story", [("The cat", {"return_full_text": False})])
    assert answer["result"][0]["generated_text"] == "".join(answer["pieces"])


def test_threads(page: Page, exported: Any) -> None:
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


BAD: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("story", "word " * 100, {}, "CapacityError", "leaves no space for a new token. Expected at most 79 tokens"),
    ("story", "", {}, "InputError", "A prompt needs at least one token"),
    ("story", 3, {}, "InputError", "A prompt was expected. Received: 3"),
    ("story", "x", {"temperature": -1}, "GenerationError", "temperature must be 0, for the most probable token, or"),
    ("story", "x", {"top_q": 1}, "GenerationError", "top_q is not a generation setting"),
    ("story", "x", {"num_return_sequences": 3}, "GenerationError", "num_return_sequences is not a generation setting"),
    ("story", "x", {"num_beams": 2, "top_p": 0.5}, "GenerationError", "beam search with sampling"),
    ("story", "x", {"max_tokens": 3}, "GenerationError", "max_tokens is not a generation setting"),
    ("story", "x", {"max_length": 1}, "GenerationError", "max_length includes the prompt"),
    ("text2text", "word " * 600, {}, "CapacityError", "at most 64 tokens"),
    ("text2text", "", {}, "InputError", "An input text was expected"),
    ("classes", {"text": "a " * 100, "pair": "b"}, {}, "CapacityError", "Expected at most 64 tokens. Received: 104"),
    ("classes", "x", {"topk": 1}, "InputError", "Unknown options: topk. Expected: top_k, truncation"),
    ("classes", "x", {"combine": "sum"}, "InputError", "combine must be one of mean, max. Received: sum"),
    ("classes", "x", {"chunk_length": 65}, "InputError", "chunk_length must be an integer from 3 to 64. Received: 65"),
    ("classes", "x", {"stride": 62}, "InputError", "stride must be an integer from 0 to 61. Received: 62"),
    ("entities", "x", {"combine": "entities"}, "InputError", "needs an aggregation_strategy other than none"),
    ("gaps", "[MASK] " * 63, {}, "CapacityError", "Expected at most 64 tokens. Received: 65"),
    ("classes", "x", {"top_k": 0}, "InputError", "top_k must be at least 1"),
    ("entities", "x", {"aggregation_strategy": "most"}, "InputError", "must be one of none, simple"),
    ("gaps", "no gap", {}, "InputError", r"The text has no \[MASK\]"),
    ("vectors", "x", {"pooling": "max"}, "InputError", "pooling must be"),
    ("pooled", "x", {"pooling": "cls"}, "InputError", "computes the mean"),
    ("embeddings", 3, {}, "InputError", "A text was expected. Received: 3"),
    ("embeddings", ["a", 3], {}, "InputError", "A text was expected. Received: 3"),
    ("embeddings", {"query": "a"}, {}, "InputError", "A list of documents was expected"),
    ("embeddings", "x", {"prompt_name": "y"}, "InputError", "no prompt of this name. Expected: query. Received: y"),
    ("embeddings", "x", {"prompt_name": "query", "prompt": "a"}, "InputError", "Only one of prompt_name and prompt"),
    ("embeddings", "x", {"truncate_dim": 999}, "InputError", "truncate_dim must be an integer from 1 to "),
    ("ranking", {"query": "a", "documents": "b"}, {}, "InputError", "A list of documents was expected"),
    ("ranking", {"query": "a " * 61, "documents": ["b"]}, {}, "CapacityError", "fewer than 64 tokens. Received: 64"),
    ("ranking-classes", {"query": "a", "documents": ["b"]}, {}, "InputError", "Expected: label, one of CONTRADICTION"),
    ("ranking-relu", {"query": "a", "documents": ["b"]}, {}, "InputError", "unsupported function for scores"),
    ("topics", "x", {}, "InputError", "At least one class was expected"),
    ("topics", "x", {"candidate_labels": "a " * 63}, "CapacityError", "leave no space for a text"),
    ("topics", "x", {"candidate_labels": "a", "hypothesis_template": "no"}, "InputError", "must contain {} once"),
    ("topics", "x", {"candidate_labels": "a", "hypothesis_template": "{} {0}"}, "InputError", "no other braces"),
    ("topics-missing", "x", {"candidate_labels": "a"}, "InputError", "a class whose name starts with 'entail'"),
    ("answers", {"question": "Who?"}, {}, "InputError", "A context was expected"),
]


@pytest.mark.parametrize(
    "name", grid(dict.fromkeys(name for name, *_ in BAD), always=("story", "classes"), others="release")
)
def test_bad_input(name: str, page: Page, exported: Any) -> None:
    exported(name)
    rows = [row[1:] for row in BAD if row[0] == name]
    answers = run(page, name, [(inputs, options) for inputs, options, _, _ in rows])
    for (_, _, kind, message), answer in zip(rows, answers, strict=True):
        assert answer.get("name") == kind, answer
        assert re.search(message, answer["message"])


def opening(page: Page, base: str, **options: Any) -> dict[str, str]:
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
def test_damaged_bundles(damage: str, page: Page, exported: Any, site: Path) -> None:
    change, kind, message = DAMAGE[damage]
    folder = site / "models" / f"damaged {damage}"
    shutil.copytree(exported("story"), folder)
    change(folder)
    error = opening(page, f"/models/{folder.name}/")
    assert error["name"] == kind, error
    assert message in error["message"]


def test_a_manifest_with_all_kinds_of_values(page: Page, exported: Any, site: Path) -> None:
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


def test_errors_of_options(page: Page, exported: Any) -> None:
    exported("story")
    error = opening(page, "/models/story/", engine="onnx")
    assert error["name"] == "InputError"
    assert "This bundle runs on litert" in error["message"]
    error = opening(page, "/models/story/", vendor="/nowhere/")
    assert error["name"] == "RuntimeError"
    assert "/nowhere/tokenizers/tokenizers.min.mjs" in error["message"]


def test_worker(page: Page, exported: Any) -> None:
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
