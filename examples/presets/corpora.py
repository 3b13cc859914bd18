"""Readers of the corpora that the presets are trained on. All of them may be used for models that are published.

| file or folder | source | licence |
|---|---|---|
| `sentence_polarity.zip`, `subjectivity.zip`, `product_reviews_1.zip` | NLTK's corpora | CC BY 4.0 |
| `state_union.zip`, `inaugural.zip`, `gutenberg/` | NLTK's corpora, Project Gutenberg | public domain |
| `wnut17/` | WNUT 2017 shared task | CC BY 4.0 |
| `wordnet/` | `data.noun` … of WordNet 3.0 | WordNet licence |
| `Translation-en` | package descriptions of Debian 12 | the free licences of the packages |
"""

from __future__ import annotations

import difflib
import gzip
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

VERSE = ("blake", "milton", "shakespeare", "whitman")
"""Books that are not prose."""

_PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "\ufeff": ""})


def polarity(folder: Path) -> list[tuple[str, int]]:
    """Returns the sentences of film reviews with 0 for negative and 1 for positive ones."""
    pairs = []
    for label, name in enumerate(("neg", "pos")):
        lines = _member(folder / "sentence_polarity.zip", f"sentence_polarity/rt-polarity.{name}").splitlines()
        pairs += [(line.strip(), label) for line in lines if line.strip()]
    return pairs


def opinions(folder: Path) -> list[str]:
    """Returns sentences of film reviews without a label: the subjective ones of the subjectivity corpus."""
    return _member(folder / "subjectivity.zip", "subjectivity/quote.tok.gt9.5000").splitlines()


def plots(folder: Path) -> list[str]:
    """Returns sentences from summaries of films."""
    return _member(folder / "subjectivity.zip", "subjectivity/plot.tok.gt9.5000").splitlines()


def product_reviews(folder: Path) -> list[tuple[str, int | None]]:
    """Returns sentences of product reviews; 0 or 1 if all annotated features have the same sign, otherwise `None`."""
    pairs: list[tuple[str, int | None]] = []
    path = folder / "product_reviews_1.zip"
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt") and "README" not in name]
    for name in names:
        for line in _member(path, name).splitlines():
            marks, found, text = line.partition("##")
            if found and len(text.split()) > 2:
                signs = set(re.findall(r"\[([+-])\d\]", marks))
                pairs.append((text.strip(), {"+": 1, "-": 0}[signs.pop()] if len(signs) == 1 else None))
    return pairs


def glosses(folder: Path) -> list[str]:
    """Returns the definitions and the examples of WordNet."""
    texts = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / "wordnet" / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if " | " in line:
                definition, *examples = line.split(" | ", 1)[1].split('"')
                texts += [text.strip(" ;") for text in (definition, *examples) if len(text.split()) > 2]
    return texts


def names(folder: Path, part: str = "noun") -> dict[str, list[str]]:
    """Returns the named instances of WordNet (people, places, …) by the number of their lexicographer's file."""
    found: dict[str, list[str]] = {}
    for line in (folder / "wordnet" / f"data.{part}").read_text(encoding="latin-1").splitlines():
        if not line.startswith(" ") and " @i " in line:
            fields = line.split()
            words = [fields[4 + 2 * index].replace("_", " ") for index in range(int(fields[3], 16))]
            found.setdefault(fields[1], []).extend(words)
    return found


def descriptions(folder: Path) -> list[tuple[str, str]]:
    """Returns the package descriptions of Debian with their synopses, one for each distinct first paragraph."""
    best: dict[str, tuple[str, str]] = {}
    for entry in (folder / "Translation-en").read_text(encoding="utf-8").split("\n\n"):
        match = re.search(r"^Description-en: (.*)\n((?: .*(?:\n|$))+)", entry, re.MULTILINE)
        if match is None:
            continue
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n \.\n", "\n" + match[2])]
        synopsis = re.sub(r"\s*[(\[][^()]*[)\]]$|\s+[-–—]+ \S+( \S+)?( \S+)?$", "", match[1].strip())
        synopsis = re.sub(r"^(an?|the) ", "", synopsis, flags=re.IGNORECASE)
        known = best.get(paragraphs[0])
        if synopsis.isascii() and (known is None or len(synopsis) < len(known[1])):
            best[paragraphs[0]] = (" ".join(paragraphs), synopsis)
    return list(best.values())


