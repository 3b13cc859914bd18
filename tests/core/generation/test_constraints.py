"""Constrained generation: the output of any model follows the constraint."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from kerasformer.basics.arguments import shown
from kerasformer.errors import GenerationError, MissingExtraError, TokenizerError
from kerasformer.generation import GenerationConfig, GenerationOutput, parsing, request
from kerasformer.generation.constraints import constraint_of
from kerasformer.generation.history import History
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.generation.engines import Toy

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 18, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["the sea", "a ship", None]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
CHOICES = ["yes", "yesterday", "no", "nö", "a b"]


def is_json(text: str) -> bool:
    json.loads(text)
    return True


def is_person(text: str) -> bool:
    """Whether a text is JSON that follows `PERSON`."""
    person = json.loads(text)
    name, age, likes = (person.pop(key) for key in PERSON["required"])
    assert not person
    assert isinstance(name, str) and len(name) >= 2
    assert isinstance(age, int) and 18 <= age <= 120
    assert isinstance(likes, list) and 1 <= len(likes) <= 3
    return all(each in PERSON["properties"]["likes"]["items"]["enum"] for each in likes)


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


# name: (arguments, check of the text)
CASES: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "choices": ({"choices": CHOICES}, CHOICES.__contains__),
    "date": ({"regex": r"\d{4}-\d{2}"}, matches(r"[0-9]{4}-[0-9]{2}")),
    "words": ({"regex": r"([a-zö]+ ){2,}(\d+|no)\."}, matches(r"([a-zö]+ ){2,}([0-9]+|no)\.")),
    "person": ({"json_schema": PERSON}, is_person),
    "any JSON": ({"json_schema": json.dumps(True)}, is_json),
    "grammar": (
        {"grammar": 'start: sum\nsum: N | "(" sum OP sum ")"\nN: /[1-9][0-9]*/\nOP: "+" | "*"'},
        lambda text: isinstance(ast.parse(text, mode="eval").body, ast.BinOp | ast.Constant),
    ),
}
# name: settings of the run
METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "hot": {"temperature": 3.0, "seed": 1},
    "nucleus": {"top_p": 0.8, "top_k": 20, "seed": 2, "num_return_sequences": 3},
    "beams": {"num_beams": 4, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "temperature": 2.0, "seed": 3},
    "lookup": {"prompt_lookup_num_tokens": 4},
    "penalties": {"repetition_penalty": 1.3},
}


@cache
def spaced() -> Tokenizer:
    """Returns a tokenizer like T5's with all characters of JSON, whose token 1 is `</s>`."""
    characters = [chr(code) for code in range(0x21, 0x7F)] + ["ö"]
    words = ["▁yes", "▁a", "▁the", "▁sea", '▁{"', '":', "▁[", "▁1", "er", "day", "12"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(word, -1.0) for word in words] + [(character, -3.0) for character in characters]
    backend = Backend(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return Tokenizer(backend, special_tokens={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})


TOKENIZERS = {"bytes": (tiny_text.byte_pairs, 0), "pieces": (spaced, 1)}


def random_engine(vocab_size: int, seed: int = 0) -> Toy:
    """Returns an engine that generates random tokens with high probabilities."""
    table = np.random.default_rng(seed).normal(scale=4, size=(61, vocab_size)).astype(np.float32)
    return Toy(vocab_size, capacity=400, of=lambda row: table[(7 * row[-1] + 13 * len(row)) % 61])


def run(
    kind: str, settings: dict[str, Any], base: dict[str, Any] | None = None, engine: Toy | None = None
) -> tuple[list[str], GenerationOutput]:
    """Generates after three prompts of different lengths; returns the texts and the output."""
    make, end = TOKENIZERS[kind]
    tokenizer = make()
    engine = engine or random_engine(tokenizer.vocab_size + 7)
    ids = np.array([[5, 6, 7], [0, 8, 9], [0, 0, 10]])
    config = GenerationConfig(**{"max_new_tokens": 90, "eos_token_id": end, **(base or {})})
    run_request = request(settings, config, tokenizer, None)  # type: ignore[arg-type]
    rows = slice(1) if "prompt_lookup_num_tokens" in settings else slice(None)
    output = run_request.generate(engine, ids[rows], (ids != 0).astype(int)[rows])
    return [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in output.sequences], output


@pytest.mark.parametrize(
    ("kind", "case", "method"),
    [*((kind, case, "beams") for kind in TOKENIZERS for case in CASES), *(("bytes", "person", way) for way in METHODS)],
)
def test_texts_follow_the_constraint(kind: str, case: str, method: str) -> None:
    arguments, is_valid = CASES[case]
    texts, output = run(kind, {**arguments, **METHODS[method]})
    assert all(is_valid(text) for text in texts), texts
    assert set(output.finish_reasons) <= {"eos", "length"}


def test_a_constraint_depends_only_on_the_history() -> None:
    tokenizer, config = tiny_text.byte_pairs(), GenerationConfig(max_new_tokens=60, eos_token_id=0)
    cached = constraint_of({"json_schema": PERSON}, tokenizer, config)
    assert cached is not None
    prompts = np.array([[3], [4]], np.int32)
    history = History(prompts, np.zeros(2, int), 1, tuple(prompts), np.arange(2), max_new_tokens=60)
    random = np.random.default_rng(0)
    for _ in range(40):
        logits = random.normal(size=(2, tokenizer.vocab_size)).astype(np.float32)
        fresh = constraint_of({"json_schema": PERSON}, tokenizer, config)
        assert fresh is not None
        received = cached(history, logits.copy())
        np.testing.assert_array_equal(received, fresh(history, logits.copy()))
        history.append(received.argmax(axis=1))
        history = history.take(np.array([1, 0]))


@pytest.mark.parametrize(
    ("base", "reasons"),
    [
        ({"eos_token_id": ()}, {"stop"}),
        ({"eos_token_id": (0, 500)}, {"eos"}),  # end tokens may be missing in the vocabulary
        ({"eos_token_id": (0, 11)}, {"eos"}),  # 11 is ordinary text
        ({"eos_token_id": 11}, {"stop"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["greedy", "beams"])
def test_ends(base: dict[str, Any], reasons: set[str], method: str) -> None:
    texts, output = run("bytes", {"choices": ["0*0", "yes", "no"], **METHODS[method]}, base)
    assert set(output.finish_reasons) == reasons
    assert set(texts) <= {"0*0", "yes", "no"}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_beams_rank_all_choices(kind: str) -> None:
    texts, output = run(kind, {"choices": CHOICES, "num_beams": 8, "num_return_sequences": 5})
    assert [sorted(texts[i : i + 5]) for i in (0, 5, 10)] == [sorted(CHOICES)] * 3
    assert set(output.finish_reasons) == {"eos"}


def test_the_leading_space_of_sentencepiece_is_optional() -> None:
    """Decoding drops the space of the first token: `▁yes` becomes "yes"."""
    config = GenerationConfig(max_new_tokens=60, eos_token_id=1)
    constraint = constraint_of({"regex": "yes|ya yes"}, spaced(), config)
    assert constraint is not None
    history = History(
        np.array([[3]], np.int32), np.zeros(1, int), 1, (np.array([3]),), np.zeros(1, int), max_new_tokens=60
    )

    def allowed() -> set[str | None]:
        logits = constraint(history, np.zeros((1, spaced().vocab_size), np.float32))
        return {spaced().id_to_token(token) for token in np.flatnonzero(np.isfinite(logits[0])).tolist()}

    assert allowed() == {"▁", "▁yes", "y"}
    history.append(np.array(spaced().token_to_id("▁yes"))[None])
    assert allowed() == {"</s>"}


def test_a_first_token_may_be_forced() -> None:
    base = {"forced_bos_token_id": 2, "eos_token_id": 1, "max_new_tokens": 6}
    choice_request = request({"choices": ["yes"]}, GenerationConfig(**base), spaced(), None)  # type: ignore[arg-type]
    output = choice_request.generate(random_engine(spaced().vocab_size), np.array([[5]]), None)
    assert output.sequences[0][0] == 2 and spaced().decode(output.sequences[0], skip_special_tokens=True) == "yes"


def test_a_last_token_may_be_forced() -> None:
    texts, output = run("bytes", {"json_schema": PERSON, "max_new_tokens": 70}, {"forced_eos_token_id": 0})
    assert all(is_person(text) for text in texts) and set(output.finish_reasons) == {"eos"}


@pytest.mark.parametrize("limit", range(1, 6))
def test_a_text_ends_even_if_the_end_is_unlikely(limit: int) -> None:
    tokenizer = tiny_text.byte_pairs()
    endless = Toy(tokenizer.vocab_size, of=lambda row: np.arange(tokenizer.vocab_size) - 9999 * np.eye(1, 320)[0])
    texts, _ = run("bytes", {"regex": "([a-z]{40})*", "max_new_tokens": limit}, engine=endless)
    assert all(matches("([a-z]{40})*")(text) for text in texts)


def test_texts_are_complete_within_the_capacity() -> None:
    engine = random_engine(tiny_text.byte_pairs().vocab_size)
    engine.capacity = 58
    with pytest.warns(UserWarning, match="the cache is full"):
        texts, output = run("bytes", {"json_schema": PERSON, "max_new_tokens": 200}, engine=engine)
    assert all(is_person(text) for text in texts) and "capacity" in output.finish_reasons


@pytest.mark.parametrize(
    "arguments", [{"regex": ".*zebra", "max_new_tokens": 9}, {"regex": "(ab){30}", "max_length": 9}]
)
def test_incomplete_texts_warn(arguments: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=r"cut before it was complete by its regex. Received: max_.*=9"):
        run("bytes", arguments)


def test_interrupted_texts_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, output = run("bytes", {"json_schema": PERSON, "cancelled": lambda: True})
    assert set(output.finish_reasons) == {"cancelled"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"choices": []}, r"list of non-empty texts. Received: choices=\[\]"),
        ({"choices": ["yes", ""]}, "list of non-empty texts"),
        ({"choices": ["yes"], "regex": "a"}, "one constraint is supported. Received: choices, regex"),
        ({"regex": "(a"}, "regex cannot be followed.*(?s:.*)unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": "\ud800"}, "regex must be a string without lone surrogates"),
        ({"grammar": ["start"]}, "grammar must be a string"),
        ({"choices": ["\ud800"]}, "choices must be a list of non-empty texts"),
        ({"json_schema": '{"items":' * 150 + "true" + "}" * 150}, "json_schema must be a JSON schema.*recursion"),
        ({"json_schema": {"enum": ["\ud800"]}}, "json_schema must be a JSON schema"),
        ({"json_schema": {"const": 10**5000}}, "json_schema must be a JSON schema"),
        ({"json_schema": {"enum": ["x" * 250_000]}}, "json_schema is too long.*at most 250000 characters"),
        ({"json_schema": "{"}, "must be a JSON schema: Expecting property name"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "Unimplemented keys.*uniqueItems"),
        ({"grammar": "start: letter"}, 'unknown name: "letter"'),
        ({"choices": ["yes"], "min_new_tokens": 20}, "at position [0-9]+: choices allows the end, which other rules"),
        ({"regex": "[ab]+", "suppress_tokens": [66, 67]}, None),
    ],
    ids=shown,
)
def test_errors(arguments: dict[str, Any], message: str | None) -> None:
    tokenizer = tiny_text.byte_pairs()
    if "suppress_tokens" in arguments:
        tokens = [token for name, token in tokenizer.get_vocab().items() if set(name) <= {"a", "b"}]
        arguments, message = (
            {**arguments, "suppress_tokens": tokens},
            r"at position 0: regex allows '[ab]+'.*other rules",
        )
    with pytest.raises(GenerationError, match=message):
        run("bytes", arguments)


