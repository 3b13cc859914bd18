"""The page on decoding says what is so."""

from __future__ import annotations

import re

import pytest

from examples.decoding import PAGE, written_anew


@pytest.mark.slow
def test_the_page_prints_what_it_says_and_draws_its_pictures(tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert written_anew(page) == page
    shown = set(re.findall(r"\]\(pictures/([^)]+)\)", page))
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == shown
    assert all((PAGE.parent / "pictures" / name).is_file() for name in shown)