def books(folder: Path) -> dict[str, str]:
    """Returns the paragraphs of the prose of Project Gutenberg by name of the book, a paragraph in each line."""
    return {
        path.name.split(".")[0]: _book(path)
        for path in sorted((folder / "gutenberg").glob("*.txt*"))
        if not path.name.startswith(VERSE)
    }


def speeches(folder: Path) -> list[str]:
    """Returns the paragraphs of speeches of presidents of the United States."""
    texts = []
    for name in ("state_union", "inaugural"):
        path = folder / f"{name}.zip"
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.namelist() if re.search(r"\d.*\.txt$", member)]
        texts += [line for member in members for line in paragraphs(_member(path, member)).splitlines()]
    return texts


def tweets(folder: Path, name: str) -> list[tuple[list[str], list[str]]]:
    """Returns the words and the tags of the texts of a file of WNUT 2017, such as `wnut17train.conll.gz`."""
    texts: list[tuple[list[str], list[str]]] = []
    words: list[str] = []
    tags: list[str] = []
    for line in [*gzip.decompress((folder / "wnut17" / name).read_bytes()).decode().splitlines(), ""]:
        if line.strip():
            word, tag = line.split("\t")[:2]
            words.append(word.strip())
            tags.append(tag.strip())
        elif words:
            texts.append((words, tags))
            words, tags = [], []
    return texts


def sentences(text: str) -> list[str]:
    """Splits a text into sentences."""
    return [part.strip() for part in re.split(r"(?<=[.!?])[\"']?\s+(?=[A-Z\"'])", text) if len(part.split()) > 2]


def paragraphs(text: str) -> str:
    """Returns the paragraphs of a text, one per line, without headings."""
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text.translate(_PLAIN).replace("\r", "")))
    heading = re.compile(r"(chapter|volume|book|part|epilogue|produced by|\[)\b", re.IGNORECASE)
    return "\n".join(
        part for part in parts if re.search("[a-z]", part) and not (heading.match(part) and len(part) < 120)
    )


def normalized(text: str) -> str:
    """Reduces a text to letters and digits, to compare texts regardless of case, spaces, accents and tokenization."""
    text = unicodedata.normalize("NFKD", re.sub("-[lr]rb-", "", text.lower()))
    return re.sub("[^a-z0-9]", "", text)


def without(texts: Sequence[Any], evaluation: Iterable[str], close: bool = False) -> list[Any]:
    """Removes the texts, or the tuples that begin with a text, that equal or contain one of `evaluation`.

    With `close`, also those that almost equal one that has no equal, which takes minutes for many texts.
    """
    known = {normalized(text) for text in evaluation}
    keys = [normalized(text if isinstance(text, str) else text[0]) for text in texts]
    if close:
        joined = "\n".join(keys)
        for missing in [key for key in known if key not in joined]:
            known.update(difflib.get_close_matches(missing, keys, 3, 0.85))
    long = re.compile("|".join(sorted(key for key in known if len(key) >= 15)))
    joined = "\n".join(key for key in known if len(key) >= 15)
    return [
        text
        for text, key in zip(texts, keys, strict=True)
        if key not in known and not long.search(key) and not (len(key) >= 20 and key in joined)
    ]


def write(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Writes rows as JSON lines and returns their number."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _book(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    text = re.split(r"\*\*\* ?START OF[^\n]*\n", text)[-1]
    return paragraphs(re.split(r"\*\*\* ?END OF", text)[0])


def _member(archive: Path, name: str) -> str:
    with zipfile.ZipFile(archive) as file:
        data = file.read(name)
    return "\n".join(map(_decoded, data.splitlines()))


def _decoded(line: bytes) -> str:
    """Returns a line of a file that mixes encodings."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")
