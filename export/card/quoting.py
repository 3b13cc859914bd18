"""Values of a bundle as programs and texts of a card write them: one function for each language.

A task prefix, a label or a setting comes from a checkpoint, and may hold anything: quotes, ends of lines and of
comments, what a language computes inside of a string, what Markdown takes for a table or the end of a program. A value
that went through its language's function is a literal, or plain text, and nothing else, inside of a comment too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Quote = Callable[[str], str]
"""From a value to a literal of a language, with its quotation marks."""

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_FENCE = re.compile("`(?=``)|(?<=`)`(?=`)|(?<=``)`")
"""Each backtick of three and more, which could end a program in Markdown."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$]|^[#+\-=]|:(?=//)|(?<=www)\.)")


def python(text: str) -> str:
    """Also what stands inside of the quotation marks of an f-string."""
    return _literal(text, _python_escape, r"[{}]")


def yaml(text: str) -> str:
    """A double-quoted scalar of a front matter."""
    return _literal(_without_surrogates(text), _python_escape)


def javascript(text: str) -> str:
    """Also inside of a page's `<script>`."""
    return _literal(text, _utf16_escape, r"(?<=<)[/!]|(?<=\*)/|/(?=\*)")


def kotlin(text: str) -> str:
    """A `$` begins a template there, and comments can be nested."""
    return _literal(text, _utf16_escape, r"\$|(?<=\*)/|/(?=\*)")


def swift(text: str) -> str:
    """Lone surrogates, which no Swift string can hold, become U+FFFD."""
    return _literal(_without_surrogates(text), lambda letter: f"\\u{{{ord(letter):X}}}", r"(?<=\*)/|/(?=\*)")


def cpp(text: str) -> str:
    """Of the bytes of UTF-8; no two question marks stand together, which would begin a trigraph."""
    return _literal(_without_surrogates(text), _octal_escape, r"(?<=\?)\?|(?<=\*)/|/(?=\*)")


def code(text: str, in_table: bool = False) -> str:
    """A code span of Markdown: a value as it is, or escaped as in Python where it has more than one line.

    Args:
        text: The value.
        in_table: A `|` would begin the next cell.
    """
    shown = "".join(letter if _shows(letter) else _python_escape(letter) for letter in text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    if not shown.strip() or shown[0] in " `" or shown[-1] in " `":
        shown = f" {shown} "
    span = f"{ticks}{shown}{ticks}"
    return span.replace("|", "\\|") if in_table else span


def markdown(text: str) -> str:
    """Words of one line of Markdown, of which nothing is markup."""
    line = " ".join("".join(letter if _shows(letter) else " " for letter in text).split())
    escaped = _MARKDOWN.sub(r"\\\1", line)
    # At the beginning of a line, a number with a point would begin a list.
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)


def _literal(text: str, escape: Quote, also: str = r"(?!)") -> str:
    """A literal in double quotation marks: letters that show stay, all others and those of `also` are escaped."""
    special = {found.start() for pattern in (_FENCE, re.compile(also)) for found in pattern.finditer(text)}
    letters = (
        escape(letter) if place in special or not (_shows(letter) or letter in _NAMED) else _NAMED.get(letter, letter)
        for place, letter in enumerate(text)
    )
    return f'"{"".join(letters)}"'


def _shows(letter: str) -> bool:
    """No control character, no mark of direction, no other space than the usual one, no half of a pair."""
    return letter.isprintable()


def _without_surrogates(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _python_escape(letter: str) -> str:
    if letter in _NAMED:
        return _NAMED[letter]
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _utf16_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _octal_escape(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode())
