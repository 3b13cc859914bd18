"""Token ids of unusual texts in libraries that read `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kerasformer.errors import ExportError
from kerasformer.tokenization import Tokenizer, hard_texts
from tests import tiny_text
from tests.code_blocks import blocks
from tests.core.tokenization.conftest import Checkpoint, checkpoint  # noqa: F401 (a fixture)
from tests.core.tokenization.test_hard_texts import split_at
from tests.foreign.cases import tiny
from tests.foreign.environments import started
from tests.foreign.test_litert_lm import llama_like
from tests.foreign.test_mediapipe import albert_pieces

Ask = Callable[[Path], dict[str, Any]]
PAGE = Path(__file__).parents[2] / "docs" / "runtimes.md"

SAME = (
    tiny_text.wordpiece,
    tiny_text.byte_pairs,
    tiny_text.byte_pairs_in_texts,
    tiny_text.pieces,
    tiny_text.pieces_in_texts,
    tiny_text.utf8_bytes,
    albert_pieces,
    llama_like,
)
# The JavaScript libraries use NFKC instead of SentencePiece's table, and merge unknown characters of several words.
DIFFERENT = {
    "t5": ("The café", "emoji"),
    "albert": ("ΟΔΟΣ", "今日は", "emoji", "no\u00a0break", "one▁two"),
}


@pytest.fixture(scope="module")
def in_node() -> Iterator[Ask]:
    with started("node", "tokens.js") as ask:
        yield lambda folder: ask({"folder": str(folder)})


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    """Writes the tokenizer files of a bundle."""
    tokenizer.save(folder)
    hard_texts.write(tokenizer, folder)
    return folder


@pytest.mark.parametrize("make", SAME, ids=lambda make: make.__name__)
def test_tokens_are_those_of_python(make: Callable[[], Tokenizer], in_node: Ask, tmp_path: Path) -> None:
    assert in_node(saved(make(), tmp_path)) == {"tokenizers": [], "transformers": []}


@pytest.mark.parametrize("name", DIFFERENT)
def test_texts_of_sentencepiece_checkpoints_that_differ_in_javascript(
    name: str,
    in_node: Ask,
    tmp_path: Path,
    checkpoint: Checkpoint,  # noqa: F811
) -> None:
    """As in docs/runtimes.md. The page of `kerasformer web` has its own implementation, without these differences."""
    for texts in in_node(saved(Tokenizer.load(checkpoint(name)), tmp_path)).values():
        assert tuple(text for text in texts if not text.startswith(DIFFERENT[name])) == ()
        assert len(texts) == len(DIFFERENT[name])


@pytest.mark.parametrize("behavior", ["removed", "merged_with_previous", "merged_with_next", "contiguous"])
def test_rules_that_differ_in_javascript_are_refused(behavior: str, in_node: Ask, tmp_path: Path) -> None:
    """The target `transformers.js` refuses them; the texts show that their ids would differ."""
    tokenizer = split_at("|", behavior)
    answer = in_node(saved(tokenizer, tmp_path / "tokens"))
    assert any("|" in text for text in answer["transformers"]) and any("|" in text for text in answer["tokenizers"])
    model = tiny("bert", "text-classification").model()
    model.tokenizer = tokenizer
    with pytest.raises(ExportError, match=r"rules transformers.js supports; .*Received: pre_tokenizer Split\(.*\|"):
        tiny("bert", "text-classification").export(tmp_path / "out", model, target="transformers.js")


def test_the_python_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tiny_text.wordpiece(), tmp_path)
    rows = json.loads((folder / hard_texts.FILE).read_text(encoding="utf-8"))
    (code,) = [code for code in blocks(PAGE, "python") if hard_texts.FILE in code]
    program = code.replace("path/to/bundle", folder.as_posix())
    exec(program, {})
    rows[2]["ids"] = []
    (folder / hard_texts.FILE).write_text(json.dumps(rows), encoding="utf-8")
    exec(program, {})
    assert capsys.readouterr().out.splitlines() == ["[]", str([rows[2]["text"]])]
