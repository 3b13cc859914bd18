"""The C++ of a card for LiteRT, compiled with AddressSanitizer against the declarations in `tests/cpp`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.code_blocks import programs
from tests.export.card.test_card import CAPACITY, MODELS, written

DECLARED = Path(__file__).parents[2] / "cpp"


@pytest.mark.grid
@pytest.mark.skipif(shutil.which("g++") is None, reason="a C++ compiler is needed")
@pytest.mark.parametrize("name", MODELS)
def test_texts_of_every_length(name: str, tmp_path: Path) -> None:
    """The mock model prints the signatures that the program calls, and chooses the token 0."""
    written(tmp_path, MODELS[name]())
    (source,) = programs(tmp_path, "cpp")
    (tmp_path / "card.cpp").write_text(source, encoding="utf-8")
    options = ["-std=c++20", "-Wall", "-Wno-unused-parameter", "-fsanitize=address,undefined", f"-I{DECLARED}"]
    built = subprocess.run(["g++", *options, "card.cpp"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0 and built.stderr == "", built.stderr
    limit, what = (CAPACITY, "prompt") if name == "decoder" else (48, "text")
    for count in (0, 1, 16, 17, limit, limit + 1, 10 * limit):
        ids = ["3"] * count
        done = subprocess.run([tmp_path / "a.out", *ids], capture_output=True, text=True, timeout=60)
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
