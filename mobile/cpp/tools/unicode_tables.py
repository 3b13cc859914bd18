"""Writes `src/text/unicode_tables.inc`, the properties of characters that tokenizers use.

    python mobile/cpp/tools/unicode_tables.py

The parts of the library `tokenizers` follow several versions of Unicode. The candidates therefore come from Python's
`unicodedata` (or, for properties that it lacks, from the package `regex`), and `tokenizers` itself decides about each
character, so that both libraries agree on all of them. Grapheme clusters it cannot be asked about: they come from a
release of `regex` with the Unicode of the Rust library, 17 (`pip install regex==2025.11.3`).
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import regex
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

_OUTPUT = Path(__file__).parents[1] / "src" / "text" / "unicode_tables.inc"
_CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
_CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
_BREAKS = "Other CR LF Control Extend ZWJ SpacingMark Prepend L V T LV LVT".split()
# A letter that is neither a mark, nor punctuation, nor a space, and that no character composes with.
_LETTER = "x"
_UNICODE_18 = "\u1aec"
"""A mark since that version."""


def main() -> None:
    """Writes the tables."""
    flags = [
        _matching(r"\w"),
        {c for c in _CHARACTERS if not _splits(pre_tokenizers.Whitespace(), c)},
        _removed(normalizers.BertNormalizer(False, False, True, False)),
        _removed(normalizers.StripAccents()),
        _removed(normalizers.BertNormalizer(True, False, False, False)),
        {c for c in _CHARACTERS if _splits(pre_tokenizers.Punctuation(), c)},
        {c for c in _CHARACTERS if _splits(pre_tokenizers.WhitespaceSplit(), c)},
        {c for c in _CHARACTERS if _splits(pre_tokenizers.Digits(), c)},
    ]
    category = _by_name(_CATEGORIES, lambda name: _matching(rf"\p{{{name}}}"))
    breaks = _by_name(_BREAKS, _breaking)
    kinds: dict[tuple[int, int, int], int] = {}
    ranges: list[tuple[int, int]] = []
    for character in _CHARACTERS:
        bits = sum(1 << bit for bit, members in enumerate(flags) if character in members)
        kind = (category.get(character, 0), breaks.get(character, 0), bits)
        index = kinds.setdefault(kind, len(kinds))
        if not ranges or ranges[-1][1] != index:
            ranges.append((ord(character), index))
    canonical, compatible = _decompositions("NFD"), _decompositions("NFKD")
    compatible = {c: text for c, text in compatible.items() if canonical.get(c) != text}
    classes = {c: _combining_class(c) for c in _CHARACTERS if unicodedata.combining(c)}
    lower = {c: text for c in _CHARACTERS if (text := normalizers.Lowercase().normalize_str(c)) != c}
    numbers = [(category << 12) | (brk << 8) | bits for category, brk, bits in kinds]
    parts = [
        "// Written by tools/unicode_tables.py, which asks the library tokenizers",
        f"// {tokenizers.__version__} about the characters of Unicode {unicodedata.unidata_version} and later.",
        _array("uint32_t", "kKinds", numbers),
        _array("uint32_t", "kRanges", (number for pair in ranges for number in pair)),
        _array("uint32_t", "kCombiningClasses", _runs(classes)),
        _array("uint32_t", "kCompositions", _compositions()),
        _texts("kCanonical", canonical),
        _texts("kCompatible", compatible),
        _texts("kLower", lower),
    ]
    _OUTPUT.write_text("\n".join(parts), encoding="utf-8")


def _splits(splitter: pre_tokenizers.PreTokenizer, character: str) -> bool:
    return splitter.pre_tokenize_str(_LETTER + character + _LETTER) != [(_LETTER + character + _LETTER, (0, 3))]


def _removed(normalizer: normalizers.Normalizer) -> set[str]:
    return {c for c in _CHARACTERS if normalizer.normalize_str(c) == ""}


def _matching(pattern: str) -> set[str]:
    """Returns the characters that a pattern matches."""
    # A piece is a run of characters of one kind, since those of another kind are removed.
    pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str("".join(_CHARACTERS))
    return {character for piece, _ in pieces for character in piece}


def _breaking(name: str) -> Iterable[str]:
    if regex.match(r"\p{Grapheme_Cluster_Break=Extend}", _UNICODE_18):
        raise SystemExit(f"regex 2025.11.3 was expected, which has Unicode 17. Received: {regex.__version__}")
    pattern = regex.compile(rf"\p{{Grapheme_Cluster_Break={name}}}")
    return (c for c in _CHARACTERS if name != "Other" and pattern.match(c))


def _by_name(names: list[str], members: Callable[[str], Iterable[str]]) -> dict[str, int]:
    return {character: index for index, name in enumerate(names) for character in members(name)}


def _decompositions(form: str) -> dict[str, str]:
    """Returns the whole decomposition of each character that has one, without those of Korean syllables."""
    normalize = getattr(normalizers, form)().normalize_str
    return {c: text for c in _CHARACTERS if not "가" <= c <= "힣" and (text := normalize(c)) != c}


def _combining_class(character: str) -> int:
    """Returns the combining class, or 0 for a character that is too new for `tokenizers`."""
    number, mark = unicodedata.combining(character), "\u0334"  # of class 1
    swapped = normalizers.NFD().normalize_str(character + mark) == mark + normalizers.NFD().normalize_str(character)
    return number if swapped or number == 1 else 0


def _runs(classes: dict[str, int]) -> Iterable[int]:
    """Yields first character, number of characters and class of each run of characters with one class."""
    runs: list[list[int]] = []
    for character, number in classes.items():
        if number and runs and sum(runs[-1][:2]) == ord(character) and runs[-1][2] == number:
            runs[-1][1] += 1
        elif number:
            runs.append([ord(character), 1, number])
    return (number for run in runs for number in run)


def _compositions() -> Iterable[int]:
    """Yields two characters and the one that they compose to, in ascending order."""
    normalize = normalizers.NFC().normalize_str
    for character in _CHARACTERS:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(part, 16) for part in parts)
            if normalize(chr(first) + chr(second)) == character:
                yield from (first, second, ord(character))


def _array(kind: str, name: str, numbers: Iterable[int]) -> str:
    return f"const {kind} {name}[] = {{{_wrapped(f'{number}' for number in numbers)}}};\n"


def _texts(name: str, texts: dict[str, str]) -> str:
    """Writes code, length and characters of each text."""
    numbers = (number for c, text in texts.items() for number in (ord(c), len(text), *map(ord, text)))
    return _array("uint32_t", name, numbers)


def _wrapped(parts: Iterable[str]) -> str:
    lines, line = [], ""
    for part in parts:
        if len(line) + len(part) > 118:
            lines.append(line)
            line = ""
        line += f"{part},"
    return "\n".join([*lines, line])


if __name__ == "__main__":
    main()
