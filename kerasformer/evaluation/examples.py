"""Labelled texts, from lists or from a file of plain lines, TSV, CSV or JSON lines."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer.command_options import EvaluationOptions
from kerasformer.errors import InputError, SourceError
from kerasformer.files.reading import local_path, parse_json

TEXT_COLUMNS = (
    "text",
    "sentence",
    "sentence1",
    "document",
    "article",
    "dialogue",
    "context",
    "source",
    "words",
    "tokens",
)
LABEL_COLUMNS = ("label", "labels", "tags", "ner_tags", "summary", "highlights", "target", "answers", "answer")
PAIR_COLUMNS = ("pair", "sentence2")
QUESTION_COLUMNS = ("question",)


@dataclass(frozen=True)
class Example:
    """A text with its label.

    Attributes:
        text: Input text; the context of a question.
        label: Name or id of a class; a list of these, for independent classes or for words; a reference text or a list
            of them; an answer or a list of them; `None` if it is unknown.
        question: Question about the text.
        pair: Second text, for classifiers of pairs.
        words: Words of the text, if each of them has a label.
    """

    text: str
    label: Any = None
    question: str | None = None
    pair: str | None = None
    words: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns a row that `examples` accepts."""
        row = {"text": list(self.words) or self.text, "label": self.label}
        return row | {key: value for key in ("question", "pair") if (value := getattr(self, key)) is not None}


def read_data(
    data: str | os.PathLike[str] | Sequence[Any], labels: Sequence[Any] | None, options: EvaluationOptions
) -> list[Example]:
    """Returns the examples of a file, or of a list of texts; arguments as for `evaluate`."""
    columns, references = (options.get("text_column"), options.get("label_column")), options.get("references")
    if not isinstance(data, str | os.PathLike):
        read = examples(data, labels)
    elif not references:
        read = read_examples(Path(data), *columns)
    elif columns == (None, None):
        read = read_parallel(Path(data), references)
    else:
        raise InputError(
            "Files of references are plain lines, without columns. Received: text_column or label_column. Leave it out"
        )
    return read[: options.get("limit")]


