"""The notebook runs from top to bottom, and the repository has what it prints."""

from __future__ import annotations

import re

import pytest

from tests.extras import need
from tests.tools.examples.stand_in import stand_in

nbformat = need("nbformat")
need("nbclient")
from examples.quickstart import NOTEBOOK, executed, printed

_NUMBER = re.compile(r"[\d.,]*\d")
_PATH = re.compile(r"/(home|root|tmp|usr|work|Users)/")


@pytest.mark.grid
def test_the_quickstart_prints_what_it_says(tmp_path):
    stand_in(tmp_path)
    kept = nbformat.read(NOTEBOOK, as_version=4).cells
    for cell, found in zip(kept, executed(folder=tmp_path).cells, strict=True):
        if "chat" in cell.source:
            assert printed(found) or cell.cell_type == "markdown"
            continue
        # Sizes and scores may differ in their last digits from one processor to the next.
        assert _NUMBER.sub("#", printed(cell)) == _NUMBER.sub("#", printed(found)), cell.source
    shown = "".join(map(printed, kept))
    assert "model.tflite" in shown and "Paris" in shown
    assert shown.count("LiteRT  positive") == shown.count("LiteRT  negative") == 1
    assert not _PATH.search(shown) and len(NOTEBOOK.read_bytes()) < 30_000
