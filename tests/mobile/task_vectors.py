"""Writes `tasks/` of the vectors: bundles whose model files are empty, calls of tasks and their results.

The models of encoders are tiny and random; their outputs are rounded, so that they need little room, and recorded. A
model that generates is replaced by the mock model.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import kerasformer as kf
from kerasformer import bundle
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.bundle import LABEL_SLOTS, WORD_SLOTS, Manifest
from kerasformer.engines import Forward, Step, open_engine
from kerasformer.errors import GenerationError, KerasformerError
from kerasformer.layers.sentence import NORMALIZE, Projection
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.pipelines import PIPELINES
from kerasformer.pipelines.opening import Opened
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.export.text_models import LENGTHS, ROWS, Row, SpanRow, size_options
from tests.mobile import vocabularies
from tests.mobile.json_text import dump, floats
from tests.mobile.mock import Mock, MockStep
from tests.mobile.tokenizer_vectors import compact

CAPACITY = 80
_KEPT = ("tokenizer.json", "tokenizer_config.json", "target_tokenizer.json")
_WITH_TEXTS = ("classes", "chat")
"""Bundles with `tokenizer_texts.json`, which is optional."""
_DIGITS = 3
_SLOTS = (WORD_SLOTS, LABEL_SLOTS)
"""Names of the inputs of a text that have no entry for each token."""
Calls = list[tuple[str, Any, dict[str, Any]]]
"""Task, inputs and options of each call."""


@dataclass(frozen=True)
class Bundle:
    """A bundle of the vectors.

    Attributes:
        row: The model.
        format: `"onnx"`, `"tflite"` or `"table"`.
        task: The task for the export; that of the model by default.
        calls: The calls.
        info: Changes of the manifest.
        capacity: Number of slots of the cache.
        quantize: Name of the recipe.
    """

    row: Row
    format: str
    calls: Calls
    task: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    capacity: int = CAPACITY
    quantize: str = "none"


_SMALL = {"hidden_dim": 12, "num_layers": 1, "num_heads": 2, "intermediate_dim": 16, "max_length": 64}
_TEXT = "Ännchen 🙂 lives in Rome, not in Paris."
_LONG = "Anna 🙂 lives in Rome, not in Zoe\u0301's house. Otto 👩‍👩‍👧 unbelievably lives in Paris.   " * 3
_TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if loop.first and message.role != "system" and not tools %}<|im_start|>system
{{ default_system | default("Be brief.") }}<|im_end|>
{% endif %}
{{- "<|im_start|>" + message["role"] + "\\n" }}
{{- message["tool_calls"][0]["function"]["name"] if message["content"] is none else message["content"].strip() }}
{{- "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def _chat_tokenizer() -> Tokenizer:
    tokenizer = vocabularies.qwen2()
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def _entity_calls() -> Calls:
    task, grouped = "token-classification", ("simple", "first", "average", "max")
    calls: Calls = [(task, _TEXT, {}), (task, _TEXT, {"ignore_labels": []}), (task, "", {})]
    calls += [(task, _TEXT, {"aggregation_strategy": strategy}) for strategy in grouped]
    chunked = {"chunk_length": 20, "stride": 9}
    calls += [
        (task, _LONG, {"aggregation_strategy": strategy, "combine": combine, **chunked})
        for strategy in grouped[::3]
        for combine in ("tokens", "entities")
    ]
    calls += [(task, _LONG, {}), (task, _LONG, {"truncation": True, "chunk_length": 30})]
    return [*calls, (task, _TEXT, {"aggregation_strategy": "most"}), (task, _TEXT, {"combine": "entities"})]


_SCHEMES = {
    "bioes": ["O", "B-PER", "I-PER", "E-PER", "S-PER"],
    "bilou": ["U-PER", "B-PER", "L-PER", "O", "I-PER"],
}
"""Labels that mark places in entities."""


def _scheme_calls() -> Calls:
    return [("token-classification", _QUERY, {"aggregation_strategy": "simple", "ignore_labels": []})]


_NAMED = "Ännchen 🙂 O-Sea ½\u2028it\x1cin 東京  Zoe\u0301's\tsea_a\x00!"
"""A text whose words are those of Python's patterns: with hyphens, without marks, between any kind of space."""
_TYPES = ["person", "city", "東京"]


