"""onnxruntime-genai runs bundles with the answers of Keras; unsupported settings are refused at export."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from kerasformer import bundle
from kerasformer.errors import BundleError, ExportError
from kerasformer.export.reference_texts import PROMPTS
from kerasformer.tokenization import Tokenizer, hard_texts
from kerasformer.tools.bench import bench
from tests import tiny_text
from tests.core.tokenization.chat_templates.conversations import SYSTEM, TURNS, USER
from tests.foreign.cards import block
from tests.foreign.cases import DECODERS, Case, cases, tiny
from tests.foreign.environments import need, packages, run
from tests.foreign.test_litert_lm import CHAT, llama_like
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_tokens

TEXTS = list(PROMPTS[:10])
MULTILINGUAL_TEXTS = [
    "Hello, World!  it's  ok, don't they're I'VE",
    "日本語。 한국어 สวัสดี",
    "Привет, мир! Ёлка",
    "مرحبا بالعالم नमस्ते",
    "😀👩‍👩‍👧 zero\u200bwidth\u00a0nbsp cafe\u0301 naïve Å",
    "tabs\tand\nnew\r\nlines\n\n  x 1234567 3.14 1,000  ",
]
NEW = 16
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
# The runtime has another length penalty; see the test of it.
BEAMS = {**GREEDY, "num_beams": 3, "length_penalty": 0.0}
SEARCHES = {
    "greedy": GREEDY,
    "penalty": {**GREEDY, "repetition_penalty": 1.5},
    "n-grams": {**GREEDY, "no_repeat_ngram_size": 2},
    "beams": BEAMS,
}


def ask(folder: Path, *runs: dict[str, Any]) -> Any:
    """Returns the reply of the runtime to some runs."""
    return run("genai", "genai_generate.py", {"folder": str(folder), "runs": runs})


def answers(folder: Path, *runs: dict[str, Any]) -> list[Any]:
    """Returns the answers of the runtime."""
    reply = ask(folder, *runs)
    assert "error" not in reply, reply["error"]
    return reply["answers"]


def generated(folder: Path, texts: list[str], *searches: dict[str, Any], together: bool = False) -> list[Any]:
    """Returns the new tokens of each text for each search; the texts run separately or in one batch."""
    parts = [texts] if together else [[text] for text in texts]
    runs = [{"texts": part, "new_tokens": NEW, **each} for each in searches for part in parts]
    rows = [row for answer in answers(folder, *runs) for row in answer["new"]]
    return [rows[start : start + len(texts)] for start in range(0, len(rows), len(texts))]


def expected(source: Any, texts: list[str], *searches: dict[str, Any]) -> list[Any]:
    """Returns the same from a Keras model, or from a bundle on the engine of this package."""
    pipe = keras_pipeline(source, "text-generation")
    settings = {"max_new_tokens": NEW, "batch_size": 1, "return_dict_in_generate": True}
    outputs = [pipe(texts, **settings, **each) for each in searches]
    return [[output.sequences[0].tolist() for output in each] for each in outputs]


def before(ends: Collection[int], searches: list[Any]) -> list[Any]:
    """Returns the tokens before the first end token, which the runtime omits, or repeats as padding of a batch."""

    def cut(row: list[int]) -> list[int]:
        return row[: next((index for index, token in enumerate(row) if token in ends), len(row))]

    return [[cut(row) for row in rows] for rows in searches]


def compare(case: Case, folder: Path, profile: str) -> None:
    """Compares the tokens of all searches, separately and in a batch."""
    model = case.model()
    case.export(folder, model, target="genai", profile=profile)
    ends = model.info().eos_token_id
    received = dict(zip(SEARCHES, before(ends, generated(folder, TEXTS, *SEARCHES.values())), strict=True))
    if case.quantize == "none":
        from_keras = before(ends, expected(model, TEXTS, *SEARCHES.values()))
        assert list(received.values()) == from_keras
        assert before(ends, generated(folder, TEXTS, GREEDY, together=True)) == from_keras[:1]
        return
    # Rounding changes the sums of beams, so beams are compared with the same file in another runtime.
    assert received.pop("beams") == before(ends, expected(folder, TEXTS, BEAMS))[0]
    prompts = [model.tokenizer.encode(text) for text in TEXTS]
    for name, rows in received.items():
        check_tokens(model, folder, prompts, rows, NEW, SEARCHES[name])


@pytest.mark.foreign("genai")
@cases(
    *(tiny("gpt2", "text-generation", quantize) for quantize in ("none", "fp16", "int8", "int4")),
    # The others have windows.
    *(case for case in DECODERS if case.model_type not in ("gemma3_text", "gpt_neo", "mistral", "qwen3")),
    recipes=("none", "int4"),
)
def test_tokens_are_those_of_keras(case: Case, tmp_path: Path) -> None:
    """With a cache that is updated in place."""
    compare(case, tmp_path / "bundle", "ort")


def test_the_portable_profile_too(tmp_path: Path) -> None:
    """With a cache that grows."""
    compare(tiny("gpt2", "text-generation"), tmp_path / "bundle", "portable")


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_the_python_of_the_card(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged, except for the folder and a prompt after which this model generates complete characters."""
    folder = case.export(tmp_path / "bundle", target="genai")
    program = block(folder, "onnxruntime-genai").replace("path/to/this/folder", str(folder))
    command = [str(need("genai")), "-I", "-c", program.replace("Once upon a time", "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pipe = kf.pipeline(folder, "text-generation")
    (result,) = pipe("a", max_new_tokens=40, return_full_text=False, **GREEDY)
    assert done.stdout == result["generated_text"]
    monkeypatch.setenv("PYTHONPATH", packages("genai"))
    found = bench([folder], prompt_length=3, new_tokens=4, rounds=1, engines=True)
    assert not found.not_measured
    assert [subject.engine for subject in found.subjects] == ["onnx", "onnxruntime-genai"]


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_ends_are_those_of_keras(case: Case, tmp_path: Path) -> None:
    """At any of several end tokens; the best finished beam is that of Keras if the length penalty is 0."""
    model = case.model()
    first = expected(model, TEXTS, GREEDY)[0]
    ends = {first[0][1], first[1][3], first[2][-1]}
    model.generation_config = model.generation_config.replace(eos_token_id=sorted(ends), min_length=20)
    folder = case.export(tmp_path / "bundle", model, target="genai")
    searches = [GREEDY, BEAMS, {**BEAMS, "early_stopping": True}]
    from_keras = before(ends, expected(model, TEXTS, *searches))
    assert min(map(len, from_keras[0])) < NEW
    assert before(ends, generated(folder, TEXTS, *searches)) == from_keras
    # In a batch, min_length also counts padding.
    searches = [{**each, "min_length": 0} for each in searches]
    from_keras = before(ends, expected(model, TEXTS, *searches))
    assert before(ends, generated(folder, TEXTS, *searches, together=True)) == from_keras


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_sampling(case: Case, tmp_path: Path) -> None:
    """Depends on the seed; the default is that of generation_config.json."""
    model = case.model()
    model.generation_config = model.generation_config.replace(do_sample=True, temperature=1.5, top_k=50, seed=3)
    folder = case.export(tmp_path / "bundle", model, target="genai")
    text = {"texts": TEXTS[:1], "new_tokens": NEW}
    runs = [text, text, {**text, "random_seed": 4}, {**text, "top_k": 1}, {**text, **GREEDY}]
    first, again, other, best, greedy = [answer["new"] for answer in answers(folder, *runs)]
    assert first == again != other
    assert best == greedy != first


@pytest.mark.foreign("genai")
@pytest.mark.parametrize("tokenizer", [tiny_text.byte_pairs, llama_like])
@cases(tiny("gpt2", "text-generation"))
def test_ids_of_multilingual_texts(case: Case, tokenizer: Callable[[], Tokenizer], tmp_path: Path) -> None:
    """Its ids and decoded texts are those of this package, including a begin token."""
    row = replace(case.source, tokenizer=tokenizer)
    model = row.model()
    folder = case.export(tmp_path / "bundle", model, target="genai", capacity=96)
    results = answers(folder, *({"texts": [text], "new_tokens": 1} for text in MULTILINGUAL_TEXTS))
    assert [each["prompts"][0] for each in results] == [
        model.tokenizer(text).input_ids[0].tolist() for text in MULTILINGUAL_TEXTS
    ]
    assert [each["decoded"][0] for each in results] == MULTILINGUAL_TEXTS
    rows = json.loads((folder / hard_texts.FILE).read_text(encoding="utf-8"))
    reply = run("genai", "genai_generate.py", {"folder": str(folder), "tokenize": [row["text"] for row in rows]})
    different = [row["text"] for row, ids in zip(rows, reply["answers"], strict=True) if ids != row["ids"]]
    assert different == []


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_conversations(case: Case, tmp_path: Path) -> None:
    """Its prompts of conversations are those of this package; its engine for templates lacks the filter `upper`."""
    model = case.model()
    template = CHAT.replace("(message.role | upper)", "message.role")
    model.tokenizer.chat_template = template
    folder = case.export(tmp_path / "bundle", model, target="genai")
    chats = [USER, TURNS, SYSTEM]
    reply = run("genai", "genai_generate.py", {"folder": str(folder), "chats": chats})
    assert reply.get("answers") == [
        model.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) for messages in chats
    ], reply


def test_one_file_is_added(tmp_path: Path) -> None:
    """All other files are those of the plain bundle. The file agrees with the manifest and has a checksum."""
    case = tiny("gpt2", "text-generation")
    model = case.model()
    plain = bundle.read(case.export(tmp_path / "plain", model, format="onnx"))
    folder = case.export(tmp_path / "bundle", model, target="genai")
    manifest = bundle.read(folder)
    assert set(manifest.files) - set(plain.files) == {"genai_config.json"}
    assert {name for name in plain.files if plain.files[name] != manifest.files[name]} == {"README.md"}
    config = json.loads((folder / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    signature = manifest.signatures["model"]
    templates = [name for names in (decoder["inputs"], decoder["outputs"]) for name in names.values()]
    assert {name.replace("%d", "1") for name in templates} <= set(signature.inputs) | set(signature.outputs)

    (folder / "genai_config.json").write_text("{}")
    with pytest.raises(BundleError, match=r"was changed after its export: genai_config\.json"):
        kf.pipeline(folder, "text-generation")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "settings": (
        {"bad_words_ids": [[5]], "frequency_penalty": 0.5},
        r"does not support these settings\. Received: frequency_penalty=0\.5, bad_words_ids",
    ),
    "beams": (
        {"num_beams": 2},
        r"not of the answer alone, unless length_penalty is 0",
    ),
    "beams with sampling": ({"num_beams": 2, "do_sample": True}, "does not sample in"),
    "beams with rules": (
        {"num_beams": 2, "length_penalty": 0.0, "repetition_penalty": 1.1},
        "different scores of beams from Keras",
    ),
    "beams with several ends": (
        {"num_beams": 2, "length_penalty": 0.0, "eos_token_id": [0, 5]},
        r"may run out of beams if there is more than one end token\. Received: num_beams=2, eos_token_id=\(0, 5\)",
    ),
    "beams that never stop early": (
        {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never"},
        "only True or False for early_stopping. Received: early_stopping='never'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_refused(name: str, tmp_path: Path) -> None:
    """Before anything is written, with the reason."""
    case, (settings, message) = tiny("gpt2", "text-generation"), REFUSED[name]
    model = case.model()
    model.generation_config = model.generation_config.replace(**settings)
    with pytest.raises(ExportError, match=message):
        case.export(tmp_path / "bundle", model, target="genai")
    assert not (tmp_path / "bundle").exists()


def test_other_tokenizers_are_refused(tmp_path: Path) -> None:
    case = tiny("gpt2", "text-generation")
    model = case.model()
    for tokenizer, message in (
        (tiny_text.pieces(), "a BPE tokenizer.* Received: Unigram"),
        (None, "needs a tokenizer"),
    ):
        model.tokenizer = tokenizer
        with pytest.raises(ExportError, match=message):
            case.export(tmp_path / "bundle", model, target="genai")
