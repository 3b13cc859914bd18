"""Checks the pages of a built site: links lead somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

# In the pages that Sphinx writes, text has no `<`, and values are in double quotes.
_TAG = re.compile(r"<(\w+)(\s[^<>]*)>")
_VALUE = re.compile(r'\s(id|href|src|srcset|name)="([^"]*)"')
_FETCHED = {"img", "script", "iframe", "source", "link"}


def problems(site: Path) -> list[str]:
    """Returns a line for each broken link, missing file, and file of another host that a page would load."""
    pages = {path.resolve(): list(_values(path)) for path in site.rglob("*.html")}
    ids = {path: {value for _, name, value in values if name in ("id", "name")} for path, values in pages.items()}
    found = set()
    for path, values in pages.items():
        for tag, _, target in (each for each in values if each[1] in ("href", "src", "srcset")):
            parts = urlsplit(target)
            what = None
            if parts.scheme or parts.netloc:
                what = "fetched from elsewhere" if tag in _FETCHED and parts.scheme != "data" else None
            else:
                linked = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                if not linked.exists():
                    what = "no such file"
                elif parts.fragment and linked in ids and unquote(parts.fragment) not in ids[linked]:
                    what = "no such section"
            if what:
                found.add(f"{path.relative_to(site.resolve())}: {what}: {target}")
    return sorted(found)


def _values(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the tag, the name and the value of each attribute of a page that is a link or its goal."""
    for tag, attributes in _TAG.findall(path.read_text(encoding="utf-8")):
        for name, value in _VALUE.findall(attributes):
            yield tag.lower(), name, unescape(value)