def _span_calls(types: list[str], most: int = 20) -> Calls:
    """Returns calls of a model that reads at most so many words."""
    given: list[tuple[Any, dict[str, Any]]] = [
        *((text, {"labels": types}) for text in (_NAMED, _QUERY, "", " \t\x1f\u3000", "Rain")),
        (_NAMED, {"labels": " person, city ", "threshold": 0.6}),
        (_NAMED, {"labels": types, "threshold": 0.3, "flat_ner": False}),
        (_NAMED, {"labels": types, "threshold": 0.4, "multi_label": True}),
        (_NAMED, {"labels": types, "threshold": 0.4, "multi_label": True, "flat_ner": False}),
        (_QUERY, {"labels": ["sea"], "threshold": 0.0}),
        ("the " * (most + 1), {"labels": ["sea"]}),
        ("the " * (most + 1), {"labels": ["sea"], "truncation": True}),
        ("unbelievably " * most, {"labels": types}),
        ("unbelievably " * most, {"labels": types, "truncation": True, "threshold": 0.45}),
        # All tokens but the last special one fit.
        ("the " * most, {"labels": ["the " * (61 - most)]}),
        *((_QUERY, {"labels": labels}) for labels in ([], ["a", " "], ["b", "a", "b", "a"], ["a <<ENT>> b"])),
        (_QUERY, {"labels": ["sea"], "threshold": 1.5}),
        (_QUERY, {"labels": ["the sea " * 40]}),
    ]
    return [(ZERO_SHOT_TOKENS, text, options) for text, options in given]


_QUERY, _DOCUMENTS = "Anna lives in Rome.", ["The cat", "", _LONG, "Otto lives in Paris.", "Anna lives in Rome."]
_RANKED = {"query": _QUERY, "documents": _DOCUMENTS}
_CLASSES = ["rome", "an unbelievably fine film", "Paris"]
_ASKED = {"question": "Who?", "context": "Anna 🙂 lives in Rome. Otto lives in Paris."}
_SENTENCE = SentenceSettings(("mean",), (Projection(12), NORMALIZE), prompts={"query": "rain: "})
_BERT = ROWS["bert-feature-extraction"].settings
_HELLO = {"role": "user", "content": " Hello there "}
_TURNS = [
    {"role": "system", "content": "Answer."},
    _HELLO,
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Go on"},
]
_CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather", "arguments": "{}"}}]}
_TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
_NO_REPEATS = {"max_new_tokens": 8, "no_repeat_ngram_size": 1}