def one_of_objects(count: int) -> dict[str, Any]:
    """Returns a schema with `count` possible continuations after the first character."""
    names = [f"k{number}" for number in range(count)]
    rest = {"type": "object", "additionalProperties": False}
    return {"anyOf": [{**rest, "properties": {name: {"type": "null"}}, "required": [name]} for name in names]}


@pytest.mark.grid
def test_a_grammar_with_many_alternatives() -> None:
    texts, _ = run("bytes", {"json_schema": one_of_objects(2100), "max_new_tokens": 30})
    objects = [{f"k{number}": None} for number in range(2100)]
    assert all(json.loads(text) in objects for text in texts)


@pytest.mark.parametrize("method", ["greedy", "beams", "lookup"])
def test_errors_of_the_parser_raise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_MAX_ITEMS", 1000)
    with pytest.raises(GenerationError, match="cannot be followed any further: .*1100 items; max is 1000"):
        run("bytes", {"json_schema": one_of_objects(1100), "max_new_tokens": 30, **METHODS[method]})


DEEP = """
import sys
import threading
from kerasformer.generation import GenerationConfig
from kerasformer.generation.constraints import constraint_of
from kerasformer.tokenization import Tokenizer

tokenizer = Tokenizer.load(sys.argv[1])
names = [f"x{i}" for i in range(3000)]
pairs = list(zip(names, names[1:]))
constraints = [
    ("json_schema", {"$defs": {a: {"items": {"$ref": "#/$defs/" + b}} for a, b in pairs} | {names[-1]: {}},
                     "$ref": "#/$defs/x0"}),
    ("grammar", "start: x0\\n" + "\\n".join(f"{a}: {b}" for a, b in pairs) + f'\\n{names[-1]}: "a"'),
    ("grammar", "start: X0\\n" + "\\n".join(f"{a}: {b}".upper() for a, b in pairs) + f'\\n{names[-1].upper()}: "a"'),
    ("grammar", "start: " + "(" * 9000 + '"a"' + ")" * 9000),
    ("regex", "(" * 9000 + "a" + ")?" * 9000),
    ("json_schema", {"type": "string", "pattern": "(" * 9000 + "a" + ")" * 9000}),
]
def follow():
    for name, value in constraints:
        try:
            constraint = constraint_of({name: value}, tokenizer, GenerationConfig())
            print("created", flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
threading.stack_size(1 << 19)
thread = threading.Thread(target=follow)
thread.start()
thread.join()
"""


