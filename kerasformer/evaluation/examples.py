"""Texts with what is right for them, from lists or from a file of lines, TSV, CSV or JSON lines."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError, SourceError
from kerasformer.files import local_path, parse_json

TEXT_COLUMNS = ("text", "sentence", "sentence1", "document", "article", "context", "source", "words", "tokens")
LABEL_COLUMNS = ("label", "labels", "tags", "ner_tags", "summary", "highlights", "target", "answers", "answer")
PAIR_COLUMNS = ("pair", "sentence2")
QUESTION_COLUMNS = ("question",)


@dataclass(frozen=True)
class Example:
    """A text and what is right for it.

    Attributes:
        text: To be classified, continued or shortened; the context of a question.
        label: Name or id of a class, a list of them (classes that do not exclude each other, or one for each word), a
            text to be written, an answer or a list of them; `None` if it is not known.
        question: About the text.
        pair: A second text, for classes of pairs.
        words: Of the text, where each has a label.
    """

    text: str
    label: Any = None
    question: str | None = None
    pair: str | None = None
    words: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As a row that `examples` takes."""
        row = {"text": list(self.words) or self.text, "label": self.label}
        return row | {key: value for key in ("question", "pair") if (value := getattr(self, key)) is not None}


def examples(texts: Sequence[Any], labels: Sequence[Any] | None = None) -> list[Example]:
    """Examples of texts.

    Args:
        texts: Each a text, a list of words, a dictionary such as `{"question": …, "context": …}`, or an example.
        labels: What is right for each; a dictionary or an example may hold it itself.
    Raises:
        InputError: no texts, not as many labels as texts, or something else than text.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise InputError(f"texts must be a list of one or more texts. Received: {texts!r:.80}")
    if all(isinstance(text, Example) for text in texts) and labels is None:
        return list(texts)
    if labels is not None and (isinstance(labels, str) or len(labels) != len(texts)):
        raise InputError(f"Each text needs a label. Received: {len(texts)} texts and {len(labels)} labels")
    rows = [text if isinstance(text, Mapping) else {"text": text} for text in texts]
    if labels is not None:
        rows = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    return [_example(row, None, None, f"text {place}") for place, row in enumerate(rows, 1)]


def read_examples(path: str | Path, text_column: str | None = None, label_column: str | None = None) -> list[Example]:
    """Reads a file of texts, maybe with labels.

    Args:
        path: A file, plain or `.gz`. `.jsonl`: an object a line. `.tsv`, `.csv`: with a header, or without one, and
            then text first and label second. Anything else: a text a line.
        text_column: Name, or number from 1, of the column of texts; a customary name by default.
        label_column: Likewise of the labels.
    Raises:
        InputError: no such file or column, a line that cannot be read, or no texts.
    """
    path = local_path(path, InputError)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    lines = _lines(path)
    if suffix in (".jsonl", ".json", ".ndjson"):
        rows = [(place, _object(line, path, place)) for place, line in enumerate(lines, 1) if line.strip()]
    elif suffix in (".tsv", ".csv"):
        rows = _cells(lines, suffix, path, (text_column, label_column))
    else:
        rows = [(place, {"text": line.strip()}) for place, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise InputError(f"A file of texts was expected. Received one without any: {path}")
    return [_example(row, text_column, label_column, f"{path}, line {place}") for place, row in rows]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(f"A file of texts was expected. Received: {path}")
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            return list(file)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"The file of texts cannot be read: {error}. Expected UTF-8. Received: {path}") from error


def _object(line: str, path: Path, place: int) -> dict[str, Any]:
    try:
        row = parse_json(line, f"{path}, line {place},")
    except SourceError as error:
        raise InputError(f"Each line must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"Each line must be a JSON object. Received: {line[:80]!r} in {path}, line {place}")
    return row


def _cells(
    lines: list[str], suffix: str, path: Path, wanted: tuple[str | None, ...]
) -> list[tuple[int, dict[str, Any]]]:
    """Rows of a table by the names of its columns; by their numbers too, which is all there is without a header."""
    if suffix == ".tsv":  # quotation marks are text there
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, strict=True)
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"The table cannot be read: {error}. Received: {path}, line {reader.line_num}") from error
    if not table:
        return []
    # Not the names of labels: a first text may well have one of them as its label.
    known = {*TEXT_COLUMNS, *(name for name in wanted if name is not None and not name.isdigit())}
    names = [cell.strip() for cell in table[0][1]]
    if len(names) > 1 and known.intersection(names):
        table = table[1:]
    else:
        names = ["text", "label"][: len(names)]
    rows = []
    for place, cells in table:
        if len(cells) < len(names):
            raise InputError(f"Expected {len(names)} columns. Received: {len(cells)} in {path}, line {place}")
        row = dict(zip(names, cells, strict=False)) | {str(n): cell for n, cell in enumerate(cells, 1)}
        rows.append((place, row))
    return rows


def _example(row: Mapping[str, Any], text_column: str | None, label_column: str | None, where: str) -> Example:
    text = _cell(row, text_column, TEXT_COLUMNS, "text", where)
    words: tuple[str, ...] = ()
    if isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(word, str) for word in text):
        words, text = tuple(text), " ".join(text)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"A text was expected. Received: {text!r:.80} ({where})")
    label = _cell(row, label_column, LABEL_COLUMNS, "label", where, needed=label_column is not None)
    if isinstance(label, Mapping) and "text" in label:  # SQuAD's form: texts of answers, and where they begin
        label = list(label["text"])
    if hasattr(label, "tolist"):
        label = label.tolist()
    question = _cell(row, None, QUESTION_COLUMNS, "question", where, needed=False)
    pair = _cell(row, None, PAIR_COLUMNS, "pair", where, needed=False)
    return Example(text, label, question, pair, words)


def _cell(
    row: Mapping[str, Any], wanted: str | None, names: Sequence[str], what: str, where: str, needed: bool = True
) -> Any:
    if wanted is not None:
        names = (wanted,)
    found = next((row[name] for name in names if name in row), None)
    if found is None and needed:
        columns = ", ".join(name for name in row if not name.isdigit())
        raise InputError(
            f"A column of {what}s was expected, named {' or '.join(names)}. Received: {columns or 'none'} ({where}). "
            f"Name it with {what}_column"
        )
    return found
