"""The documentation site: its build is strict, and it works from a file, on a phone, and with a keyboard."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kerasformer as kf
from docs.site import links, live, path_picture
from tests import extras
from tests.foreign.environments import need
from tests.tools.web.sites import browser, served

ROOT = Path(__file__).parents[3]
PAGES = ("index.html", "tasks/translation.html", "reference/errors.html")


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


def test_every_task_has_a_page_whose_code_is_python():
    from docs.site import tasks

    samples = json.loads((ROOT / "kerasformer/bundle/sample_texts.json").read_text(encoding="utf-8"))
    assert set(tasks.MODELS) == set(samples)
    for task, model in tasks.MODELS.items():
        code = ast.unparse(ast.parse(tasks.code(task, model)))
        assert code.count("print(pipe") == code.count("kf.pipeline(") == 2 and f"kf.load('{model}'" in code


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, which CI has built before the tests."""
    extras.need("furo")
    need("chromium")
    folder = Path(os.environ.get("KERASFORMER_SITE", tmp_path_factory.mktemp("site") / "site"))
    if not folder.is_dir():
        built = subprocess.run([sys.executable, "-m", "docs.site", folder], cwd=ROOT, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.grid
@pytest.mark.foreign
def test_the_site_opens_from_a_file_with_its_search_and_without_violations(site):
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


@pytest.mark.grid
@pytest.mark.foreign
def test_code_runs_in_the_page_where_the_site_is_served(site, tmp_path):
    shutil.copytree(site, tmp_path / "site", ignore=shutil.ignore_patterns("live"))
    live.write(tmp_path / "site", ["sentiment-bert"], need("web").parent)
    with browser() as page, served(tmp_path / "site", plain=True) as address:  # without headers, as on many hosts
        page.open(f"{address}/docs/playground.html")
        page("until", script="document.querySelectorAll('button.run').length >= 12")
        page("click", at="button.run >> nth=1")
        page("until", script="document.querySelectorAll('pre.printed')[1].textContent.split('\\n').length === 3")
        shown = page("run", script="document.querySelectorAll('pre.printed')[1].textContent").split()
        pipe = kf.pipeline(tmp_path / "site" / "live" / "models" / "sentiment-bert")
        expected = pipe("Not bad at all!", top_k=None)
        assert shown[::2] == [each["label"] for each in expected]
        assert [float(score) for score in shown[1::2]] == pytest.approx([each["score"] for each in expected], abs=0.02)
        assert page("axe") == []
