"""The documentation site: its build is strict, and it works from a file, on a phone, and with a keyboard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import docstrings, links, path_picture
from tests.foreign.environments import need
from tests.web.sites import browser

ROOT = Path(__file__).parents[1]
PAGES = ("index.html", "docs/decoding.html", "reference/layers.html")


def test_sections_of_a_docstring_become_lists():
    text = """Applies a layer.

    Args:
        x: Hidden states `(B, T, E)`,
            in any type.
        **options: More.
    Returns:
        `(B, T, E)`.
    Reference: A paper.

    The end.
    """
    assert docstrings.markdown(text) == (
        "Applies a layer.\n\n**Arguments**\n\n- `x`: Hidden states `(B, T, E)`, in any type.\n- `**options`: More.\n\n"
        "**Returns**\n\n`(B, T, E)`.\n\n**Reference**\n\nA paper.\n\nThe end."
    )


def test_broken_links_and_files_of_other_hosts_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="x"></p> <a href="b.html#y">b</a> <a href="#x">x</a> <a href="c.html">c</a>'
    )
    (tmp_path / "b.html").write_text('<img src="https://example.com/x.png"> <a href="https://example.com">away</a>')
    assert links.problems(tmp_path) == [
        "a.html: no such file: c.html",
        "a.html: no such section: b.html#y",
        "b.html: fetched from elsewhere: https://example.com/x.png",
    ]


def test_the_picture_of_the_path_has_the_colours_of_the_page():
    for path, text in path_picture.files().items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m docs.site.path_picture"


@pytest.mark.grid
@pytest.mark.foreign
def test_the_site_opens_from_a_file_with_its_search_and_without_violations(tmp_path):
    pytest.importorskip("furo")
    need("chromium")
    site = Path(os.environ.get("KERASFORMER_SITE", tmp_path / "site"))  # CI has built it before the tests
    if not site.is_dir():
        built = subprocess.run([sys.executable, "-m", "docs.site", site], cwd=ROOT, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
    address = site.as_uri()
    with browser() as page:
        page.open(f"{address}/search.html?q=distillation", scheme="dark")
        page("until", script="document.querySelectorAll('#search-results li').length > 3")
        found = page("run", script="[...document.querySelectorAll('#search-results li a')].map((each) => each.href)")
        assert any(link.startswith(f"{address}/docs/training.html") for link in found)
        for name in PAGES:
            page.open(f"{address}/{name}", scheme="dark" if name == PAGES[0] else "light")
            assert page("run", script="document.documentElement.scrollWidth <= innerWidth")
            assert page("axe") == []
