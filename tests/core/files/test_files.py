"""Paths and JSON from users: a usable value, or an error of a single type."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import kerasformer as kf
from kerasformer.errors import InputError, KerasformerError, SourceError
from kerasformer.files.reading import local_path, parse_json, read_json
from kerasformer.files.sources import inside, resolve
from kerasformer.tools.evaluation import read_examples

ROOT = Path(__file__).parents[3]

BAD_JSON = [
    (b'{"a": ' + b"7" * 5000 + b"}", "an integer of 5000 digits"),
    (b'{"a": 1, "b": {"c": 1, "c": 2}}', "has the name 'c' twice"),
    (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested more than 200 levels"),
    (b"[" * 100_000, "nested more than 200 levels"),
    (rb'{"a": "\ud83d"}', "half a surrogate pair"),
    (rb'{"\uD83D": 1}', "half a surrogate pair"),
    ('{"a": "é"}'.encode("latin-1"), "not in UTF-8"),
    ('{"a": 1}'.encode("utf-16"), "not in UTF-8"),
    (b'{"a": 1', "not valid JSON: line 1, column 8"),
    (b"", "not valid JSON: line 1, column 1"),
    (b"[]", "must contain a JSON object. Received: list"),
]


@pytest.mark.parametrize(("content", "message"), BAD_JSON, ids=lambda value: str(value)[:30])
def test_unusable_json_raises(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(SourceError, match=f"config.json .*{message}") as error:
        read_json(tmp_path / "config.json")
    assert len(str(error.value)) < 1000
    str(error.value).encode()


def test_valid_json_is_read():
    assert parse_json("\ufeff".encode() + b'{"model_max_length": 1000000000000000019884624838656}', "x")
    assert parse_json(rb'{"\ud83d\ude00": [1.5, null, NaN]}', "x")["😀"][:2] == [1.5, None]
    assert parse_json("[" * 150 + "]" * 150, "x")


BAD_PATHS = ["a\0b", "x" * 5000, "\ud800", "", "~nobody-of-this-name/x", b"bytes", 5, None, ["a"]]


@pytest.mark.parametrize("path", BAD_PATHS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(
    "use", [local_path, resolve, kf.Tokenizer.load, read_examples, lambda path: kf.pipeline(path)],
    ids=["door", "resolve", "tokenizer", "examples", "pipeline"],
)  # fmt: skip
def test_unusable_paths_raise(use, path):
    with pytest.raises(KerasformerError, match=r"this path cannot be used: |must be |expected|needs a source") as error:
        use(path)
    assert len(str(error.value)) < 1000


def test_loops_of_links(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for use in (local_path, resolve, lambda path: inside(tmp_path, path.name)):
        with pytest.raises(SourceError, match="this path cannot be used: |Searched"):
            use(tmp_path / "a")
    with pytest.raises(InputError, match="this path cannot be used"):
        read_examples(tmp_path / "a")


# Modules that parse text they have created, that run without the package installed, or bodies of requests.
OWN = {
    "kerasformer/tools/bench/worker.py", "kerasformer/files/reading.py", "kerasformer/bundle/tested.py",
    "kerasformer/tools/web/token_check.py", "kerasformer/tools/web/vendor.py", "kerasformer/generation/grammars.py",
    "kerasformer/tools/server/bodies.py", "kerasformer/extras.py", "kerasformer/tools/gpu/check.py",
    "kerasformer/tools/gpu/delegate.py",
}  # fmt: skip
OWN_TEXT = ("to_str", "__getstate__", "dumps")


def test_json_is_parsed_only_in_files():
    for folder in ("kerasformer", "zoo", "export"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name in OWN or "presets" in name:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load"):
                    assert any(own in ast.unparse(node) for own in OWN_TEXT), f"{name}:{node.lineno}: json.loads"


def test_parsed_json_can_be_serialized(tmp_path):
    value = parse_json('{"a": ["\\u00e9", 1e300, -7]}', "x")
    (tmp_path / "again.json").write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    assert read_json(tmp_path / "again.json") == value