ENCODERS: dict[str, Bundle] = {
    "classes": Bundle(
        ROWS["bert-text-classification"],
        "onnx",
        [
            ("text-classification", inputs, options)
            for inputs, options in (
                ("A fine film.", {}),
                ("A fine film.", {"top_k": None}),
                ({"text": "A fine film.", "pair": "A bad one."}, {"top_k": 2}),
                ("", {}),
                (_LONG, {"top_k": None}),
                (_LONG, {"top_k": None, "combine": "max", "stride": 0}),
                (_LONG, {"top_k": None, "chunk_length": 24, "stride": 7}),
                (_LONG, {"truncation": True}),
                ("A fine film.", {"top_k": 0}),
                ("A fine film.", {"combine": "sum"}),
                ("A fine film.", {"chunk_length": 65}),
                ({"text": "a " * 100, "pair": "b"}, {}),
            )
        ],
    ),
    "classes-tflite": Bundle(
        ROWS["bert-text-classification"],
        "tflite",
        [("text-classification", text, {"top_k": None}) for text in ("A fine film.", "", "a " * 14, "a " * 15, _LONG)],
    ),
    "several-classes": Bundle(
        ROWS["distilbert-text-classification"],
        "onnx",
        [
            ("text-classification", text, options)
            for text in ("Nobody came.", _LONG)
            for options in ({}, {"top_k": None})
        ],
    ),
    "ranking": Bundle(
        replace(ROWS["bert-text-classification"], settings={**_BERT, "num_labels": 1}),
        "onnx",
        [
            ("text-ranking", _RANKED, {}),
            ("text-ranking", _RANKED, {"top_k": 3, "combine": "mean", "chunk_length": 24, "stride": 5}),
            ("text-ranking", _RANKED, {"truncation": True, "return_documents": True}),
            ("text-ranking", {"query": _QUERY, "documents": []}, {}),
            ("text-ranking", {"query": "a " * 61, "documents": ["b"]}, {}),
        ],
        "text-ranking",
    ),
    "topics": Bundle(
        replace(
            ROWS["bert-text-classification"],
            settings={**_BERT, "id2label": {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}},
        ),
        "onnx",
        [
            ("zero-shot-classification", _QUERY, {"candidate_labels": " rome,, Paris "}),
            ("zero-shot-classification", _QUERY, {"candidate_labels": _CLASSES, "multi_label": True}),
            ("zero-shot-classification", _LONG, {"candidate_labels": _CLASSES, "hypothesis_template": "the {} is"}),
            ("zero-shot-classification", _LONG, {"candidate_labels": _CLASSES, "multi_label": True, "combine": "max"}),
            ("zero-shot-classification", _LONG, {"candidate_labels": _CLASSES[:1], "chunk_length": 40, "stride": 0}),
            ("zero-shot-classification", "x", {"candidate_labels": []}),
            ("zero-shot-classification", "x", {"candidate_labels": "a", "hypothesis_template": "no"}),
            ("text-ranking", _RANKED, {"label": "NEUTRAL", "top_k": 2}),
        ],
        "zero-shot-classification",
    ),
    "entities": Bundle(ROWS["bert-token-classification"], "onnx", _entity_calls()),
    **{
        f"entities-{name}": Bundle(ROWS["bert-token-classification"], "onnx", _scheme_calls(), info={"labels": labels})
        for name, labels in _SCHEMES.items()
    },
    "named-entities": Bundle(SpanRow(), "onnx", _span_calls(_TYPES)),
    # With fixed numbers of words and labels.
    "named-entities-tflite": Bundle(
        SpanRow(tokenizer=tiny_text.pieces_in_segments),
        "tflite",
        [*_span_calls(_TYPES[1:]), (ZERO_SHOT_TOKENS, "Rain", {"labels": [f"type {number}" for number in range(33)]})],
    ),
    "answers": Bundle(
        ROWS["bert-question-answering"],
        "onnx",
        [
            ("question-answering", _ASKED, {}),
            ("question-answering", _ASKED, {"top_k": 3, "max_answer_len": 4}),
            (
                "question-answering",
                {"question": "Who?", "context": "Anna."},
                {"top_k": 3, "handle_impossible_answer": True},
            ),
            ("question-answering", {"question": "Who?", "context": _LONG}, {"top_k": 3}),
            (
                "question-answering",
                {"question": "Who?", "context": _LONG},
                {"top_k": 2, "chunk_length": 24, "doc_stride": 4},
            ),
        ],
    ),
    "gaps": Bundle(
        ROWS["bert-fill-mask"],
        "onnx",
        [
            ("fill-mask", "A [MASK] film.", {"top_k": 3}),
            ("fill-mask", "[MASK] a [MASK].", {"top_k": 2}),
            ("fill-mask", "no gap", {}),
            ("fill-mask", "[MASK] " * 63, {}),
        ],
    ),
    "vectors": Bundle(
        Row("bert", "feature-extraction", _SMALL),
        "onnx",
        [
            *(("feature-extraction", "A fine film.", {"pooling": pooling}) for pooling in (None, "mean", "cls")),
            ("feature-extraction", "A fine film.", {"pooling": "mean", "normalize": True}),
            ("feature-extraction", _LONG, {"pooling": "mean", "chunk_length": 40, "stride": 3}),
            ("feature-extraction", "", {"pooling": "mean"}),
            ("feature-extraction", "A fine film.", {"pooling": "max"}),
        ],
    ),
    "embeddings": Bundle(
        Row("bert", "sentence-similarity", {**_SMALL, "sentence": _SENTENCE}),
        "onnx",
        [
            *(("sentence-similarity", text, {}) for text in ("A fine film.", _LONG, "", _DOCUMENTS[:2])),
            ("sentence-similarity", _LONG, {"chunk_length": 20, "stride": 4}),
            ("sentence-similarity", "A fine film.", {"prompt_name": "query", "truncate_dim": 5}),
            ("sentence-similarity", "A fine film.", {"prompt": "Otto ", "normalize": False}),
            ("sentence-similarity", _RANKED, {}),
            ("sentence-similarity", _RANKED, {"top_k": 2, "return_documents": True}),
            ("sentence-similarity", {"some": _DOCUMENTS[:2], "others": _DOCUMENTS[1:]}, {}),
            ("sentence-similarity", "A fine film.", {"prompt_name": "y"}),
            ("sentence-similarity", "A fine film.", {"truncate_dim": 999}),
        ],
    ),
}

