"""Splitting of a long text into sentences, or into chunks of whole sentences, and joining of their results.

Line breaks always separate sentences; a period before a small letter does not. One after an abbreviation, an initial or
a short number does so only if a common first word such as "The" follows, if at all: two sentences that are read
together do no harm, but half a sentence does.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_LINE_BREAKS = "\n\r\u2028\u2029"
_ENDS = ".!?…‼⁇⁈⁉؟۔।॥։።፧།။៕᠃"
"""Characters that end a sentence if a space follows."""
_WIDE_ENDS = "。！？｡．"
"""Characters that end a sentence and are not followed by a space."""
_WIDE = f"{_WIDE_ENDS}，、；："
_CLOSING = "\"'”“’»›)\\]}」』）】》〉"
_WIDE_CLOSING = "”’」』）】》〉"
_SENTENCE_END = re.compile(
    rf"(?:(?<![{_ENDS}])(?P<end>[{_ENDS}]+[{_CLOSING}]*)(?=\s)"
    rf"|(?P<wide>(?<![{_WIDE_ENDS}])[{_WIDE_ENDS}]+[{_WIDE_CLOSING}]*)"
    rf"|(?<!\s)(?=\s*[{_LINE_BREAKS}]))\s*"
)
_CLAUSE_END = re.compile(r"(?:[,;:–—](?=\s)|[，、；：])\s*")
_SPACE = re.compile(r"\s+")
_LETTERS = re.compile(r"(?:[^\W\d]{1,2}\.)+[^\W\d]{1,2}")
_LAST_WORD = re.compile(r"[^\s\-–—\"'“„‘«‹([{]+$")
_NEXT_WORD = re.compile(r"[\s\"'“„‘«‹([{¿¡]*([^\s.,;:!?\"'”’»›)\]}]*)")
_CONTEXT = 80
"""Number of characters before and after a mark that contain the last and the next word."""

# Abbreviations that a name, a number or the rest of a phrase follows, so that a capital letter starts no sentence.
_UNFINISHED = frozenset(
    """
    abb abs adm allg approx aufl betr brig bsp bzw ca capt cf cmdr cpl dept dipl dr e.g eg engl evtl geb gen ggf gov hon
    hr hrsg i.e ie ing inkl lt maj messrs mgr mio mlle mme mr mrd mrs ms mt mx orig pres prof pt pvt rep rev sen sens
    sgt sra st str supt tab tel vgl viz vs z zzgl
""".split()
)
# Abbreviations that a number follows; some are also words.
_BEFORE_NUMBERS = frozenset(
    """
    apr art aug av bd ch col dec dept dez eq eqs feb fig figs jan jul jun kap mar no nos nov nr oct okt op p par pp sec
    sep sept vol vols
""".split()
)
# Abbreviations that may also end a sentence, as may initials, short numbers and those with periods inside ("U.S.").
_AMBIGUOUS = frozenset("al assn ave blvd bros cie co corp dist est etc ext inc jr ltd max rd sr univ usw".split())
# Words that start a sentence after such an abbreviation; any other capitalized word continues a name.
_STARTERS = frozenset(
    """
    a after all although an and as at because before both but by during each even every for from he her here his how
    however i if in it its many more most my no not on one our she since so some such that the their then there these
    they this those though to two under until we what when where which while who why with you
