"""Code blocks of a Markdown file, and the programs of a bundle."""

from __future__ import annotations

import re
from pathlib import Path

_SUFFIXES = {"kotlin": ".kt", "swift": ".swift", "cpp": ".[ch]pp", "python": ".py"}


def blocks(page: Path, language: str) -> list[str]:
    """Returns the fenced code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def programs(folder: Path, language: str) -> list[str]:
    """Returns the programs of a bundle in a language: those on its card and on pages beside it, and files."""
    pages = [folder / "README.md", *sorted((folder / "programs").glob("*.md"))]
    files = sorted((folder / "programs").glob(f"*{_SUFFIXES.get(language, '.')}"))
    return [block for page in pages for block in blocks(page, language)] + [
        path.read_text(encoding="utf-8") for path in files
    ]


def card_texts(folder: Path) -> str:
    """Returns the card of a bundle with all programs and pages beside it."""
    paths = [folder / "README.md", *sorted((folder / "programs").iterdir())]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