_GPT2 = ROWS["gpt2-text-generation"]
_T5 = ROWS["t5-text2text-generation"]
_STORIES: Calls = [
    ("text-generation", prompt, settings)
    for prompt, settings in (
        ("Once upon a time", {}),
        ("The cat", {"return_full_text": False}),
        ("x", {"max_new_tokens": 30, "repetition_penalty": 1.3}),
        ("Rain 🙂", {"seed": 7, "temperature": 0.7, "top_k": 20, "top_p": 0.9}),
        ("The cat", {"seed": 3, "temperature": 3.0, "max_new_tokens": 40, "stop_strings": ["e", "##"]}),
        ("The cat", {"num_beams": 3, "max_new_tokens": 8, "length_penalty": 0.3}),
        ("The cat", {"max_new_tokens": 500}),
        ("word " * 100, {}),
        ("", {}),
    )
]
_TRANSLATIONS: Calls = [
    ("translation", text, {**_NO_REPEATS, **options})
    for text, options in (
        ("Rain is expected.", {}),
        ("Rain is expected.", {"tgt_lang": "ron_Latn"}),
        ("Rain", {"src_lang": "zho_Hans", "tgt_lang": "ron_Latn", "num_beams": 2}),
        ("a " * 80, {"src_lang": "zho_Hans", "truncation": True}),
        ("a " * 80, {}),
        ("Rain", {"src_lang": "xx"}),
    )
]

