"""Writes the tables of options in the documentation: python -m tests.option_table [--write]."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kerasformer.basics.command_options import SiteOptions
from kerasformer.basics.options import declared
from kerasformer.bundle.export_options import FORMATS, ExportOptions
from kerasformer.tools.server import ServerOptions

COMMAND = "python -m tests.option_table --write"
_DOCS, _END = Path(__file__).parents[1] / "docs", "<!-- end -->"
PAGES = {
    _DOCS / "bundles.md": ("kerasformer/bundle/export_options.py", ExportOptions),
    _DOCS / "server.md": ("kerasformer/tools/server/options.py", ServerOptions),
    _DOCS / "web.md": ("kerasformer/basics/command_options.py", SiteOptions),
}
"""Pages with a table, each with the file and the class that declare the options."""


def table(options: type) -> str:
    """Returns a row for each option: its name, the formats that have it or its default, and its help."""
    exports = options is ExportOptions
    lines = [["option", "formats" if exports else "default", "meaning"], ["---"] * 3]
    for name, (_, option) in declared(options).items():
        formats = "all" if set(option.formats) in (set(), set(FORMATS)) else ", ".join(option.formats)
        default = "" if option.default in (None, ()) else f"`{option.default}`"
        lines.append([f"`{name}`", formats if exports else default, option.help])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(path: Path) -> str:
    """Returns a page with an up-to-date table."""
    file, options = PAGES[path]
    begin = f"<!-- from {file}: {COMMAND} -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(_END)
    return f"{before}{begin}\n{table(options)}\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes or compares the pages; returns the exit status."""
    stale = [path for path in PAGES if page(path) != path.read_text(encoding="utf-8")]
    if "--write" not in arguments:
        return len(stale)
    for path in stale:
        path.write_text(page(path), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
