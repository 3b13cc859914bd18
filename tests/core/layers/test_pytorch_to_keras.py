"""Runs `docs/pytorch_to_keras.md`, whose Keras blocks must have the results of the PyTorch blocks before them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.core.layers.parity import assert_close

pytestmark = pytest.mark.grid

PAGE = Path(__file__).parents[3] / "docs" / "pytorch_to_keras.md"
PARTS = [
    "Scaled dot-product attention",
    "One head",
    "Many heads",
    "Feed-forward",
    "Embeddings",
    "An encoder layer",
    "A classification head",
]
KINDS = ("PyTorch", "Keras, by hand", "kerasformer")


def blocks() -> list[tuple[str, str, int, str]]:
    """Returns section, kind (from the first comment), line number and code of each block."""
    text, result = PAGE.read_text(encoding="utf-8"), []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        title = re.findall(r"^## (.*)$", text[: match.start()], re.MULTILINE)[-1]
        first = match[1].splitlines()[0]
        kind = next((k for k in KINDS if re.match(rf"# {k}(:|$)", first)), "")
        result.append((title, kind, text[: match.start(1)].count("\n"), match[1]))
    return result


@pytest.mark.jax_release
def test_the_page_runs_and_both_sides_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    compared = []
    for title, kind, line, code in blocks():
        before = names.pop("output", None)
        # Empty lines make line numbers in errors those of the page.
        exec(compile("\n" * line + code, str(PAGE), "exec"), names)
        if kind in KINDS[1:]:
            assert before is None or names["output"] is not before
            assert_close(names["output"], names["expected"], what=f"{title}, {kind}")
            compared.append((title, kind))
    assert compared == [(title, kind) for title in PARTS for kind in KINDS[1:]]
