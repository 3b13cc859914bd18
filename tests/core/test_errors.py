"""The base class of errors."""

from __future__ import annotations

import importlib.metadata
import json
import pickle
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kerasformer import errors, extras
from kerasformer.cli import app
from kerasformer.errors import CapacityError, MissingExtraError
from kerasformer.files import readers
from kerasformer.generation import GeneratedText
from kerasformer.pipelines import quality


@pytest.mark.parametrize("kind", [CapacityError, MissingExtraError])
def test_errors_of_two_bases_keep_their_message(kind):
    error = pickle.loads(pickle.dumps(kind("what is wrong")))
    assert str(error) == "what is wrong" and error.args == (str(error),)
    assert str(kind()) == ""


EDITABLE = {"url": "file:///home/me/the%20clone", "dir_info": {"editable": True}}
COMMIT = {"url": "https://host/kf.git", "vcs_info": {"vcs": "git", "commit_id": "0"}}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (json.dumps(EDITABLE), 'in /home/me/the clone with: pip install -e ".[viz]"'),
        (json.dumps(COMMIT), "with: pip install 'kerasformer[viz] @ git+https://host/kf.git'"),
        (
            json.dumps({"url": "file:///tmp/kf.whl", "archive_info": {}}),
            "with: pip install 'kerasformer[viz] @ file:///tmp/kf.whl'",
        ),
        (None, 'in a clone of kerasformer\'s repository with: pip install -e ".[viz]"'),
        ("damaged", 'in a clone of kerasformer\'s repository with: pip install -e ".[viz]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_is_from(recorded, expected, monkeypatch):
    """No index of packages has it."""
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: recorded)
    )
    with pytest.raises(errors.MissingExtraError) as raised:
        extras.require("a_package", "viz")
    assert str(raised.value) == f"a_package is required here and is not installed. Install it {expected}"


@pytest.mark.parametrize(
    ("tool", "use"),
    [
        ("gguf", lambda path: readers.read_foreign(path / "model.gguf")),
        ("evaluation", lambda path: quality.check_labels("text-classification", [])),
        ("interpretability", lambda path: GeneratedText(None, None, []).result("explanation")),
    ],
)
def test_a_tool_whose_folder_was_removed(tool, use, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith(f"kerasformer.tools.{tool}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, f"kerasformer.tools.{tool}", None)  # as if the folder did not exist
    with pytest.raises(MissingExtraError, match=rf"The folder kerasformer/tools/{tool}\S* is required here"):
        use(tmp_path)


def test_a_command_whose_tool_was_removed(monkeypatch):
    monkeypatch.setitem(sys.modules, "kerasformer.tools.server", None)
    result = CliRunner().invoke(app, ["serve", "story-gpt2"])
    assert result.exit_code == 1
    assert "The folder kerasformer/tools/server is required here" in " ".join(result.output.split())