def examples(texts: Sequence[Any], labels: Sequence[Any] | None = None) -> list[Example]:
    """Converts texts and labels to examples.

    Args:
        texts: Texts, lists of words, dicts such as `{"question": …, "context": …}`, or examples.
        labels: Label of each text, unless the dicts or examples contain them.
    Raises:
        InputError: there are no texts, the number of labels differs, or an item is not a text.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise InputError(f"texts must be a list of at least one text. Received: {texts!r:.80}")
    if all(isinstance(text, Example) for text in texts) and labels is None:
        return list(texts)
    if labels is not None and (isinstance(labels, str) or len(labels) != len(texts)):
        raise InputError(f"Each text needs a label. Received: {len(texts)} texts and {len(labels)} labels")
    rows = [text if isinstance(text, Mapping) else {"text": text} for text in texts]
    if labels is not None:
        rows = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    return [_example(row, None, None, f"text {number}") for number, row in enumerate(rows, 1)]


def read_examples(path: str | Path, text_column: str | None = None, label_column: str | None = None) -> list[Example]:
    """Reads a file of texts, optionally with labels.

    Args:
        path: File, optionally compressed as `.gz`. `.jsonl` has an object per line; that of
            its key `"translation"` has further columns, named after languages. `.tsv` and `.csv` have a header or,
            without one, texts in the first column and labels in the second. Any other file has a text per line.
        text_column: Name of the column of texts, or its number starting at 1; a common name by default.
        label_column: Name or number of the column of labels; a common name by default.
    Raises:
        InputError: the file or a column does not exist, a line cannot be read, or there are no texts.
    """
    path = local_path(path, InputError)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    lines = _lines(path)
    if suffix in (".jsonl", ".json", ".ndjson"):
        rows = [(number, _object(line, path, number)) for number, line in enumerate(lines, 1) if line.strip()]
    elif suffix in (".tsv", ".csv"):
        rows = _cells(lines, suffix, path, (text_column, label_column))
    else:
        rows = [(number, {"text": line.strip()}) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise InputError(f"A file with at least one text was expected. Received: {path}")
    return [_example(row, text_column, label_column, f"{path}, line {number}") for number, row in rows]


def read_parallel(path: str | Path, references: Sequence[str | Path]) -> list[Example]:
    """Reads a file of texts, one per line, with references in the same lines of other files.

    Args:
        path: File of texts, optionally compressed as `.gz`.
        references: One or more files of references, likewise. A line may be empty in all but one of them.
    Raises:
        InputError: a file does not exist or cannot be read, has another number of lines, or a text or all references of
            a line are empty.
    """
    paths = [local_path(each, InputError) for each in (path, *references)]
    columns = [[line.strip() for line in _lines(each)] for each in paths]
    if len({len(lines) for lines in columns}) > 1 or not columns[0]:
        counts = ", ".join(f"{len(lines):,} in {each}" for each, lines in zip(paths, columns, strict=True))
        raise InputError(f"Files with the same number of lines, at least one, were expected. Received: {counts}")
    read = []
    for number, (text, *expected) in enumerate(zip(*columns, strict=True), 1):
        if not text or not any(expected):
            empty = paths[0] if not text else " and ".join(map(str, paths[1:]))
            raise InputError(f"A text was expected in each line. Received: an empty line {number} in {empty}")
        read.append(Example(text, [reference for reference in expected if reference]))
    return read


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


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = parse_json(line, f"{path}, line {number},")
    except SourceError as error:
        raise InputError(f"Each line must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"Each line must be a JSON object. Received: {line[:80]!r} in {path}, line {number}")
    translation = row.get("translation")
    # The datasets of Hugging Face have a text by language here.
    return row | translation if isinstance(translation, dict) else row


def _cells(
    lines: list[str], suffix: str, path: Path, columns: tuple[str | None, ...]
) -> list[tuple[int, dict[str, Any]]]:
    """Returns the line numbers and rows of a table; rows have their cells by column name and by column number."""
    if suffix == ".tsv":  # quotation marks have no special meaning
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, strict=True)
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"The table cannot be read: {error}. Received: {path}, line {reader.line_num}") from error
    if not table:
        return []
    # Not LABEL_COLUMNS: in a file without header, one of them may be the label of the first text.
    known = {*TEXT_COLUMNS, *(name for name in columns if name is not None and not name.isdigit())}
    names = [cell.strip() for cell in table[0][1]]
    if len(names) > 1 and known.intersection(names):
        table = table[1:]
    else:
        names = ["text", "label"][: len(names)]
    rows = []
    for number, cells in table:
        if len(cells) < len(names):
            raise InputError(f"Expected {len(names)} columns. Received: {len(cells)} in {path}, line {number}")
        row = dict(zip(names, cells, strict=False)) | {str(n): cell for n, cell in enumerate(cells, 1)}
        rows.append((number, row))
    return rows


def _example(row: Mapping[str, Any], text_column: str | None, label_column: str | None, location: str) -> Example:
    text = _cell(row, text_column, TEXT_COLUMNS, "text", location)
    words: tuple[str, ...] = ()
    if isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(word, str) for word in text):
        words, text = tuple(text), " ".join(text)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"A text was expected. Received: {text!r:.80} ({location})")
    label = _cell(row, label_column, LABEL_COLUMNS, "label", location, needed=label_column is not None)
    if isinstance(label, Mapping) and "text" in label:  # the format of SQuAD: texts and offsets of answers
        label = list(label["text"])
    if hasattr(label, "tolist"):
        label = label.tolist()
    question = _cell(row, None, QUESTION_COLUMNS, "question", location, needed=False)
    pair = _cell(row, None, PAIR_COLUMNS, "pair", location, needed=False)
    return Example(text, label, question, pair, words)


def _cell(
    row: Mapping[str, Any], column: str | None, names: Sequence[str], what: str, location: str, needed: bool = True
) -> Any:
    if column is not None:
        names = (column,)
    cell = next((row[name] for name in names if name in row), None)
    if cell is None and needed:
        columns = ", ".join(name for name in row if not name.isdigit())
        raise InputError(
            f"A column of {what}s was expected, named {' or '.join(names)}. Received: {columns or 'none'} "
            f"({location}). Name it with {f'{what}_column'}=…"
        )
    return cell
