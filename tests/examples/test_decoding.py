"""The outputs and pictures of docs/decoding.md are current."""

from __future__ import annotations

import re

import pytest

from examples.decoding import PAGE, updated_page


@pytest.mark.grid
@pytest.mark.slow
def test_the_outputs_and_pictures_of_the_page_are_current(tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert updated_page(page) == page
    shown = set(re.findall(r"\]\(pictures/([^)]+)\)", page))
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == shown
    assert all((PAGE.parent / "pictures" / name).is_file() for name in shown)
