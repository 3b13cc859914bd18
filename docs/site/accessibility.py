"""Mends what the theme leaves out for keyboards, screen readers and phones, in the pages that were written."""

from __future__ import annotations

import re
from pathlib import Path

_PARAMETERS = re.compile(r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>", re.DOTALL)
_MENDED = [
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    # What scrolls can be reached by a keyboard.
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">'),
]
_TOP = re.compile(r'(<a href="#" class="back-to-top.*?</a>)', re.DOTALL)
_LONG_CODE = re.compile(r'(?<=<span class="pre">)[^<]{18,}(?=</span>)')
_EMPTY_HEAD = re.compile(r'<th class="head([^"]*)"><p></p></th>')


def mend(site: Path) -> None:
    """Rewrites the pages of a site."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for before, after in _MENDED:
            text = text.replace(before, after)
        text = _EMPTY_HEAD.sub(r'<td class="head\1"></td>', text)
        text = _TOP.sub(r'<nav aria-label="Top of the page">\1</nav>', text)
        text = _LONG_CODE.sub(lambda match: re.sub(r"(?<=[._/(,=])", "<wbr>", match[0]), text)
        text = _PARAMETERS.sub(_lines, text)
        path.write_text(text, encoding="utf-8")


def _lines(match: re.Match[str]) -> str:
    """Returns the parameters of a signature as lines, since they are no list of definitions."""
    lines = match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'