@pytest.mark.grid
def test_deep_grammars_do_not_crash_the_process(tmp_path: Path) -> None:
    tiny_text.byte_pairs().save(tmp_path)
    program = [sys.executable, "-c", DEEP, str(tmp_path)]
    process = subprocess.run(program, capture_output=True, text=True, timeout=120)  # noqa: S603
    assert process.returncode == 0, process.stderr[-500:]
    assert process.stdout.split() == ["created"] * 3 + ["GenerationError"] * 3
    assert process.stderr == ""


def test_characters_that_are_missing_in_the_vocabulary() -> None:
    with pytest.raises(GenerationError, match="a choice cannot be generated .* Expected: 'é'"):
        run("pieces", {"choices": ["yes", "é"]})
    with pytest.raises(GenerationError, match="regex cannot be followed at position [01]: it needs characters"):
        run("pieces", {"regex": "é|\t"})


def test_unsupported_tokenizers() -> None:
    config = GenerationConfig()
    with pytest.raises(TokenizerError, match="pieces of text.* Received: WordPiece"):
        constraint_of({"regex": "a"}, tiny_text.wordpiece(), config)
    with pytest.raises(TokenizerError, match="choices needs a tokenizer"):
        constraint_of({"choices": ["a"]}, None, config)


def test_the_library_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtraError, match=r'pip install -e "\.\[grammar\]"'):
        constraint_of({"regex": "a"}, tiny_text.byte_pairs(), GenerationConfig())
    assert constraint_of({"regex": None}, None, GenerationConfig()) is None
    assert constraint_of({"choices": ["a"]}, tiny_text.byte_pairs(), GenerationConfig()) is not None
