"""The base class of errors."""

from __future__ import annotations

import importlib.metadata
import json
import pickle
from types import SimpleNamespace

import pytest

from kerasformer import errors, extras
from kerasformer.errors import CapacityError, MissingExtraError


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
