"""Code blocks of a Markdown file, and the programs of a bundle."""

from __future__ import annotations

import re
from pathlib import Path


def blocks_of(text: str, language: str) -> list[str]:
    """Returns the fenced code blocks of a language in a text, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Returns the fenced code blocks of a language, in order."""
    return blocks_of(page.read_text(encoding="utf-8"), language)


def programs(folder: Path, language: str) -> list[str]:
    """Returns the programs on the card of a bundle in a language."""
    return blocks(folder / "README.md", language)


def card_texts(folder: Path) -> str:
    """Returns the card of a bundle with the page about its tensors."""
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in ("README.md", "tensors.md"))
