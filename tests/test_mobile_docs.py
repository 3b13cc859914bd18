"""The guides for Android and iOS are correct: commands, files, signatures, tensors, numbers, versions."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
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
from kerasformer.export.card import in_kotlin, in_swift
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.targets.litert_lm import card as litertlm_card
from kerasformer.export.targets.litert_lm import embedding_card
from tests.code_blocks import blocks, programs
from tests.foreign.environments import HERE, HOME, need

DOCS = Path(__file__).parents[1] / "docs"
ANDROID, IOS = DOCS / "android.md", DOCS / "ios.md"
DECLARED = Path(__file__).parent / "kotlin"
LANGUAGE = {ANDROID: "kotlin", IOS: "swift"}
PAGES = pytest.mark.parametrize("page", [ANDROID, IOS], ids=["android", "ios"])

pytestmark = [pytest.mark.slow, pytest.mark.grid]


TRANSLATOR = "## A translator with LiteRT\n"


def commands(page: Path) -> list[list[str]]:
    """Returns the export commands of a page."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("kerasformer ")]


def parts(page: Path) -> tuple[str, str]:
    """Returns the text of a page without the section of the translator, and that section."""
    before, rest = page.read_text().split(TRANSLATOR)
    section, after = rest.split("\n## ", 1)
    return f"{before}\n## {after}", section


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder in which the commands of the pages were run."""
    place = tmp_path_factory.mktemp("mobile")
    for command in commands(ANDROID):
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
    (options,) = [command[3:] for command in commands(ANDROID) if "/" in command[1]]
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


@PAGES
def test_the_translator_is_that_of_its_model_card(page, translator):
    program = {ANDROID: in_kotlin, IOS: in_swift}[page].program(translator)
    assert program is not None and code(page, "class TextToTextGenerator") in program.source
    _, text = parts(page)
    told = re.findall(r"(?:[Aa]t most |1 to |\b1\.\.\.?|limit: |count[:=] ?)(\d+)\b", text.replace("= 40", ""))
    assert set(told) == {"128"}
    table = re.findall(r"^\| (`\w+`)? ?\| (.+?) \| (\w+) \| `\[([\d, ]+)\]` \|$", text, re.MULTILINE)
    signature, seen = "", set()
    for named, tensors, dtype, shape in table:
        signature = named.strip("`") or signature
        each = translator.signatures[signature]
        known = each.outputs if "output" in tensors else each.inputs
        for name in re.findall(r"`(\w+)`", tensors):
            assert (known[name].dtype, known[name].shape) == (dtype, tuple(map(int, shape.split(", ")))), name
            seen.add((signature, re.sub(r"_\d+$", "", name)))
    wanted = {
        (name, re.sub(r"_\d+$", "", tensor))
        for name in ("encode_32", "encode_128", "decode")
        for tensor in {**translator.signatures[name].inputs, **translator.signatures[name].outputs}
    }
    assert wanted - seen == {("encode_128", "cross_k"), ("encode_128", "cross_v")}, "as in encode_32"


def code(page: Path, part: str) -> str:
    """Returns the code block of a page that contains a word."""
    (found,) = [block for block in blocks(page, LANGUAGE[page]) if part in block]
    return found


def test_both_pages_have_the_same_exports():
    assert commands(ANDROID) == commands(IOS) != []


@PAGES
def test_named_files_exist(page, folder):
    named = set(re.findall(r"`((?:story|sentiment)/[\w.]+)`", page.read_text()))
    assert named == {"sentiment/model.tflite", "story/model.litertlm", "story/model.tflite", "story/tokenizer.json"}
    assert all((folder / name).is_file() for name in named)
    loaded = re.findall(r'"(\w+)\.(\w+)"|forResource: "(\w+)", ofType: "(\w+)"', "".join(blocks(page, LANGUAGE[page])))
    files = {".".join(filter(None, parts)) for parts in loaded}
    assert files == {"model.tflite", "model.litertlm"} | ({"tokenizer.json"} if page == ANDROID else set())
    assert all(list(folder.glob(f"*/{name}")) for name in files)


@PAGES
def test_the_table_of_tensors(page, folder):
    """Lists every tensor of every signature once."""
    manifest = bundle.read(folder / "story")
    text, _ = parts(page)
    rows = re.findall(r"^\| (`\w+`)? ?\| (.+?) \| (\w+) \| `\[([\d, ]+)\]` \|$", text, re.MULTILINE)
    told: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {}
    signature = ""
    for named, tensors, dtype, shape in rows:
        signature = named.strip("`") or signature
        for tensor in re.findall(r"`(\w+)`", tensors):
            told[signature, tensor] = dtype, tuple(map(int, shape.split(", ")))
    there = {
        (name, tensor): (info.dtype, info.shape)
        for name, each in manifest.signatures.items()
        for tensor, info in {**each.inputs, **each.outputs}.items()
    }
    assert told and told.items() <= there.items()
    middle = re.compile(r"kv_cache_[kv]_[12]")
    caches = {(name, tensor) for name, tensor in there if name != "prefill_64" and tensor.startswith("kv_cache")}
    assert {key for key in there if key not in told and not middle.fullmatch(key[1])} <= caches, "rows are missing"
    assert all(there[key] == there["prefill_64", key[1]] for key in caches), "said once for all signatures"


@PAGES
def test_the_generation_code_is_that_of_the_model_card(page, folder):
    """The model card contains the same code, with the names and numbers of the bundle."""
    assert code(page, "class TextGenerator") in programs(folder / "story", LANGUAGE[page])


@PAGES
def test_texts_are_prepared_as_on_the_model_card(page, folder):
    assert code(page, {ANDROID: "fun plain(", IOS: "func plain("}[page]) in blocks(
        folder / "sentiment" / "README.md", LANGUAGE[page]
    )


@PAGES
def test_the_capacity(page, folder):
    capacity = bundle.read(folder / "story").capacity
    told = re.findall(r"(?:[Aa]t most |position < |1 to |\b1\.\.\.?|limit: )(\d+)\b", parts(page)[0])
    assert [int(number) for number in told] == [capacity] * 4


@PAGES
def test_names_in_the_generation_code(page, folder):
    manifest = bundle.read(folder / "story")
    text = code(page, "class TextGenerator")
    words = set(re.findall(r'"([a-z_]+(?:_\d+|_\$\w+|_\\\([$\w]+\))?)"', text))
    tensors = {name for each in manifest.signatures.values() for name in {**each.inputs, **each.outputs}}
    for word in (word for word in words if "_" in word):
        pattern = re.sub(r"\$\w+|\\\([$\w]+\)", r"\\d+", word)
        assert any(re.fullmatch(pattern, name) for name in {*manifest.signatures, *tensors}), word
    assert {"decode", "prefill_8", "prefill_64", "tokens", "input_pos", "logits"} <= words


@PAGES
def test_labels_and_length_of_the_classifier(page, folder):
    manifest = bundle.read(folder / "sentiment")
    labels = " and ".join(f"`{label}`" for label in manifest.info.labels)
    (length,) = {signature.inputs["input_ids"].shape[1] for signature in manifest.signatures.values()}
    assert f"The labels are {labels}; a text is cut after {length}\ntokens." in page.read_text()


@PAGES
def test_sampling_settings_are_in_the_bundle(page, folder):
    settings = json.loads((folder / "story" / "generation_config.json").read_text())
    assert {"temperature", "top_k", "top_p"} <= settings.keys()
    assert "temperature, top-k and\ntop-p" in page.read_text()


@PAGES
def test_the_documented_check_is_possible(page, folder):
    """The check that a page suggests is possible."""
    text = page.read_text()
    assert '"Once upon a time", ' in text and "do_sample=False, repetition_penalty=1.0" in text
    pipe = kf.pipeline("text-generation", folder / "story")
    (answer,) = pipe("Once upon a time", do_sample=False, repetition_penalty=1.0, max_new_tokens=40)
    assert len(answer["generated_text"]) > len("Once upon a time") + 40


def test_versions():
    """The versions are those of the tested runtimes, or the nearest ones in their registries."""
    gradle = dict(re.findall(r'implementation\("(.+):([\d.]+)"\)', "".join(blocks(ANDROID, "kts"))))
    assert gradle["com.google.ai.edge.litert:litert"] == version("ai-edge-litert")
    assert gradle["ai.djl.huggingface:tokenizers"] == gradle["ai.djl.android:tokenizer-native"]
    pinned = re.search(r"litert-lm-api==([\d.]+)", (HERE / "setup.sh").read_text())
    assert pinned
    assert litertlm_card.VERSIONS["python"] == pinned[1]
    assert gradle["com.google.ai.edge.litertlm:litertlm-android"] == litertlm_card.VERSIONS["android"]
    assert f'google-ai-edge/LiteRT-LM", from: "{litertlm_card.VERSIONS["swift"]}"' in IOS.read_text()
    minor = {".".join(each.split(".")[:2]) for each in litertlm_card.VERSIONS.values()}
    assert len(minor) == 1


def heart(text: str, start: str) -> str:
    """Returns the lines from the one with `start`, without indentation and without names that the reader chooses."""
    lines = [line.strip() for line in text.splitlines()]
    first = next(index for index, line in enumerate(lines) if start in line)
    return "\n".join(lines[first:]).replace('"Once upon a time"', "prompt").replace("file, ", "path, ").strip("}\n ")


@PAGES
def test_the_model_card_has_the_same_litert_lm_code(page, folder):
    starts = {ANDROID: "engine.initialize()", IOS: "let config"}
    (card,) = [block for block in blocks(folder / "story" / "README.md", LANGUAGE[page]) if "litertlm" in block.lower()]
    assert heart(card, starts[page]) == heart(code(page, "createConversation"), starts[page])


@PAGES
def test_a_card_for_embeddings_has_the_same_litert_lm_code(page):
    manifest = bundle.Manifest(
        "tflite",
        bundle.ModelInfo("sentence-similarity", embedding=bundle.EmbeddingInfo(384, normalized=True)),
        {"forward_256": bundle.Signature("model.tflite", {}, {}, "forward", 1, 256)},
    )
    (card,) = re.findall(rf"```{LANGUAGE[page]}\n(.*?)```", embedding_card.section(manifest), re.DOTALL)
    starts = {ANDROID: "engine.initialize()", IOS: "let config"}
    ours, text = (heart(part, starts[page]) for part in (card, code(page, "computeEmbedding")))
    assert ours.replace('"A text."', "text") == text


@PAGES
def test_links(page):
    for target in re.findall(r"\]\(([\w/.]+\.md)(?:#[\w-]+)?\)", page.read_text()):
        assert (DOCS / target).is_file(), target
    headings = {
        re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in re.findall(r"^## (.+)$", page.read_text(), re.M)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", page.read_text())) <= headings


@pytest.fixture(scope="module")
def compiled(folder, tmp_path_factory) -> list[str]:
    """The compiled Kotlin code of the guide and of the model card, as a Java command line."""
    need("kotlin")
    if shutil.which("java") is None:
        pytest.skip("Kotlin's compiler needs Java")
    (jars,) = (HOME / "kotlin").glob("lib/python*/site-packages/run_kotlin_kernel/jars")
    place = tmp_path_factory.mktemp("kotlin")
    cards = [block for name in ("story", "sentiment") for block in programs(folder / name, "kotlin")]
    given = blocks(ANDROID, "kotlin")
    given += [
        block for block in cards if re.search("^(class|fun|suspend fun)", block, re.MULTILINE) and block not in given
    ]
    for index, block in enumerate(given):
        (place / f"block_{index}.kt").write_text(block)
    sources = [str(path) for path in (*sorted(DECLARED.glob("*.kt")), *sorted(place.glob("*.kt")))]
    java = ["java", "-cp", f"{place / 'classes'}:{jars}/*"]
    compiler = ["org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-Werror"]
    libraries = ":".join(str(path) for pattern in ("kotlin-stdlib-*", "*-all.jar") for path in jars.glob(pattern))
    command = [*java, *compiler, "-classpath", libraries, "-d", str(place / "classes"), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return java


def test_the_kotlin_code_compiles_and_generates_correctly(compiled, folder, tmp_path):
    """With prompts that need every prefill length, up to the capacity of the cache."""
    manifest = bundle.read(folder / "story")
    caches = {name: info for name, info in manifest.signatures["decode"].inputs.items() if name.startswith("kv_cache")}
    capacity, vocabulary = manifest.capacity or 0, manifest.info.vocab_size
    shape = [len(caches) // 2, capacity, prod(caches["kv_cache_k_0"].shape), vocabulary]
    lengths = (1, 2, 9, 10, 17, 65, 73, 130, 200, 250)
    prompts = ["".join(chr(33 + (7 * i + n) % 90) for i in range(n)) for n in lengths]
    most = [min(12, capacity - n) for n in lengths]
    asked = [word for prompt, count in zip(prompts, most, strict=True) for word in (prompt, str(count))]
    command = [*compiled, "MainKt", ",".join(map(str, shape)), *asked]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = [" ".join(map(str, continued(*each, vocabulary))) for each in zip(prompts, most, strict=True)]
    assert done.stdout.splitlines() == expected


def test_the_kotlin_code_translates_each_sentence(compiled, tmp_path):
    texts = [
        "One is here. Two follow it!  And is this three?",
        "A sentence of more than 32 characters, by far.",
    ]
    command = [*compiled, "MainKt", "translate", *texts]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
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


def test_the_kotlin_normalization_equals_that_of_the_tokenizer(compiled):
    texts = (
        "The café was naïve.",
        "ΣΊΣΥΦΟΣ ΟΔΟΣ, Straße ẞ",
        "İstanbul ıI",
        "no\u00a0break, zero\u200bwidth\ttab",
        "한국어 𐐀 ö",
    )
    command = [*compiled, "MainKt", "plain", *texts]
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
