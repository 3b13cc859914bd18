"""onnxruntime-genai answers as Keras does, from the bundle as it is; what it cannot do is refused at export."""

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
from tests import tiny_text
from tests.export.text_models import ROWS
from tests.foreign.cards import block
from tests.foreign.cases import Case, cases, tiny
from tests.foreign.environments import need, run
from tests.foreign.test_litert_lm import llama_like
from tests.margins import check_tokens

TEXTS = list(PROMPTS[:10])
MANY_TONGUES = [
    "Hello, World!  it's  ok, don't they're I'VE",
    "日本語。 한국어 สวัสดี",
    "Привет, мир! Ёлка",
    "مرحبا بالعالم नमस्ते",
    "😀👩‍👩‍👧 zero\u200bwidth\u00a0nbsp cafe\u0301 naïve Å",
    "tabs\tand\nnew\r\nlines\n\n  x 1234567 3.14 1,000  ",
]
NEW = 16
# Of random weights four bits keep little: what counts is that both runtimes read the same file.
INT4 = Case(replace(ROWS["gpt2-text-generation"], min_agreement=0.4), "int4")
# Told in both, for a preset has settings of its own.
GREEDY = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
BEAMS = {**GREEDY, "num_beams": 3}
SEARCHES = {
    "greedy": GREEDY,
    "penalty": {**GREEDY, "repetition_penalty": 1.5},
    "n-grams": {**GREEDY, "no_repeat_ngram_size": 2},
    "beams": BEAMS,
}


def ask(folder: Path, *runs: dict[str, Any]) -> Any:
    """What the runtime says to these runs."""
    return run("genai", "genai_generate.py", {"folder": str(folder), "runs": runs})


def answers(folder: Path, *runs: dict[str, Any]) -> list[Any]:
    """What it answers."""
    said = ask(folder, *runs)
    assert "error" not in said, said["error"]
    return said["answers"]


def generated(folder: Path, texts: list[str], *searches: dict[str, Any], together: bool = False) -> list[Any]:
    """For each search the new tokens of each text, each given alone or all of them in one batch."""
    parts = [texts] if together else [[text] for text in texts]
    runs = [{"texts": part, "new_tokens": NEW, **each} for each in searches for part in parts]
    rows = [row for answer in answers(folder, *runs) for row in answer["new"]]
    return [rows[start : start + len(texts)] for start in range(0, len(rows), len(texts))]


def expected(source: Any, texts: list[str], *searches: dict[str, Any]) -> list[Any]:
    """The same from a Keras model, or from a bundle in this package's own engine."""
    pipe = kf.pipeline("text-generation", source)
    settings = {"max_new_tokens": NEW, "batch_size": 1, "return_dict_in_generate": True}
    outputs = [pipe(texts, **settings, **each) for each in searches]
    return [[output.sequences[0].tolist() for output in each] for each in outputs]


def before(ends: Collection[int], searches: list[Any]) -> list[Any]:
    """Tokens up to the first end, which the runtime leaves out or repeats to the end of a batch."""

    def cut(row: list[int]) -> list[int]:
        return row[: next((index for index, token in enumerate(row) if token in ends), len(row))]

    return [[cut(row) for row in rows] for rows in searches]


def compare(case: Case, folder: Path, profile: str) -> None:
    """Tokens of every search whose rules are the same; alone, and in a batch."""
    model = case.model()
    case.export(folder, model, target="genai", profile=profile)
    ends = model.info().eos_token_id
    found = dict(zip(SEARCHES, before(ends, generated(folder, TEXTS, *SEARCHES.values())), strict=True))
    if case.quantize == "none":
        wanted = before(ends, expected(model, TEXTS, *SEARCHES.values()))
        assert list(found.values()) == wanted
        assert before(ends, generated(folder, TEXTS, GREEDY, together=True)) == wanted[:1]
        return
    # What rounds has other sums of beams; those are compared with the same file in another runtime.
    assert found.pop("beams") == before(ends, expected(folder, TEXTS, BEAMS))[0]
    prompts = [model.tokenizer.encode(text) for text in TEXTS]
    for name, rows in found.items():
        check_tokens(model, folder, prompts, rows, NEW, SEARCHES[name])


