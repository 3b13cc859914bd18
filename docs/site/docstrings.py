"""Docstrings as Markdown: lists of arguments, attributes and errors, with the text of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

_LISTS = ("Args", "Call arguments", "Attributes", "Raises")
_TEXTS = ("Returns", "Yields", "Reference", "Derived from", "Paper", "Source")
_TITLES = {"Args": "Arguments", "Raises": "Errors"}
_SECTION = re.compile(rf"^({'|'.join((*_LISTS, *_TEXTS))}):(?: +(.*))?$")
_ENTRY = re.compile(r"^([\w.*/, ]+?):(?: +(.*))?$")


def markdown(docstring: str | None) -> str:
    """Returns a docstring as Markdown, with a bold title for each of its sections."""
    parts = []
    for title, lines in _sections(inspect.cleandoc(docstring or "")):
        text = "\n".join(lines).strip("\n")
        if title in _LISTS:
            text = "\n".join(
                f"- {_code(name)}: {what}" if what else f"- {_code(name)}" for name, what in _entries(text)
            )
        elif title:
            text = inspect.cleandoc(text)
        if text and title:
            text = f"**{_TITLES.get(title, title)}**\n\n{text}"
        parts.append(text)
    return "\n\n".join(part for part in parts if part)


def first_line(docstring: str | None) -> str:
    """Returns the first paragraph of a docstring in one line."""
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the title of each section, empty for plain text, and its lines."""
    title, lines = "", list[str]()
    for line in text.splitlines():
        match = _SECTION.match(line)
        if match:
            yield title, lines
            title, lines = match[1], [match[2]] if match[2] else []
        elif title and line and not line.startswith(" ") and not (title in _TEXTS and lines and lines[-1]):
            yield title, lines  # plain text after a section
            title, lines = "", [line]
        else:
            lines.append(line)
    yield title, lines


def _entries(text: str) -> list[tuple[str, str]]:
    """Returns the name and the text of each entry of a list; further lines of an entry are indented."""
    found: list[tuple[str, str]] = []
    for line in inspect.cleandoc(text).splitlines():
        match = _ENTRY.match(line)
        if match:
            found.append((match[1], match[2] or ""))
        elif found:
            name, before = found[-1]
            found[-1] = name, f"{before} {line.strip()}".strip()
        else:
            found.append((line.strip(), ""))
    return found


def _code(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))
