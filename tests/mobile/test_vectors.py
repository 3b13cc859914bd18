"""The vectors are those that Python gives, and the JavaScript library gives them, too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kerasformer import bundle
from kerasformer.engines import open_engine
from kerasformer.tools.web.site import PAGE
from tests.foreign.environments import need
from tests.margins import check_same
from tests.mobile import cards, decoding_vectors, tokenizer_vectors
from tests.mobile.mock import Mock, MockStep
from tests.mobile.task_vectors import RecordedForward, called
from tests.mobile.vectors import FOLDER

JAVASCRIPT = Path(__file__).parent / "javascript"


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.json*")}


@pytest.mark.parametrize("part", [tokenizer_vectors, decoding_vectors], ids=["tokenizers", "decoding"])
def test_the_vectors_are_those_of_this_version(part: Any, tmp_path: Path) -> None:
    """If they are not, `python -m tests.mobile.vectors` writes them again, and the other languages are to follow."""
    part.write(tmp_path / "written")
    name = "tokenizers" if part is tokenizer_vectors else "decoding"
    written, kept = files(tmp_path / "written"), files(FOLDER / name)
    assert written.keys() == kept.keys()
    assert [name for name in written if written[name] != kept[name]] == []


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "tasks").iterdir()))
def test_the_results_of_tasks_are_those_of_this_version(name: str) -> None:
    folder = FOLDER / "tasks" / name
    content = json.loads((folder / "calls.json").read_text(encoding="utf-8"))
    engine = content.get("engine")
    model: Any
    if engine is None:
        model = open_engine(folder)
    elif "mock" in engine:
        model = MockStep(Mock(**engine["mock"]))
    else:
        model = RecordedForward(bundle.read(folder), engine["recorded"])
    for row in content["calls"]:
        check_same(called(folder, model, row["task"], row["inputs"], row["options"]), row)


@pytest.mark.parametrize("name", ["beams-early", "beams-never", "beams-long", "beams-short", "beams-without-penalty"])
def test_settings_of_the_end_of_beams_change_the_result(name: str) -> None:
    model, prompt, stored, settings = decoding_vectors.GENERATIONS[name]
    expected = decoding_vectors.generated(model, prompt, stored, settings)["tokens"]
    for setting in settings.keys() & {"early_stopping", "length_penalty"}:
        without = {key: value for key, value in settings.items() if key != setting}
        assert decoding_vectors.generated(model, prompt, stored, without)["tokens"] != expected, setting


@pytest.mark.foreign("web")
def test_javascript() -> None:
    packages = need("web").parent / "node_modules"
    command = ["node", str(JAVASCRIPT / "vectors.mjs"), str(PAGE / "library"), str(packages), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["counts"].keys() == {
        "tokenizers", "refused", "prefill", "mock", "random", "samplers", "rules", "settings", "generations", "tasks"
    }  # fmt: skip
    assert answer["failures"] == []


@pytest.mark.foreign("web")
def test_the_javascript_of_cards_runs() -> None:
    """That of every task, with mock models; test_npm_package.py runs it with its imports."""
    packages, found = need("web").parent / "node_modules", cards.codes("javascript")
    assert found.keys() == cards.CASES.keys()
    command = ["node", str(JAVASCRIPT / "cards.mjs"), str(PAGE / "library"), str(packages)]
    rows = [{"folder": str(cards.folder_of(case)), "code": code} for case, code in found.items()]
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for case, printed in zip(found, json.loads(done.stdout), strict=True):
        assert printed and all(printed), (case, printed)
