"""Many lines of text to compare tokenizers with: real ones, random ones, and real ones with random changes."""

from __future__ import annotations

import gzip
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.mobile.texts import ALL, SCRIPTS

_LONGEST = 300
"""Characters of a line; the Rust library needs very long for very long words."""
_PER_FILE = 4000
_RANGES = (
    *((0x00, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1000, 0x10FF)),
    *((0x1100, 0x11FF), (0xA960, 0xA97F), (0xAC00, 0xAC80), (0xD7B0, 0xD7FF), (0x1200, 0x1400), (0x1680, 0x169F)),
    *((0x1AB0, 0x1AFF), (0x1DC0, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x214F), (0x2150, 0x24FF), (0x2600, 0x27BF)),
    *((0x3000, 0x318F), (0x3400, 0x3440), (0x4E00, 0x4F00), (0xA640, 0xA6FF), (0xE000, 0xE008), (0xF900, 0xFAFF)),
    *((0xFB00, 0xFDFF), (0xFE00, 0xFE6F), (0xFF00, 0xFFFF), (0x10330, 0x1034F), (0x10400, 0x1044F), (0x110B0, 0x110BF)),
    *((0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F6FF)),
    *((0x20000, 0x20040), (0x2F800, 0x2F8FF), (0xE0020, 0xE007F), (0x10FFF0, 0x10FFFF)),
)
"""Blocks with letters, marks, digits, symbols, emoji, control characters, and code points without a character."""
_MARKS = "\u0300\u0301\u0308\u0323\u0327\u0345\u05b0\u064b\u093c\u0e38\u20e3\u200d\ufe0f\U0001f3fd"
_HARD = " \t\r\u00a0\u0085\u200b\u2028\u3000\ufeff\x00\x1f\xad\ufffd\u2581\u0120#@<>/_'’`\"-.,!?09½²Ⅳ"
_JAMO = "".join(map(chr, (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), 0xAC00, 0xAC01)))


def hard_lines(sources: Iterable[Path], count: int, seed: int = 0) -> Iterator[str]:
    """Yields lines, the same ones for the same files and arguments.

    Args:
        sources: Files, also packed with gzip or zip, and folders of them.
        count: Number of lines; half of them are real if there are enough files.
        seed: Of the random lines and changes.
    """
    rng = random.Random(seed)  # noqa: S311, no cryptography
    real = list(dict.fromkeys(line for text in _texts(sources) for line in _sampled(text, rng)))
    rng.shuffle(real)
    real = real[: count // 2] or list(ALL)
    words = [word for line in (*ALL, *real[:5000]) for word in line.split()]
    kinds: list[Callable[[], str]] = [
        lambda: _changed(rng.choice(real), rng),
        lambda: _changed(rng.choice((*SCRIPTS.values(), *ALL)), rng),
        lambda: rng.choice(("", " ", "  ", "\u3000", "-")).join(rng.choices(words, k=rng.randint(1, 12))),
        lambda: "".join(_character(rng) for _ in range(rng.randint(1, 24))),
        lambda: "".join(rng.choices(_JAMO + _MARKS + "aé가 ", k=rng.randint(1, 16))),
    ]
    lines = [line for text in ALL for line in text.split("\n")] + real
    lines += (rng.choices(kinds, (6, 4, 3, 2, 1))[0]() for _ in range(count - len(lines)))
    yield from (line[:_LONGEST].replace("\n", " ") for line in lines[:count])


def _texts(sources: Iterable[Path]) -> Iterator[str]:
    files = [file for source in sources for file in (sorted(source.rglob("*")) if source.is_dir() else [source])]
    for file in files:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                for name in sorted(archive.namelist()):
                    yield archive.read(name).decode(errors="ignore")
        elif file.is_file():
            data = file.read_bytes()
            yield (gzip.decompress(data) if file.suffix == ".gz" else data).decode(errors="ignore")


def _sampled(text: str, rng: random.Random) -> list[str]:
    """Returns lines that are not empty, without their line break."""
    lines = [line for line in text.split("\n") if line.strip()]
    return [line[:_LONGEST] for line in rng.sample(lines, min(_PER_FILE, len(lines)))]


def _character(rng: random.Random) -> str:
    first, last = rng.choice(_RANGES)
    return chr(rng.randint(first, last))


def _changed(text: str, rng: random.Random) -> str:
    """Returns a text with some characters inserted, removed, repeated or moved, or in another case."""
    characters = list(text)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(characters) + 1)
        part = characters[place : place + rng.randint(1, 5)]
        characters[place : place + len(part)] = rng.choice(
            (
                [_character(rng), *part],
                [rng.choice(_HARD), *part],
                [*part, *rng.choices(_MARKS, k=rng.randint(1, 3))],
                [],
                part * rng.randint(2, 3),
                part[::-1],
                list("".join(part).swapcase()),
            )
        )
    return "".join(characters)
