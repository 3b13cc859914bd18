"""The Kotlin program of a bundle compiles against LiteRT's declarations, and is right with a mock model."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kerasformer.bundle import LanguageInfo, Manifest
from kerasformer.bundle.manifest import encoded
from kerasformer.export.card.program import source
from tests.export.card.test_card import CAPACITY, HEADS, LAYERS, SIZE, decoder, encoder, encoder_decoder
from tests.foreign.kotlin import DECLARED, compiled

VOCABULARY = 99

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a function that runs a class of the program on a manifest; see tests/kotlin/models.kt."""
    place = tmp_path_factory.mktemp("kotlin")
    program = place / "TextModels.kt"
    program.write_text(source(program.name))
    declared = [DECLARED / f"{name}.kt" for name in ("android", "json", "litert", "desktop", "models")]
    java = compiled(place, [*declared, program])

    def call(name: str, manifest: Manifest, *calls: str) -> list[str]:
        bundle = place / "assets" / "bundle"
        bundle.mkdir(parents=True, exist_ok=True)
        (bundle / "kerasformer.json").write_text(encoded(manifest), encoding="utf-8")
        shape = f"{LAYERS},{CAPACITY},{HEADS * CAPACITY * SIZE},{VOCABULARY}"
        done = subprocess.run(
            [*java, "Models", name, str(place), shape, "16,48", *calls], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return call


def weighted(tokens: list[int]) -> int:
    return int(np.dot(tokens, np.arange(1, len(tokens) + 1)))


def words(*calls: list[int]) -> list[str]:
    return [",".join(map(str, tokens)) for tokens in calls]


def test_an_encoder(run):
    """Padding is that of the manifest, in the shortest signature that has room."""
    texts = [list(range(1, 6)), list(range(1, 17)), list(range(1, 18)), [], [3] * 49]
    received = run("TextEncoder", encoder(), *words(*texts))
    for text, line in zip(texts[:3], received, strict=False):
        length = 16 if len(text) <= 16 else 48
        scores = [weighted([*text, *[7] * (length - len(text))]), weighted([1] * len(text)), 0, length]
        assert line == f"[no, yes, {', '.join(map(str, scores))}]"
    assert received[3:] == [f"A text can have 1 to 48 tokens. Received: {count}" for count in (0, 49)]


def test_a_decoder(run):
    prompts = [[5], list(range(1, 10)), list(range(1, 18)), list(range(1, 24)), [], [1] * 25]
    received = run("TextGenerator", decoder(), *words(*prompts))
    for prompt, line in zip(prompts[:4], received, strict=False):
        tokens = list(prompt)
        while len(tokens) < min(len(prompt) + 6, CAPACITY + 1):
            tokens.append(weighted(tokens) % VOCABULARY)
        assert line == str(tokens[len(prompt) :])
    assert received[4:] == [f"A prompt can have 1 to {CAPACITY} tokens. Received: {count}" for count in (0, 25)]


def answer(text: list[int], start: int, first: int | None = None, never: tuple[int, ...] = ()) -> list[int]:
    """Returns the output of the mock model of an encoder-decoder; all other scores are 0."""
    tokens = [start]
    while len(tokens) <= 6:
        token = (weighted(text) + weighted(tokens)) % VOCABULARY
        token = 0 if token in never else token
        tokens.append(first if len(tokens) == 1 and first is not None else token)
        if tokens[-1] in (9, 10):
            return tokens[1:-1]
    return tokens[1:]


def test_an_encoder_decoder(run):
    """With an end token, forbidden tokens, and a first token."""
    texts = [list(range(1, 6)), list(range(2, 19)), [100]]
    expected = [answer(text, 8) for text in texts]
    assert run("TextToTextGenerator", encoder_decoder(), *words(*texts)) == [
        f"[summarize: , {row}]" for row in expected
    ]
    never = (expected[0][0], expected[1][0])
    settings = {"suppress_tokens": [never[0]], "bad_words_ids": [[never[1]], [1, 2]], "forced_bos_token_id": 44}
    manifest = replace(encoder_decoder(), info=replace(encoder_decoder().info, generation=settings))
    received = run("TextToTextGenerator", manifest, *words(*texts), words([1] * 49)[0])
    assert received[:3] == [f"[summarize: , {answer(text, 8, 44, never)}]" for text in texts]
    assert received[3] == "A text can have 1 to 48 tokens. Received: 49"


@pytest.mark.parametrize("setting", ["forced_bos_token_id", "decoder_start_token_id"])
def test_languages(run, setting):
    languages = LanguageInfo({"deu": 61, "ron": 62}, False, setting)
    manifest = replace(encoder_decoder(), info=replace(encoder_decoder().info, languages=languages))
    starts = {"forced_bos_token_id": (8, 62), "decoder_start_token_id": (62,)}[setting]
    received = run("TextToTextGenerator", manifest, "1,2,3", "ron=1,2,3", "fra=1,2,3")
    assert received[1] == f"[summarize: , {answer([1, 2, 3], *starts)}]"
    assert received[0] == "Pass the language of the output, one of deu, ron. Received: null"
    assert received[2] == "Pass the language of the output, one of deu, ron. Received: fra"
