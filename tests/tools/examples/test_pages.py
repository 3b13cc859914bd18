"""The outputs and pictures of pages are current."""

from __future__ import annotations

import re

import pytest

from examples.pages import DOCS, PAGES, updated_page


@pytest.mark.grid
@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_outputs_and_pictures_of_the_page_are_current(name, tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert updated_page(page) == page
    shown = set(re.findall(rf"\]\(pictures/({name}-[^)]+)\)", page))
    assert shown and {file.name for file in (tmp_path / "pictures").iterdir()} == shown
    assert all((DOCS / "pictures" / name).is_file() for name in shown)