@pytest.mark.foreign("genai")
@cases(
    *(tiny("gpt2", "text-generation", quantize) for quantize in ("none", "fp16", "int8")),
    INT4,
    *(Case("story-gpt2", quantize) for quantize in ("none", "fp16", "int8", "int4")),
)
def test_tokens_are_those_of_keras(case: Case, tmp_path: Path) -> None:
    """With a cache that is written in place."""
    compare(case, tmp_path / "bundle", "ort")


@pytest.mark.parametrize("quantize", ["none", "int8"])
def test_the_portable_profile_too(quantize: str, tmp_path: Path) -> None:
    """With a cache that grows."""
    compare(tiny("gpt2", "text-generation", quantize), tmp_path / "bundle", "portable")


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_the_python_of_the_card(case: Case, tmp_path: Path) -> None:
    """As it stands there, but for the folder and a prompt after which this model writes whole letters."""
    folder = case.export(tmp_path / "bundle", target="genai")
    program = block(folder, "onnxruntime-genai").replace("path/to/this/folder", str(folder))
    command = [str(need("genai")), "-I", "-c", program.replace("Once upon a time", "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pipe = kf.pipeline("text-generation", folder)
    (written,) = pipe("a", max_new_tokens=40, return_full_text=False, **GREEDY)
    assert done.stdout == written["generated_text"]


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_ends_are_those_of_keras(case: Case, tmp_path: Path) -> None:
    """At any of several end tokens; finished beams win as in Keras where their length does not count."""
    model = case.model()
    first = expected(model, TEXTS, GREEDY)[0]
    ends = {first[0][1], first[1][3], first[2][-1]}
    model.generation_config = model.generation_config.replace(eos_token_id=sorted(ends), min_length=20)
    folder = case.export(tmp_path / "bundle", model, target="genai")
    searches = [GREEDY, {**BEAMS, "length_penalty": 0.0}, {**BEAMS, "length_penalty": 0.0, "early_stopping": True}]
    wanted = before(ends, expected(model, TEXTS, *searches))
    assert min(map(len, wanted[0])) < NEW
    assert before(ends, generated(folder, TEXTS, *searches)) == wanted
    # In a batch, min_length counts padding too.
    searches = [{**each, "min_length": 0} for each in searches]
    wanted = before(ends, expected(model, TEXTS, *searches))
    assert before(ends, generated(folder, TEXTS, *searches, together=True)) == wanted


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_draws(case: Case, tmp_path: Path) -> None:
    """By the seed; a generation_config.json is its default."""
    model = case.model()
    model.generation_config = model.generation_config.replace(do_sample=True, temperature=1.5, top_k=50, seed=3)
    folder = case.export(tmp_path / "bundle", model, target="genai")
    text = {"texts": TEXTS[:1], "new_tokens": NEW}
    runs = [text, text, {**text, "random_seed": 4}, {**text, "top_k": 1}, {**text, **GREEDY}]
    drawn, again, other, best, greedy = [answer["new"] for answer in answers(folder, *runs)]
    assert drawn == again != other
    assert best == greedy != drawn


@pytest.mark.foreign("genai")
@pytest.mark.parametrize("tokenizer", [tiny_text.byte_pairs, llama_like])
@cases(tiny("gpt2", "text-generation"))
def test_ids_of_many_tongues(case: Case, tokenizer: Callable[[], Tokenizer], tmp_path: Path) -> None:
    """It reads and writes texts as this package does, with a token before every text where there is one."""
    row = replace(case.source, tokenizer=tokenizer)
    model = row.model()
    folder = case.export(tmp_path / "bundle", model, target="genai", capacity=96)
    read = answers(folder, *({"texts": [text], "new_tokens": 1} for text in MANY_TONGUES))
    assert [each["prompts"][0] for each in read] == [
        model.tokenizer(text).input_ids[0].tolist() for text in MANY_TONGUES
    ]
    assert [each["read_back"][0] for each in read] == MANY_TONGUES
    rows = json.loads((folder / hard_texts.FILE).read_text(encoding="utf-8"))
    said = run("genai", "genai_generate.py", {"folder": str(folder), "read": [row["text"] for row in rows]})
    different = [row["text"] for row, ids in zip(rows, said["answers"], strict=True) if ids != row["ids"]]
    assert different == []


@pytest.mark.foreign("genai")
@cases(tiny("gpt2", "text-generation"))
def test_what_does_not_fit_is_told(case: Case, tmp_path: Path) -> None:
    """By the runtime: a prompt beyond what was asked for, and more than the cache holds."""
    folder = case.export(tmp_path / "bundle", target="genai", capacity=32)
    long = {"texts": [" ".join(TEXTS)]}
    assert "exceeds max length (32)" in ask(folder, {**long, "max_length": 32})["error"]
    assert "cannot be greater than model context_length (32)" in ask(folder, {**long, "max_length": 33})["error"]


def test_one_file_is_added(tmp_path: Path) -> None:
    """All else is the plain bundle; the file says what the manifest says, and is checked like all others."""
    case = tiny("gpt2", "text-generation")
    model = case.model()
    plain = bundle.read(case.export(tmp_path / "plain", model, format="onnx"))
    folder = case.export(tmp_path / "bundle", model, target="genai")
    manifest = bundle.read(folder)
    assert set(manifest.files) - set(plain.files) == {"genai_config.json"}
    assert {name for name in plain.files if plain.files[name] != manifest.files[name]} == {"README.md"}
    config = json.loads((folder / "genai_config.json").read_text())
    decoder = config["model"].pop("decoder")
    assert config["model"] == {
        "type": "decoder",
        "bos_token_id": 0,
        "eos_token_id": [0],
        "pad_token_id": 0,
        "vocab_size": 320,
        "context_length": 64,
    }
    assert {name: decoder[name] for name in ("filename", "num_hidden_layers", "num_key_value_heads", "head_size")} == {
        "filename": "onnx/model.onnx",
        "num_hidden_layers": 2,
        "num_key_value_heads": 3,
        "head_size": 24,
    }
    signature = manifest.signatures["model"]
    templates = [name for names in (decoder["inputs"], decoder["outputs"]) for name in names.values()]
    assert {name.replace("%d", "1") for name in templates} <= set(signature.inputs) | set(signature.outputs)
    assert config["search"]["max_length"] == 64
    assert config["search"]["past_present_share_buffer"] and not config["search"]["early_stopping"]

    (folder / "genai_config.json").write_text("{}")
    with pytest.raises(BundleError, match=r"was changed after its export: genai_config\.json"):
        kf.pipeline("text-generation", folder)


REFUSED = {
    "encoder": (tiny("bert", "text-classification"), {}, "is for decoders: onnxruntime-genai generates text"),
    "classifier of a decoder": (tiny("gpt2", "text-classification"), {}, "is for decoders"),
    "encoder-decoder": (tiny("t5", "text2text-generation"), {}, "knows Whisper's and the recurrent one of Marian"),
    "words": (
        tiny("gpt2", "text-generation"),
        {"bad_words_ids": [[5]], "frequency_penalty": 0.5},
        r"does not know these settings\. Received: frequency_penalty=0\.5, bad_words_ids",
    ),
    "beams": (tiny("gpt2", "text-generation"), {"num_beams": 2}, r"not of the answer, unless length_penalty is 0"),
    "beams that draw": (tiny("gpt2", "text-generation"), {"num_beams": 2, "do_sample": True}, "draws no tokens in"),
    "beams with rules": (
        tiny("gpt2", "text-generation"),
        {"num_beams": 2, "length_penalty": 0.0, "repetition_penalty": 1.1},
        "other scores of beams than Keras",
    ),
    "beams to the very end": (
        tiny("gpt2", "text-generation"),
        {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never"},
        "True or False. Received: early_stopping='never'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_cannot_do_is_refused(what: str, tmp_path: Path) -> None:
    """Before anything is written, with the reason."""
    case, settings, message = REFUSED[what]
    model = case.model()
    model.generation_config = model.generation_config.replace(**settings)
    with pytest.raises(ExportError, match=message):
        case.export(tmp_path / "bundle", model, target="genai")
    assert not (tmp_path / "bundle").exists()


def test_other_tokenizers_and_formats_are_refused(tmp_path: Path) -> None:
    """Likewise."""
    case = tiny("gpt2", "text-generation")
    model = case.model()
    with pytest.raises(ExportError, match="needs format='onnx'"):
        case.export(tmp_path / "bundle", model, target="genai", format="tflite")
    for tokenizer, message in ((tiny_text.pieces(), "the kind BPE.* Received: Unigram"), (None, "needs a tokenizer")):
        model.tokenizer = tokenizer
        with pytest.raises(ExportError, match=message):
            case.export(tmp_path / "bundle", model, target="genai")
