from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerasformer.tools.web.site import PAGE
from kerasformer.tools.web.vendor import vendor
from tests.foreign.environments import need
from tests.tools.web.sites import Browser, browser, served_folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with its runtimes; tests write bundles into the folder when they need them."""
    need("chromium")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PAGE / "library", folder / "library")
    shutil.copy(PAGE / "worker.js", folder)
    vendor(folder / "vendor", ["litert", "onnx"], need("web").parent)
    (folder / "index.html").write_text("<!doctype html><title>library</title>")
    return folder


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Browser]:
    """An empty page of the site in Chromium."""
    with browser() as opened, served_folder(site) as url:
        opened.open(url)
        yield opened
