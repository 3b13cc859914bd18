"""Escaping of a bundle's values for the programs and texts of a card, with one function for each language.

A task prefix, a label or a setting comes from a checkpoint and may contain anything: quotes, ends of lines and of
comments, string interpolation, or Markdown for a table or the end of a code block. After its language's function, a
value is only a literal or plain text, also inside of a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Quote = Callable[[str], str]
"""Converts a value to a literal of a language, including its quotation marks."""

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_FENCE = re.compile("`(?=``)|(?<=`)`(?=`)|(?<=``)`")
"""Each backtick in a run of three or more, which could end a code block in Markdown."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$]|^[#+\-=]|:(?=//)|(?<=www)\.)")


def python(text: str) -> str:
    """Returns a literal of Python, also valid inside of an f-string."""
    return _literal(text, _python_escape, r"[{}]")


def yaml(text: str) -> str:
    """Returns a double-quoted scalar of YAML, for a front matter."""
    return _literal(_without_surrogates(text), _python_escape)


def javascript(text: str) -> str:
    """Returns a literal of JavaScript, also valid inside of `<script>`."""
    return _literal(text, _utf16_escape, r"(?<=<)[/!]|(?<=\*)/|/(?=\*)")


def kotlin(text: str) -> str:
    """Returns a literal of Kotlin, where `$` starts a template and comments can be nested."""
    return _literal(text, _utf16_escape, r"\$|(?<=\*)/|/(?=\*)")


def swift(text: str) -> str:
    """Returns a literal of Swift; lone surrogates, which no Swift string can contain, become U+FFFD."""
    return _literal(_without_surrogates(text), lambda character: f"\\u{{{ord(character):X}}}", r"(?<=\*)/|/(?=\*)")


def cpp(text: str) -> str:
    """Returns a literal of C++ in UTF-8; two adjacent question marks are escaped, since they would start a trigraph."""
    return _literal(_without_surrogates(text), _octal_escape, r"(?<=\?)\?|(?<=\*)/|/(?=\*)")


def code(text: str, in_table: bool = False) -> str:
    """Returns a code span of Markdown, with unprintable characters escaped as in Python.

    Args:
        text: The value.
        in_table: Whether the span is in a table, where `|` is escaped.
    """
    shown = "".join(character if _is_printable(character) else _python_escape(character) for character in text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    if not shown.strip() or shown[0] in " `" or shown[-1] in " `":
        shown = f" {shown} "
    span = f"{ticks}{shown}{ticks}"
    return span.replace("|", "\\|") if in_table else span


def markdown(text: str) -> str:
    """Returns a value as one line of Markdown without markup."""
    line = " ".join("".join(character if _is_printable(character) else " " for character in text).split())
    escaped = _MARKDOWN.sub(r"\\\1", line)
    # At the start of a line, a number with a period would start a list.
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)


def _literal(text: str, escape: Quote, also: str = r"(?!)") -> str:
    """Returns a literal in double quotation marks, with unprintable characters and matches of `also` escaped."""
    special = {match.start() for pattern in (_FENCE, re.compile(also)) for match in pattern.finditer(text)}
    parts = (
        escape(character)
        if index in special or not (_is_printable(character) or character in _NAMED)
        else _NAMED.get(character, character)
        for index, character in enumerate(text)
    )
    return f'"{"".join(parts)}"'


def _is_printable(character: str) -> bool:
    """Returns false for control characters, direction marks, surrogates, and spaces other than the ASCII space."""
    return character.isprintable()


def _without_surrogates(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _python_escape(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _utf16_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))


def _octal_escape(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
