"""The guide for phones is correct: commands, files, labels and versions; its Kotlin compiles and runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from math import prod
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers

import kerasformer as kf
from kerasformer import bundle
from kerasformer.bundle.manifest import encoded
from kerasformer.export.card import native
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.targets.litert_lm import card as litertlm_card
from kerasformer.export.targets.litert_lm import embedding_card
from tests.code_blocks import blocks, programs
from tests.foreign.environments import HERE
from tests.foreign.kotlin import DECLARED, compiled

PAGE = Path(__file__).parents[1] / "docs" / "phones.md"
EMBEDDING = embedding_card.section(
    bundle.Manifest(
        "tflite",
        bundle.ModelInfo("sentence-similarity", embedding=bundle.EmbeddingInfo(384, normalized=True)),
        {"forward_256": bundle.Signature("model.tflite", {}, {}, "forward", 1, 256)},
    )
)
"""Part of the card of a bundle for embeddings."""

pytestmark = [pytest.mark.slow, pytest.mark.grid]


def commands() -> list[list[str]]:
    """Returns the export commands of the page."""
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("kerasformer ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder in which the commands of the page were run."""
    place = tmp_path_factory.mktemp("mobile")
    for command in commands():
        if "/" in command[1]:  # a checkpoint of the hub
            continue
        done = subprocess.run(
            [sys.executable, "-m", "kerasformer.cli", *command], cwd=place, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def translator() -> bundle.Manifest:
    """The manifest of the exported translator, from a model of the published sizes."""
    (options,) = [command[3:] for command in commands() if "/" in command[1]]
    given = dict(zip(options[::2], options[1::2], strict=True))
    lengths = [int(value) for name, value in zip(options[::2], options[1::2], strict=True) if name == "--lengths"]
    capacity = int(given["--capacity"])
    sizes = {"hidden_dim": 512, "intermediate_dim": 2048, "decoder_intermediate_dim": 2048, "max_length": 512}
    sizes |= dict.fromkeys(("num_layers", "num_decoder_layers"), 6)
    sizes |= dict.fromkeys(("num_heads", "decoder_num_heads"), 8)
    tokens = {"pad_token_id": 58100, "decoder_start_token_id": 58100, "eos_token_id": 0}
    model = kf.zoo.build("marian", vocab_size=58101, hidden_act="swish", scale_embedding=True, **sizes, **tokens)
    model.generation_config = model.generation_config.replace(bad_words_ids=((58100,),))
    functions = tflite_functions(model, capacity, lengths[-1], lengths)
    signatures = {each.name: each.signature("model.tflite") for each in functions}
    return bundle.Manifest("tflite", model.info(), signatures, capacity=capacity, encoder_capacity=lengths[-1])


def test_named_files_exist(folder, translator):
    named = set(re.findall(r"`((?:story|sentiment)/[\w./]+)`", PAGE.read_text()))
    assert len(named) == 7 and all((folder / name).is_file() for name in named)
    for program in native.programs(translator)[:2]:
        assert f"`programs/{program.name}`" in PAGE.read_text()


def test_labels_and_length_of_the_classifier(folder):
    manifest = bundle.read(folder / "sentiment")
    labels = " and ".join(f"`{label}`" for label in manifest.info.labels)
    (length,) = {signature.inputs["input_ids"].shape[1] for signature in manifest.signatures.values()}
    assert f"The labels are {labels}; a text is cut after {length} tokens." in " ".join(PAGE.read_text().split())


def test_the_function_plain_is_on_the_card(folder):
    card = folder / "sentiment" / "README.md"
    assert any("fun plain(" in block for block in blocks(card, "kotlin"))
    assert any("func plain(" in block for block in blocks(card, "swift"))


def test_sampling_settings_are_in_the_bundle(folder):
    settings = json.loads((folder / "story" / "generation_config.json").read_text())
    assert {"temperature", "top_k", "top_p"} <= settings.keys()
    assert "temperature, top-k and top-p" in " ".join(PAGE.read_text().split())


def test_the_documented_check_is_possible(folder):
    """The check that the page suggests is possible."""
    (check,) = [block for block in blocks(PAGE, "python") if "pipeline" in block]
    opened, call = check.replace('"story"', repr(str(folder / "story"))).splitlines()
    names = {"kf": kf}
    exec(opened, names)
    (answer,) = eval(call, names)
    assert len(answer["generated_text"]) > len("Once upon a time") + 40


def test_versions():
    """The versions are those of the tested runtimes, or the nearest ones in their registries."""
    gradle = dict(re.findall(r'implementation\("(.+):([\d.]+)"\)', "".join(blocks(PAGE, "kts"))))
    assert gradle["com.google.ai.edge.litert:litert"] == version("ai-edge-litert")
    assert gradle["ai.djl.huggingface:tokenizers"] == gradle["ai.djl.android:tokenizer-native"]
    pinned = re.search(r"litert-lm-api==([\d.]+)", (HERE / "setup.sh").read_text())
    assert pinned
    assert litertlm_card.VERSIONS["python"] == pinned[1]
    assert gradle["com.google.ai.edge.litertlm:litertlm-android"] == litertlm_card.VERSIONS["android"]
    assert f'google-ai-edge/LiteRT-LM", from: "{litertlm_card.VERSIONS["swift"]}"' in PAGE.read_text()
    minor = {".".join(each.split(".")[:2]) for each in litertlm_card.VERSIONS.values()}
    assert len(minor) == 1


@pytest.fixture(scope="module")
def java(folder, tmp_path_factory) -> list[str]:
    """The compiled Kotlin code of the page and of its bundles, as a Java command line."""
    place = tmp_path_factory.mktemp("kotlin")
    cards = [block for name in ("story", "sentiment") for block in programs(folder / name, "kotlin")]
    cards += re.findall(r"```kotlin\n(.*?)```", EMBEDDING, re.DOTALL)
    # Both bundles have the same program.
    complete = [block for block in dict.fromkeys(cards) if re.search("^(class|fun|suspend fun)", block, re.MULTILINE)]
    for index, block in enumerate([*blocks(PAGE, "kotlin"), *complete]):
        (place / f"block_{index}.kt").write_text(block)
    return compiled(place, [*sorted(DECLARED.glob("*.kt")), *sorted(place.glob("*.kt"))])


def with_assets(folder: Path, manifest: bundle.Manifest) -> Path:
    """Writes the files that the programs of a bundle read; returns the folder of the app."""
    (folder / "assets").mkdir()
    (folder / "assets" / "kerasformer.json").write_text(encoded(manifest), encoding="utf-8")
    (folder / "assets" / "tokenizer.json").write_text("{}")
    return folder


def test_the_kotlin_code_compiles_and_generates_correctly(java, folder, tmp_path):
    """With prompts that need every prefill length, up to the capacity of the cache."""
    manifest = bundle.read(folder / "story")
    caches = {name: info for name, info in manifest.signatures["decode"].inputs.items() if name.startswith("kv_cache")}
    capacity, vocabulary = manifest.capacity or 0, manifest.info.vocab_size
    shape = [len(caches) // 2, capacity, prod(caches["kv_cache_k_0"].shape), vocabulary]
    lengths = (1, 2, 9, 10, 17, 65, 73, 130, 200, 250)
    prompts = ["".join(chr(33 + (7 * i + n) % 90) for i in range(n)) for n in lengths]
    most = [min(12, capacity - n) for n in lengths]
    asked = [word for prompt, count in zip(prompts, most, strict=True) for word in (prompt, str(count))]
    command = [*java, "MainKt", ",".join(map(str, shape)), *asked]
    place = with_assets(tmp_path, manifest)
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = [" ".join(map(str, continued(*each, vocabulary))) for each in zip(prompts, most, strict=True)]
    assert done.stdout.splitlines() == expected


def test_the_kotlin_code_translates_each_sentence(java, translator, tmp_path):
    texts = [
        "One is here. Two follow it!  And is this three?",
        "A sentence of more than 32 characters, by far.",
    ]
    command = [*java, "MainKt", "translate", *texts]
    place = with_assets(tmp_path, translator)
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sentences = [["One is here.", "Two follow it!", "And is this three?"], [texts[1]]]
    expected = [" ".join(" ".join(map(str, translated(each))) for each in parts) for parts in sentences]
    assert done.stdout.splitlines() == expected


def translated(text: str, vocabulary: int = 58101, most: int = 128) -> list[int]:
    """Returns the output of the mock model for a text; its program never chooses the token of padding."""
    encoded = int(np.dot([ord(letter) for letter in text], np.arange(1, len(text) + 1)))
    tokens = [vocabulary - 1]
    while len(tokens) <= most:
        token = int(encoded + np.dot(tokens, np.arange(1, len(tokens) + 1))) % vocabulary
        if token in (0, vocabulary - 1):
            break
        tokens.append(token)
    return tokens[1:]


def test_the_kotlin_normalization_equals_that_of_the_tokenizer(java):
    texts = (
        "The café was naïve.",
        "ΣΊΣΥΦΟΣ ΟΔΟΣ, Straße ẞ",
        "İstanbul ıI",
        "no\u00a0break, zero\u200bwidth\ttab",
        "한국어 𐐀 ö",
    )
    command = [*java, "MainKt", "plain", *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    received = ["".join(chr(int(point)) for point in line.split()) for line in done.stdout.splitlines()]
    assert received == [normalizers.BertNormalizer(lowercase=True).normalize_str(text) for text in texts]


def continued(prompt: str, most: int, vocabulary: int) -> list[int]:
    """Returns the output of the model in `tests/kotlin/litert.kt`: the sum of all tokens, each times its position."""
    tokens = [ord(letter) for letter in prompt]
    for _ in range(most):
        tokens.append(int(np.dot(tokens, np.arange(1, len(tokens) + 1))) % vocabulary)
        if tokens[-1] == 0:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) :]
