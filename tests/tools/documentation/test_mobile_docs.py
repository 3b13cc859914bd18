"""The guide for phones is correct: commands, files, labels and versions; its Kotlin compiles."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import normalizers

import kerasformer as kf
from kerasformer import bundle
from kerasformer.export.targets.litert_lm import card as litertlm_card
from kerasformer.export.targets.litert_lm import embedding_card
from tests.code_blocks import blocks, programs
from tests.foreign.environments import HERE
from tests.foreign.kotlin import DECLARED, compiled

PAGE = Path(__file__).parents[3] / "docs" / "phones.md"
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
    return [shlex.split(line)[1:] for line in lines if line.startswith("kerasformer export ")]


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


def test_named_files_exist(folder):
    named = set(re.findall(r"`((?:story|sentiment)/[\w./]+)`", PAGE.read_text()))
    assert len(named) == 2 and all((folder / name).is_file() for name in named)


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
    # The code for the library in mobile/kotlin is compiled with it, in tests/mobile.
    others = [block for block in cards if "import kerasformer" not in block]
    complete = [block for block in others if re.search("^(class|fun|suspend fun)", block, re.MULTILINE)]
    for index, block in enumerate([*blocks(PAGE, "kotlin"), *complete]):
        (place / f"block_{index}.kt").write_text(block)
    return compiled(place, [*sorted(DECLARED.glob("*.kt")), *sorted(place.glob("*.kt"))])


def test_the_kotlin_normalization_equals_that_of_the_tokenizer(java):
    texts = (
        "The café was naïve.",
        "ΣΊΣΥΦΟΣ ΟΔΟΣ, Straße ẞ",
        "İstanbul ıI",
        "no\u00a0break, zero\u200bwidth\ttab",
        "한국어 𐐀 ö",
    )
    command = [*java, "MainKt", *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    received = ["".join(chr(int(point)) for point in line.split()) for line in done.stdout.splitlines()]
    assert received == [normalizers.BertNormalizer(lowercase=True).normalize_str(text) for text in texts]
