"""Runs the code blocks of pages of the documentation and updates their outputs and pictures.

    python examples/pages.py decoding

Runs every ```pycon block of a page, from top to bottom in one namespace. Do not edit the outputs by hand: a test also
runs the pages, and fails if an output differs.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from kerasformer.errors import KerasformerError

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("decoding", "interpretability")
"""The pages whose outputs are produced."""
_BLOCK = re.compile(r"(?<=```pycon\n).*?(?=```)", re.DOTALL)


def updated_page(page: str) -> str:
    """Returns the page with the current outputs of its blocks."""
    names: dict[str, Any] = {}
    return _BLOCK.sub(lambda block: _run(block.group(), names), page)


def _run(block: str, names: dict[str, Any]) -> str:
    lines = []
    for example in doctest.DocTestParser().get_examples(block):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(example.source, "<page>", "single"), names)
            except KerasformerError as error:  # the page may show an error
                print(f"{type(error).__name__}: {error}")
        first, *more = example.source.splitlines()
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in more)]
        lines += [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.chdir(DOCS)
    for name in sys.argv[1:] or PAGES:
        page = DOCS / f"{name}.md"
        page.write_text(updated_page(page.read_text(encoding="utf-8")), encoding="utf-8")
