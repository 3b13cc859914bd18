"""Writes the table of an export's options in docs/bundles.md: python -m tests.option_table [--write]."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kerasformer.export_options import FORMATS, ExportOptions
from kerasformer.options import declared

COMMAND = "python -m tests.option_table --write"
PAGE = Path(__file__).parents[1] / "docs" / "bundles.md"
_BEGIN, _END = f"<!-- from kerasformer/export_options.py: {COMMAND} -->", "<!-- end -->"


def table() -> str:
    """Returns a row for each option: its name, the formats that have it, and its help."""
    lines = [["option", "formats", "meaning"], ["---"] * 3]
    for name, (_, option) in declared(ExportOptions).items():
        formats = "all" if set(option.formats) in (set(), set(FORMATS)) else ", ".join(option.formats)
        lines.append([f"`{name}`", formats, option.help])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Returns the page with an up-to-date table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes or compares the page; returns the exit status."""
    if page() == PAGE.read_text(encoding="utf-8"):
        return 0
    if "--write" in arguments:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
