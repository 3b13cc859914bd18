"""The card of a model, as the page shows it: a title, one sentence about its purpose, and its licence.

A bundle contains the card of its checkpoint, which people wrote. Only plain text is taken from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_CARDS = ("MODEL_CARD.md", "README.md")
"""The card of the checkpoint; and that of the bundle, if the checkpoint had none."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)^---\s*\n", re.DOTALL | re.MULTILINE)
_LICENSE = re.compile(r"^license:[ \t]*[\"']?([\w.+-]+)[\"']?[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"\s*#[ \t]+(?:model card (?:for|of)[ \t]+)?([^\n]+)\n(?:\s*\n)*(.*)", re.DOTALL | re.IGNORECASE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKUP = re.compile(r"[<>|{}\[\]!]")
"""Characters of what is not a plain sentence: HTML, tables, pictures."""
_MOST_TITLE, _MOST_PURPOSE = 60, 160
"""The most characters of a title and of a sentence about the purpose; longer ones are left out."""


@dataclass(frozen=True)
class ModelCard:
    """A model card.

    Attributes:
        text: The whole card; empty if the bundle has none.
        title: The first heading of the checkpoint's card; empty if it does not begin with one.
        purpose: The first sentence below that heading; empty if it is not a plain sentence.
        license: Name of the licence, such as `"apache-2.0"`; empty if unknown.
    """

    text: str = ""
    title: str = ""
    purpose: str = ""
    license: str = ""

    @classmethod
    def of(cls, folder: Path) -> ModelCard:
        """Reads the card of a bundle."""
        path = next((folder / name for name in _CARDS if (folder / name).is_file()), None)
        if path is None:
            return cls()
        text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
        front = _FRONT_MATTER.match(text)
        license = _LICENSE.search(front[1]) if front else None
        start = _HEADING.match(text[front.end() :] if front else text) if path.name == _CARDS[0] else None
        return cls(
            text,
            _plain(start[1], _MOST_TITLE) if start else "",
            _sentence(start[2]) if start else "",
            license[1] if license else "",
        )


def _sentence(text: str) -> str:
    """Returns the first sentence of a paragraph; nothing unless the text begins with one."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.match(r"[A-Z*_`\[].*?\.(?=\s|$)", paragraph)
    return _plain(sentence[0], _MOST_PURPOSE) if sentence else ""


def _plain(text: str, most: int) -> str:
    """Returns a line without emphasis and links; nothing if it has other markup or is too long."""
    text = re.sub(r"\*\*|__|[*`]", "", _LINK.sub(r"\1", text)).strip()
    return "" if _MARKUP.search(text) or len(text) > most else text