GENERATORS: dict[str, Bundle] = {
    "story": Bundle(_GPT2, "onnx", _STORIES),
    "story-tflite": Bundle(_GPT2, "tflite", _STORIES[::2], info={"task_prefixes": {"": "It rains. "}}),
    "chat": Bundle(
        replace(_GPT2, tokenizer=_chat_tokenizer, settings={**_GPT2.settings, "max_length": 300}),
        "onnx",
        [
            ("conversation", [_HELLO], {"max_new_tokens": 12}),
            ("conversation", _TURNS, {"max_new_tokens": 12, "return_full_text": False}),
            ("conversation", _TURNS[:2], {"seed": 5, "top_p": 0.9, "max_new_tokens": 6}),
            ("conversation", [_HELLO], {"tools": [_TOOL], "max_new_tokens": 3}),
            ("conversation", [_HELLO], {"chat_template_kwargs": {"default_system": "Sing!"}, "max_new_tokens": 3}),
            ("conversation", [_HELLO, _CALL, {"role": "tool", "content": "Rain"}], {"max_new_tokens": 3}),
            ("conversation", [{"role": "poet", "content": "Hi"}], {}),
            ("conversation", [{"role": "user", "content": "word " * 150}], {}),
        ],
        capacity=300,
    ),
    "text-to-text": Bundle(
        _T5,
        "onnx",
        [
            ("text2text-generation", "Rain", {}),
            ("text2text-generation", "Rain is expected.", {"num_beams": 3, "max_new_tokens": 9}),
            ("text2text-generation", "Rain", {"prefix": "long: ", "seed": 4, "max_new_tokens": 9}),
            ("summarization", "Rain is expected.", {"max_new_tokens": 9}),
            ("text2text-generation", "a " * 80, {}),
            ("text2text-generation", "", {}),
        ],
        info={"task_prefixes": {"": "so: ", "summarization": "in short: "}},
    ),
    "prefixes": Bundle(
        _T5,
        "tflite",
        [
            ("translation", text, options)
            for text, options in (
                ("Rain", {"tgt_lang": "fr"}),
                ("Rain", {"src_lang": "en", "tgt_lang": "de"}),
                ("Rain", {"prefix": "x: "}),
                ("Rain", {}),
                ("Rain", {"src_lang": "en", "tgt_lang": "d"}),
            )
        ],
        info={
            "task_prefixes": {"translation_en_to_de": "to German: ", "translation_en_to_fr": "to French: "},
            "task_settings": {"translation_en_to_de": {"max_new_tokens": 5}, "translation_en_to_fr": {"num_beams": 2}},
        },
    ),
    "languages-first": Bundle(ROWS["m2m_100-text2text-generation"], "onnx", _TRANSLATIONS),
    "languages-after": Bundle(
        ROWS["mbart-text2text-generation"],
        "onnx",
        [
            ("translation", "Rain is expected.", _NO_REPEATS),
            ("translation", "Rain is expected.", {**_NO_REPEATS, "src_lang": "zh_CN", "tgt_lang": "ro_RO"}),
            ("translation", "Rain", {"tgt_lang": "RO_ro"}),
        ],
    ),
    "language-marks": Bundle(
        replace(_T5, tokenizer=tiny_text.language_marks),
        "onnx",
        [
            ("translation", "Rain", {**_NO_REPEATS, "tgt_lang": "fra"}),
            ("translation", ">>ron<< Rain", _NO_REPEATS),
            ("translation", "Rain", {}),
            ("translation", "Rain", {"tgt_lang": "fr"}),
        ],
    ),
    "two-vocabularies": Bundle(
        ROWS["marian-text2text-generation"], "onnx", [("translation", "Rain is expected.", _NO_REPEATS)]
    ),
}


def _without_special_tokens() -> Tokenizer:
    tokenizer = tiny_text.wordpiece()
    tokenizer.add_no_special_tokens()
    return tokenizer


_TABLE = {"hidden_dim": 49, "skipped_token_ids": [1]}
TABLES: dict[str, Bundle] = {
    "static": Bundle(
        Row(
            "model2vec",
            "sentence-similarity",
            {**_TABLE, "sentence": SentenceSettings(steps=(NORMALIZE,))},
            _without_special_tokens,
        ),
        "table",
        [
            *(("sentence-similarity", text, {}) for text in ("A fine film.", _LONG, "", "\u2603", _DOCUMENTS[:2])),
            ("sentence-similarity", _LONG, {"chunk_length": 20, "stride": 4}),
            ("sentence-similarity", "A fine film.", {"normalize": False, "truncate_dim": 5}),
            ("sentence-similarity", _RANKED, {}),
        ],
        quantize="int8",
    ),
    "static-vectors": Bundle(
        Row("model2vec", "feature-extraction", _TABLE, _without_special_tokens),
        "table",
        [("feature-extraction", text, {"pooling": pooling}) for text in ("A film", "") for pooling in (None, "mean")],
        quantize="int4",
    ),
}
"""Bundles that need no runtime, so that each library runs the file itself."""


