"""Quoting of untrusted values: in each language of a card, in Markdown, and in the programs of whole cards."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kerasformer.bundle import Manifest, ModelInfo, Signature
from kerasformer.bundle.recipes import RECIPES
from kerasformer.export.card import quoting
from kerasformer.export.targets import TARGETS
from kerasformer.export.targets.litert_lm import litertlm_file
from tests.code_blocks import programs
from tests.core.export.card.test_card import caches, decoder, everything, floats, ints, with_tokenizer

HOSTILE = [
    'x"); import os; os.abort(); ("',
    "it's ' \\ \" \\\" ${evil()} $evil {evil()} {{x}} %s \\(evil()) #{evil()} `evil`",
    "end */ evil(); /* // */ ??/ ?? ???' <!-- </script><script>evil()</script>",
    "line\nbreak\r\ntab\t\x00\x07\x1b[31m\x7f\x85",
    "```\nevil()\n```\n~~~\n---\n# title\n| a | b |\n[link](javascript:evil())",
    "mark \u202e of direction\u2028line\u2029\u200b\ufeff\u00a0 é 漢字 😀 \U000e0001",
    "ends with a backslash \\",
    "ends with ticks ``",
    "12345\x01678",
    "",
    " ",
]
HALF = "half \ud800 of a pair"

_UNITS = re.compile(r"(?:\\u[0-9a-f]{4})+")


def utf16(units: str) -> str:
    return bytes.fromhex(units.replace("\\u", "")).decode("utf-16-be", "surrogatepass")


def octal(escapes: str) -> str:
    return bytes(int(number, 8) for number in escapes.split("\\")[1:]).decode()


def unescaped(literal: str, numbers: str, decode: Callable[[str], str]) -> str:
    """Evaluates a literal by the rules of its language."""
    assert literal[0] == literal[-1] == '"'
    named = {"\\n": "\n", "\\r": "\r", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
    token = re.compile(rf'(?P<number>{numbers})|(?P<named>\\[nrt"\\])|(?P<plain>[^"\\\n\r])')
    parts, place = [], 1
    while place < len(literal) - 1:
        found = token.match(literal, place)
        assert found, f"not a literal at {place}: {literal!r}"
        parts.append(decode(found[0]) if found["number"] else named.get(found[0], found[0]))
        place = found.end()
    return "".join(parts)


LANGUAGES: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "python": (quoting.python, ast.literal_eval),
    "f-string": (quoting.python, lambda literal: eval("f" + literal)),  # noqa: S307
    "yaml": (quoting.yaml, yaml.safe_load),
    "javascript": (quoting.javascript, json.loads),
    "kotlin": (quoting.kotlin, lambda literal: unescaped(literal, _UNITS.pattern, utf16)),
    "swift": (
        quoting.swift,
        lambda literal: unescaped(literal, r"\\u\{[0-9A-F]+\}", lambda text: chr(int(text[3:-1], 16))),
    ),
    "cpp": (quoting.cpp, lambda literal: unescaped(literal, r"(?:\\[0-7]{3})+", octal)),
}
FORBIDDEN = {
    "python": r"```",
    "f-string": r"[{}]",
    "yaml": r"\n",
    "javascript": r"```|\*/|/\*|</|<!",
    "kotlin": r"```|\*/|/\*|\$",
    "swift": r"```|\*/|/\*|(?<!\\)(\\\\)*\\\(",
    "cpp": r"```|\*/|/\*|\?\?",
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", [*HOSTILE, *("".join(HOSTILE[i:]) for i in (0, 3))])
def test_a_literal_is_the_value_and_nothing_else(language, text):
    quote, read = LANGUAGES[language]
    literal = quote(text)
    assert read(literal) == text
    assert not re.search(FORBIDDEN[language], literal)
    assert literal.isprintable()


@pytest.mark.parametrize("language", LANGUAGES)
def test_lone_surrogates_can_be_written_to_a_file(language):
    quote, read = LANGUAGES[language]
    quote(HALF).encode()
    assert read(quote(HALF)) in (HALF, HALF.replace("\ud800", "\ufffd"))


def test_node_and_a_compiler_read_the_same(tmp_path):
    """Evaluates the literals with Node and a C++ compiler, if they are available."""
    node, cpp = shutil.which("node"), shutil.which("g++") or shutil.which("clang++")
    if node:
        program = f"process.stdout.write(JSON.stringify([{','.join(map(quoting.javascript, HOSTILE))}]))"
        done = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(done.stdout) == HOSTILE
    if cpp:
        rows = [f"std::fwrite({quoting.cpp(text)}, 1, {len(text.encode())}, stdout);" for text in HOSTILE]
        source = "\n".join(["#include <cstdio>", "int main() {", *rows, "}"])
        (tmp_path / "a.cpp").write_text(source, encoding="utf-8")
        subprocess.run([cpp, "-trigraphs", "-w", tmp_path / "a.cpp", "-o", tmp_path / "a"], check=True, timeout=60)
        done = subprocess.run([tmp_path / "a"], capture_output=True, check=True, timeout=60)
        assert done.stdout.decode() == "".join(HOSTILE)


@pytest.mark.parametrize("text", [*HOSTILE, HALF])
def test_markdown_shows_the_value_without_markup(text):
    span, cell = quoting.code(text), quoting.code(text, in_table=True)
    assert span.encode() and "\n" not in span + cell
    ticks = re.match("`+", span)[0]
    inside = span[len(ticks) : -len(ticks)]
    assert span.endswith(ticks) and not re.search(f"(?<!`){ticks}(?!`)", inside)
    assert not re.search(r"(?<!\\)\|", cell)
    plain = quoting.markdown(text)
    plain.encode()
    assert "\n" not in plain
    assert not re.search(r"[`*_\[\]<>|&$~]", re.sub(r"\\.", "", plain))
    assert not re.match(r"[#\-+=]|\d+[.)](\s|$)", plain)


def shapes(text: str) -> list[Manifest]:
    """Returns bundles of every format and kind, with this text for everything that a checkpoint or a user can set."""
    labels, recipe = (text, "other"), {**RECIPES["int8"].to_dict(), "name": text, "layers": [[text, "int4"]]}
    generation, asked = {text: text, "penalty_alpha": text}, {"summarization": text}
    reads = ModelInfo("text-classification", "bert", labels=labels, max_length=32)
    rewrites = ModelInfo("summarization", "t5", is_encoder_decoder=True, task_prefixes=asked, generation=generation)
    writes = ModelInfo("text-generation", "gpt2", max_length=24, generation=generation, task_prefixes=asked)
    ids = {name: ints(1, 32) for name in ("input_ids", "attention_mask")}
    cross = {f"cross_{kind}_{layer}": floats(1, 2, 32, 5) for layer in range(3) for kind in "kv"}
    step = {"tokens": ints(1, 1), "input_pos": ints(1), "encoder_mask": ints(1, 32), **cross, **caches()}
    logits, scores = {"logits": floats(1, 1, 99)}, {"logits": floats(1, 2)}
    past, present = (
        {
            f"{prefix}.{layer}.{part}.{kind}": floats(1, 2, 0, 5)
            for layer in range(3)
            for part in ("decoder", "encoder")
            for kind in ("key", "value")
        }
        for prefix in ("past_key_values", "present")
    )
    read = {"input_ids": ints(1, 1), "encoder_attention_mask": ints(1, 32), "encoder_hidden_states": floats(1, 32, 8)}
    steps = {
        "encode_32": Signature("model.tflite", ids, cross),
        "decode": Signature("model.tflite", step, {**logits, **caches()}),
    }
    graphs = {
        "encoder_model": Signature("onnx/encoder_model.onnx", ids, {"last_hidden_state": floats(1, 32, 8)}),
        "decoder_model_merged": Signature("onnx/decoder_model_merged.onnx", {**read, **past}, {**logits, **present}),
    }
    served = {"serving_default": Signature("saved_model.pb", {"text": ints("batch")}, scores)}
    asks = {"text": ints("batch"), "max_new_tokens": ints()}
    known = {"capacity": 24, "encoder_capacity": 32}
    manifests = [
        Manifest("tflite", reads, {"forward_32": Signature("model.tflite", ids, scores)}),
        Manifest("tflite", rewrites, steps, **known),
        replace(decoder(), info=writes),
        Manifest("onnx", reads, {"model": Signature("onnx/model.onnx", ids, scores)}, profile="ort"),
        Manifest("onnx", rewrites, graphs, **known, profile="ort"),
        Manifest("saved-model", replace(reads, task_prefixes={"text-classification": text}), served),
        Manifest("saved-model", rewrites, {"generate": Signature("saved_model.pb", asks, logits)}, **known),
    ]
    return [replace(manifest, recipe=recipe) for manifest in manifests]


SHOWN_FOR = {"tflite": ["", "litert-web", "litert-lm"], "onnx": ["", "transformers.js"], "saved-model": ["saved-model"]}


@pytest.mark.parametrize("text", HOSTILE[:6])
def test_programs_contain_no_code_from_a_checkpoint(tmp_path, text):
    """The programs differ from those of a harmless checkpoint only in literals, which have the original values."""
    literals: set[object] = set()
    for number, (hostile, harmless) in enumerate(zip(shapes(text), shapes("word"), strict=True)):
        for name in SHOWN_FOR[hostile.format]:
            if name == "litert-lm" and hostile.info.model_type != "gpt2":
                continue
            folder, target = tmp_path / f"{number}{name}", TARGETS.get(name)
            folders = folder / "hostile", folder / "harmless"
            for part in folders:
                part.mkdir(parents=True)
                (part / litertlm_file.NAME).write_bytes(b"")
                with_tokenizer(part)
            card, like = everything(folders[0], hostile, target), everything(folders[1], harmless, target)
            fences = [[line for line in each.splitlines() if re.match("`{3}|~{3}", line)] for each in (card, like)]
            assert fences[0] == fences[1]
            assert len(card.splitlines()) == len(like.splitlines())
            literals |= python_literals(*folders)
            for line in re.findall(r"^    -d (.*)$", card, re.MULTILINE):
                (argument,) = shlex.split(line)
                literals |= set(json.loads(argument)["inputs"]["text"])
            for language in ("kotlin", "swift", "cpp", "javascript"):
                assert skeletons(folders[0], language) == skeletons(folders[1], language)
    assert f"{text}A text." in literals


def python_literals(folder: Path, like: Path) -> set[object]:
    """Returns the constants of a card's Python programs, after checking their syntax trees against another card's."""
    found: set[object] = set()
    for program, model in zip(programs(folder, "python"), programs(like, "python"), strict=True):
        nodes = [list(ast.walk(ast.parse(each))) for each in (program, model)]
        assert [type(node) for node in nodes[0]] == [type(node) for node in nodes[1]]
        found |= {node.value for node in nodes[0] if isinstance(node, ast.Constant)}
    return found


def skeletons(folder: Path, language: str) -> list[str]:
    """Returns programs with the content of string literals removed."""
    return [re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', program) for program in programs(folder, language)]