""".split()
)


@dataclass(frozen=True)
class Parts:
    """Parts of a text that a model reads one at a time.

    Attributes:
        texts: The parts, at least one.
        separators: The text before the first part, between the parts and after the last one.
    """

    texts: tuple[str, ...]
    separators: tuple[str, ...]

    @classmethod
    def whole(cls, text: str) -> Parts:
        """Returns a text as its only part."""
        return cls((text,), ("", ""))

    @classmethod
    def of(cls, text: str, ends: Sequence[tuple[int, int]]) -> Parts:
        """Returns the parts of a text.

        Args:
            text: The text.
            ends: Start and end of each separator, in ascending order; a part is at least one character long.
        """
        bounds = [(0, len(text) - len(text.lstrip())), *ends, (len(text.rstrip()), len(text))]
        spans = [(end, start) for (_, end), (start, _) in pairwise(bounds) if end < start]
        if not spans:
            return cls.whole(text)
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        return cls(
            tuple(text[start:end] for start, end in spans),
            tuple(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)),
        )

    def joined(self, results: Sequence[str]) -> str:
        """Returns the results for all parts with the separators of the text.

        Parts without a space between them get one, unless their results are Chinese or Japanese.
        """
        between = [
            _space_after(result, space) for result, space in zip(results[:-1], self.separators[1:-1], strict=True)
        ]
        spaces = (self.separators[0], *between, self.separators[-1])
        return spaces[0] + "".join(map("".join, zip(results, spaces[1:], strict=True)))


def _space_after(result: str, space: str) -> str:
    """Returns the space after the result for a part that `space` follows in the text."""
    if _has_line_break(space):
        return space
    if result.endswith(tuple(_WIDE)) or (not space and _is_wide(result[-1:])):
        return ""
    return space or " "


def _is_wide(character: str) -> bool:
    """Whether a character is Chinese or Japanese, whose words have no spaces between them, or empty."""
    return not character or (unicodedata.east_asian_width(character) in "WF" and not "가" <= character <= "힣")


def sentences(text: str) -> Parts:
    """Returns the sentences of a text."""
    ends = [match for match in _SENTENCE_END.finditer(text) if _ends_sentence(text, match)]
    return Parts.of(text, [(max(match.start(), match.end("end"), match.end("wide")), match.end()) for match in ends])


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a match of `_SENTENCE_END` is the end of a sentence."""
    end = match["end"]
    if end is None or match.end() == len(text) or _has_line_break(match[0]):
        return True
    following = _NEXT_WORD.match(text, match.end(), match.end() + _CONTEXT)
    word_after = following[1] if following else ""
    if word_after[:1].islower():
        return False
    if end.rstrip(_CLOSING.replace("\\", "")) != ".":
        return True
    last = _LAST_WORD.search(text[max(0, match.start() - _CONTEXT) : match.start()])
    word = last[0] if last else ""
    plain = word.lower()
    if plain in _UNFINISHED or (plain in _BEFORE_NUMBERS and word_after[:1].isdigit()):
        return False
    short_number = word.isdecimal() and len(word) < 3
    initial = len(word) == 1 and word.isupper() and word != "I"
    if short_number or initial or plain in _AMBIGUOUS or _LETTERS.fullmatch(word):
        return word_after.lower() in _STARTERS
    return True


def _has_line_break(text: str) -> bool:
    return any(character in _LINE_BREAKS for character in text)


def fitting(parts: Parts, fits: Callable[[str], bool]) -> Parts:
    """Splits the parts that do not fit: after a comma or another mark, at a space, or between two characters.

    Args:
        parts: Parts of a text.
        fits: Whether a model can read a part.
    """
    texts, separators = [], [parts.separators[0]]
    for part, separator in zip(parts.texts, parts.separators[1:], strict=True):
        rest = part
        while len(rest) > 1 and not fits(rest):
            end, following = _cut(rest, fits)
            texts.append(rest[:end])
            separators.append(rest[end:following])
            rest = rest[following:]
        texts.append(rest)
        separators.append(separator)
    return Parts(tuple(texts), tuple(separators))


def _cut(text: str, fits: Callable[[str], bool]) -> tuple[int, int]:
    """Returns the end of the first part of a text that does not fit, and the start of the rest."""
    longest = max(1, bisect_left(range(1, len(text)), True, key=lambda end: not fits(text[:end])))
    for pattern, least in ((_CLAUSE_END, longest // 2), (_SPACE, 1)):
        ends = [match for match in pattern.finditer(text) if least <= len(text[: match.end()].rstrip()) <= longest]
        if ends and ends[-1].end() < len(text):
            return len(text[: ends[-1].end()].rstrip()), ends[-1].end()
    return longest, longest


def chunks(parts: Parts, count: Callable[[str], int], limit: int, across_lines: bool) -> Parts:
    """Combines sentences to chunks of similar length, as few as possible.

    Args:
        parts: Sentences of a text.
        count: Function that returns the number of tokens of a text.
        limit: Maximum number of tokens of a chunk; a longer sentence is a chunk of its own.
        across_lines: Whether a chunk may contain line breaks.
    """
    before = parts.separators[:-1]
    lengths = [count(space + text) for space, text in zip(before, parts.texts, strict=True)]
    apart = [not across_lines and _has_line_break(space) for space in before]

    def starts(limit: int) -> list[int]:
        """Returns the first sentence of each chunk of at most `limit` tokens."""
        firsts, total = [], 0
        for index, length in enumerate(lengths):
            total += length
            if not index or apart[index] or total > limit:
                firsts.append(index)
                total = length
        return firsts

    fewest = len(starts(limit))
    limits = range(1, limit)
    even = 1 + bisect_left(limits, True, key=lambda limit: len(starts(limit)) <= fewest)
    spans = list(pairwise([*starts(even), len(parts.texts)]))
    texts = [
        "".join(map("".join, zip(("", *before[start + 1 : end]), parts.texts[start:end], strict=True)))
        for start, end in spans
    ]
    return Parts(tuple(texts), (*(before[start] for start, _ in spans), parts.separators[-1]))