class RecordedForward:
    """An encoder that has read some texts before, alone and without padding; see `kerasformer.generation.Forward`.

    Args:
        manifest: Manifest of the bundle.
        recorded: Rows of `calls.json`.
        engine: Reads texts that were not recorded; without it, they are an error.
    """

    def __init__(self, manifest: Manifest, recorded: list[dict[str, Any]], engine: Forward | None = None) -> None:
        self.recorded, self._engine = recorded, engine
        (signature, *_) = manifest.signatures.values()
        axis = signature.inputs["input_ids"].shape[1]
        self._per_token = {
            name for name, info in signature.outputs.items() if len(info.shape) > 1 and info.shape[1] == axis
        }

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        mask = inputs["attention_mask"] > 0
        rows = [
            self._outputs(
                {name: array[row] if name in _SLOTS else array[row][mask[row]] for name, array in inputs.items()}
            )
            for row in range(len(mask))
        ]
        results = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in self._per_token:
                width = mask.shape[1]
                values = [np.pad(each, [(0, width - len(each)), *[(0, 0)] * (each.ndim - 1)]) for each in values]
            results[name] = np.stack(values)
        return results

    def _outputs(self, row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        key = {"ids": row["input_ids"].tolist()}
        if row.get("token_type_ids", np.zeros(1)).any():
            key["types"] = row["token_type_ids"].tolist()
        key |= {name: row[name].tolist() for name in _SLOTS if name in row}
        for each in self.recorded:
            if all(each.get(name) == key.get(name) for name in ("ids", "types", *_SLOTS)):
                return {
                    name: np.array(output["values"], np.float32).reshape(output["shape"])[0]
                    for name, output in each["outputs"].items()
                }
        if self._engine is None:
            raise LookupError(f"This text was not recorded. Received: {key}")
        outputs = self._engine.run({name: array[None] for name, array in row.items()})
        rounded = {
            name: array[:, : len(row["input_ids"])].round(_DIGITS) if name in self._per_token else array.round(_DIGITS)
            for name, array in outputs.items()
        }
        self.recorded.append(
            {
                **key,
                "outputs": {
                    name: {"shape": list(array.shape), "values": floats(array.ravel())}
                    for name, array in rounded.items()
                },
            }
        )
        return self._outputs(row)


def answer(pipe: Any, inputs: Any, options: dict[str, Any]) -> Any:
    """Returns the answer of a pipeline, for inputs of libraries in other languages."""
    if not isinstance(inputs, dict):
        return pipe(inputs, **options)
    if "query" in inputs:
        return pipe.rank(**inputs, **options)
    if "some" in inputs:
        return pipe.similarity(**inputs, **options)
    if "text" in inputs:
        return pipe(inputs["text"], pair=inputs["pair"], **options)
    return pipe(**inputs, **options)


def called(folder: Path, model: Forward | Step, task: str, inputs: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of `calls.json`."""
    row = {"task": task, "inputs": inputs, "options": options}
    of_pipeline = "text-generation" if task == "conversation" else task
    info = bundle.read(folder).info
    opened = Opened("onnx", model, Tokenizer.load(folder), info, of_pipeline)
    pipe = PIPELINES[of_pipeline](opened)
    with warnings.catch_warnings(action="ignore"):
        try:
            result = answer(pipe, copy.deepcopy(inputs), options)
        except KerasformerError as error:
            return {**row, "error": {"name": type(error).__name__, "message": str(error)}}
        row["result"] = json.loads(json.dumps(_plain(result)))
        if isinstance(model, Step):
            given = {name: value for name, value in options.items() if name != "return_full_text"}
            with suppress(GenerationError):  # there is no stream of beams, nor of a text that is cut
                row["pieces"] = list(pipe.stream(copy.deepcopy(inputs), **given))
        if isinstance(model, Step) and task != "conversation":
            row["reason"] = pipe(copy.deepcopy(inputs), **options, return_dict_in_generate=True).finish_reasons[0]
    return row


def _plain(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        return [_plain(each) for each in result]
    if isinstance(result, dict):
        return {name: _plain(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [_plain(each) for each in result]
    return float(f"{result:.6g}") if isinstance(result, float | np.floating) else result


def _export(given: Bundle, folder: Path, write_calls: Callable[[Path, Path], dict[str, Any]]) -> None:
    """Writes a bundle whose model files are empty, and its calls."""
    with TemporaryDirectory() as scratch:
        exported = Path(scratch) / "bundle"
        model = given.row.model()
        sizes = size_options(model, given.format, LENGTHS, given.capacity)
        kf.export.export(model, exported, given.format, given.quantize, task=given.task, **sizes)
        manifest = bundle.read(exported)
        folder.mkdir(parents=True)
        for name in (*_KEPT, *(["tokenizer_texts.json"] if folder.name in _WITH_TEXTS else [])):
            if (exported / name).exists():
                compact(exported / name, folder / name)
        for file in {signature.file for signature in manifest.signatures.values()}:
            (folder / file).parent.mkdir(exist_ok=True)
            if given.format == "table":
                copyfile(exported / file, folder / file)
            else:
                (folder / file).touch()  # an engine of the tests replaces the model
        info = replace(manifest.info, **given.info)
        changed = replace(manifest, info=info, files=bundle.checksums(folder), fidelity={}, versions={})
        bundle.write(folder, changed)
        compact(folder / bundle.MANIFEST, folder / bundle.MANIFEST)
        calls = write_calls(exported, folder)
        (folder / "calls.json").write_text(_readable(calls), encoding="utf-8")


def _readable(calls: dict[str, Any]) -> str:
    rows = ",\n".join(map(dump, calls["calls"]))
    if "engine" not in calls:
        return f'{{"calls":[\n{rows}\n]}}\n'
    if "recorded" not in calls["engine"]:
        return f'{{"engine":{dump(calls["engine"])},\n"calls":[\n{rows}\n]}}\n'
    recorded = ",\n".join(map(dump, calls["engine"]["recorded"]))
    return f'{{"engine":{{"recorded":[\n{recorded}\n]}},\n"calls":[\n{rows}\n]}}\n'


def write(folder: Path) -> None:
    """Writes all bundles."""
    for name, given in TABLES.items():

        def answered(exported: Path, target: Path, given: Bundle = given) -> dict[str, Any]:
            model = open_engine(exported)
            return {"calls": [called(target, model, *call) for call in given.calls]}

        _export(given, folder / name, answered)
    for name, given in ENCODERS.items():

        def recorded(exported: Path, target: Path, given: Bundle = given) -> dict[str, Any]:
            manifest = bundle.read(exported)
            model = RecordedForward(manifest, [], open_engine(exported, manifest, num_threads=1))
            calls = [called(target, model, *call) for call in given.calls]
            return {"engine": {"recorded": model.recorded}, "calls": calls}

        _export(given, folder / name, recorded)
    for name, given in GENERATORS.items():

        def mocked(exported: Path, target: Path, given: Bundle = given) -> dict[str, Any]:
            manifest, tokenizer = bundle.read(exported), Tokenizer.load(target)
            model = Mock(1, 2, tokenizer.writer.vocab_size, given.capacity, manifest.encoder_capacity)
            calls = [called(target, MockStep(model), *call) for call in given.calls]
            return {"engine": {"mock": model.to_json()}, "calls": calls}

        _export(given, folder / name, mocked)
