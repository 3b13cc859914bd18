"""Tables of Markdown, and links between pages of the site."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; cells are Markdown, and `|` in them is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines) + "\n"


def listed(names: Iterable[str]) -> str:
    """Returns names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def contents(names: Iterable[str], hidden: bool = True) -> str:
    """Returns the tree of the pages below an index."""
    return "```{toctree}\n" + ":hidden:\n" * hidden + ":maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
