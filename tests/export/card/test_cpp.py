"""The C++ of a card for LiteRT, compiled with AddressSanitizer against the declarations in `tests/cpp`.

TensorFlow's wheel has the header of nlohmann/json.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from kerasformer.bundle import LanguageInfo, Manifest
from kerasformer.bundle.manifest import encoded
from tests.export.card.test_card import CAPACITY, MODELS, encoder_decoder, written

DECLARED = Path(__file__).parents[2] / "cpp"
TENSORFLOW = Path(find_spec("tensorflow").submodule_search_locations[0]) / "include" / "external"
JSON = TENSORFLOW / "cudnn_frontend_archive" / "include" / "cudnn_frontend" / "thirdparty"

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.grid,
    pytest.mark.skipif(shutil.which("g++") is None, reason="a C++ compiler is needed"),
    pytest.mark.skipif(not (JSON / "nlohmann" / "json.hpp").is_file(), reason="nlohmann/json is needed"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a function that runs the program on a bundle with a manifest.

    The mock model prints the signatures that the program calls, and chooses the token 0.
    """
    folder = tmp_path_factory.mktemp("cpp")
    written(folder, encoder_decoder())
    options = ["-std=c++20", "-Wall", "-Wno-unused-parameter", "-fsanitize=address,undefined", f"-I{DECLARED}"]
    command = ["g++", *options, f"-isystem{JSON}", "programs/main.cpp"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)
    assert built.returncode == 0 and built.stderr == "", built.stderr

    def call(manifest: Manifest, *arguments: str) -> subprocess.CompletedProcess[str]:
        (folder / "kerasformer.json").write_text(encoded(manifest), encoding="utf-8")
        return subprocess.run([folder / "a.out", folder, *arguments], capture_output=True, text=True, timeout=60)

    return call


@pytest.mark.parametrize("name", MODELS)
def test_texts_of_every_length(name: str, run: Run) -> None:
    limit, what = (CAPACITY, "prompt") if name == "decoder" else (48, "text")
    for count in (0, 1, 16, 17, limit, limit + 1, 10 * limit):
        done = run(MODELS[name](), *["3"] * count)
        if 1 <= count <= limit:
            assert done.returncode == 0 and done.stdout, done.stderr
            length = 16 if count <= 16 else 48
            called = {
                "encoder": f"forward_{length}",
                "decoder": "prefill_8" if count > 8 else "decode",
                "encoder-decoder": f"encode_{length}",
            }
            assert done.stderr.splitlines()[0] == called[name]
        else:
            expected = f"A {what} can have 1 to {limit} tokens. Received: {count}\n"
            assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_rules_of_the_settings(run: Run) -> None:
    """Forbidden tokens, the first token of every answer, the end, and the language."""
    manifest = encoder_decoder()
    rules = {"suppress_tokens": [0], "bad_words_ids": [[1], [2, 3]], "forced_bos_token_id": 62}
    info = replace(manifest.info, generation=rules, eos_token_id=(9,))
    done = run(replace(manifest, info=info), "3")
    assert done.stdout.split() == ["62", *["2"] * (CAPACITY - 1)], done.stderr
    assert run(replace(manifest, info=replace(info, eos_token_id=(2,))), "3").stdout.split() == ["62"]
    languages = LanguageInfo({"deu_Latn": 61, "ron_Latn": 62}, False, "forced_bos_token_id")
    for code, first in ((), "62"), (("--language", "deu_Latn"), "61"):
        done = run(replace(manifest, info=replace(info, languages=languages)), *code, "3")
        assert done.stdout.split()[0] == first, done.stderr
    unset = replace(manifest, info=replace(info, languages=languages, generation={}))
    message = "Pass the language of the output, one of deu_Latn, ron_Latn. Received: \n"
    assert (run(unset, "3").returncode, run(unset, "3").stderr) == (1, message)
