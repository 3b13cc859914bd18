"""Runs what docs/decoding.md shows, and writes what it prints into the page; the page draws its own pictures.

    python examples/decoding.py

Every block of the page that begins with ```pycon is run, from top to bottom in one namespace. Outputs in the page are
never typed: a test runs it too, and fails if a line of it is no longer true.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
from pathlib import Path
from typing import Any

from kerasformer.errors import KerasformerError

PAGE = Path(__file__).parents[1] / "docs" / "decoding.md"
_BLOCK = re.compile(r"(?<=```pycon\n).*?(?=```)", re.DOTALL)


def written_anew(page: str) -> str:
    """The page with what its blocks print now."""
    names: dict[str, Any] = {}
    return _BLOCK.sub(lambda block: _run(block.group(), names), page)


def _run(block: str, names: dict[str, Any]) -> str:
    lines = []
    for example in doctest.DocTestParser().get_examples(block):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(example.source, "<decoding.md>", "single"), names)
            except KerasformerError as error:  # a page may show how something is refused
                print(f"{type(error).__name__}: {error}")
        first, *more = example.source.splitlines()
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in more)]
        lines += [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.chdir(PAGE.parent)
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
