"""Labelled texts, from lists or from a file of plain lines, TSV, CSV or JSON lines."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError
from kerasformer.files.live import is_of
from kerasformer.files.reading import local_path
from kerasformer.files.shards import json_row
from kerasformer.pipelines.columns import CHOICE_COLUMNS, QUESTION_COLUMNS, TEXT_COLUMNS, Columns

_TABLES = (".tsv", ".csv")
_JSON = (".jsonl", ".json", ".ndjson")


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
        choices: Texts of which one follows the text; the label is this one, or its index.
        starts: Positions in characters of the answers in the text, where they are known.
        group: Question that several texts belong to, where they are scored together.
        location: File and line that it was read from, for error messages.
    """

    text: str
    label: Any = None
    question: str | None = None
    pair: str | None = None
    words: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    group: str | None = None
    location: str = field(default="", compare=False)

    def to_dict(self) -> dict[str, object]:
        """Returns a row that `examples` accepts."""
        label = {"text": self.label, "answer_start": list(self.starts)} if self.starts else self.label
        row = {"text": list(self.words) or self.text, "label": label}
        row |= {"choices": list(self.choices)} if self.choices else {}
        return row | {key: value for key in ("question", "pair", "group") if (value := getattr(self, key)) is not None}


class Examples(list[Example]):
    """Examples of a file.

    Attributes:
        skipped: What was wrong with each row that was skipped, with the file and the line.
    """

    skipped: tuple[str, ...] = ()


def examples(
    texts: Sequence[Any], labels: Sequence[Any] | None = None, columns: Columns | None = None
) -> list[Example]:
    """Converts texts and labels to examples.

    Args:
        texts: Texts, lists of words, dicts such as `{"question": …, "context": …}`, or examples; a split of `datasets`,
            or one of its columns.
        labels: Label of each text, unless the dicts or examples contain them.
        columns: Names of the columns of a split of `datasets`; the common ones by default.

    Raises:
        InputError: there are no texts, the number of labels differs, or an item is not a text.
    """
    if is_of(texts, "datasets"):
        texts = _rows_of_dataset(texts)
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise InputError(f"texts must be a list of at least one text. Received: {texts!r:.80}")
    if all(isinstance(text, Example) for text in texts) and labels is None:
        return list(texts)
    if labels is not None and (isinstance(labels, str) or len(labels) != len(texts)):
        raise InputError(f"Each text needs a label. Received: {len(texts)} texts and {len(labels)} labels")
    rows = [text if isinstance(text, Mapping) else {"text": text} for text in texts]
    if labels is not None:
        rows = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    columns = columns or Columns()
    return [
        _example(part, columns, location)
        for location, row in ((f"text {number}", row) for number, row in enumerate(rows, 1))
        for part in columns.rows(row, location)
    ]


class ClassName(str):
    """Name of a class in a data set of others.

    Attributes:
        id: Its id there, that of a model whose classes have no names.
    """

    id: int

    @classmethod
    def of(cls, names: Sequence[str], index: int) -> ClassName:
        """Returns the name with this id."""
        name = cls(names[index])
        name.id = index
        return name


def _rows_of_dataset(data: Any) -> Sequence[Any]:
    """Returns the rows of a split of `datasets`, with names of classes for their ids; a column is returned unchanged.

    Raises:
        InputError: several splits, or a split without known length.
    """
    if isinstance(data, Sequence):
        return data
    if isinstance(data, Mapping):
        raise InputError(f"One split was expected, such as data[{next(iter(data), 'train')!r}]. Received: {list(data)}")
    if not hasattr(data, "__len__"):
        raise InputError(
            "A data set in memory or on disk was expected, such as datasets.Dataset.from_list(list(data.take(1000))). "
            f"Received: {type(data).__name__}"
        )
    names = {column: found for column, feature in data.features.items() if (found := _class_names(feature))}
    return [{column: _named(value, names.get(column)) for column, value in row.items()} for row in data]


def _class_names(feature: Any) -> Sequence[str] | None:
    """Returns the names of the classes of a column, or of the elements of its lists."""
    inner = getattr(feature, "feature", feature)
    return getattr(inner, "names", None) if type(inner).__name__ == "ClassLabel" else None


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if names is None or value is None:
        return value
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    return ClassName.of(names, value) if value >= 0 else None  # -1 for texts without a label


def read_examples(
    path: str | Path,
    text_column: str | None = None,
    label_column: str | None = None,
    *,
    columns: Columns | None = None,
    skip_bad: bool = False,
) -> Examples:
    """Reads a file of texts, optionally with labels.

    Args:
        path: File, optionally compressed as `.gz`. `.jsonl` has an object per line; that of
            its key `"translation"` has further columns, named after languages. `.tsv` and `.csv` have a header or,
            without one, texts in the first column and labels in the second. Any other file has a text per line.
        text_column: Name of the column of texts, or its number starting at 1; a common name by default.
        label_column: Name or number of the column of labels; a common name by default.
        columns: Names of all columns, in place of the common ones.
        skip_bad: Skip rows that cannot be read, and rows without a label in a file where others have one.
    Raises:
        InputError: the file or a column does not exist, a line cannot be read, or there are no texts. The message has
            the line and the reason.
    """
    path = local_path(path, InputError)
    columns = (columns or Columns()).named(text_column, label_column)
    read, skipped = Examples(), []
    for number, row in _rows(path, columns):
        try:
            if isinstance(row, InputError):
                raise row
            location = f"{path}, line {number}"
            read += [_example(part, columns, location) for part in columns.rows(row, location)]
        except InputError as error:
            if not skip_bad:
                raise
            skipped.append(str(error))
    if skip_bad and any(_has_label(example) for example in read):
        skipped += [f"No label ({example.location})" for example in read if not _has_label(example)]
        read = Examples(filter(_has_label, read))
    if not read:
        why = f". All rows were skipped, the first because of: {skipped[0]}" if skipped else ""
        raise InputError(f"A file with at least one text was expected. Received: {path}{why}")
    read.skipped = tuple(skipped)
    return read


def _has_label(example: Example) -> bool:
    return example.label not in (None, "")


def _rows(path: Path, columns: Columns) -> list[tuple[int, dict[str, Any] | InputError]]:
    """Returns the number of each line with its row, or with the reason why it cannot be read."""
    suffix, lines = _suffix(path), read_lines(path)
    if suffix in _TABLES:
        return _cells(lines, suffix, path, columns)
    is_json = suffix in _JSON
    rows: list[tuple[int, dict[str, Any] | InputError]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                _check_utf8(line, path, number)
                rows.append((number, _object(line, path, number) if is_json else {"text": line.strip()}))
            except InputError as error:
                rows.append((number, error))
    return rows


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
    columns = [[line.strip() for line in read_lines(each)] for each in paths]
    for each, lines in zip(paths, columns, strict=True):
        for number, line in enumerate(lines, 1):
            _check_utf8(line, each, number)
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


def is_plain(path: Path) -> bool:
    """Whether a file has a text in each line, rather than rows with columns."""
    return _suffix(path) not in (*_TABLES, *_JSON)


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file; bytes that are not UTF-8 are surrogates, see `_check_utf8`."""
    if not path.is_file():
        raise InputError(f"A file of texts was expected. Received: {path}")
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            return list(file)
    except (OSError, EOFError) as error:
        raise InputError(f"The file of texts cannot be read: {error}. Received: {path}") from error


def _check_utf8(text: str, path: Path, number: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = text[:40].strip().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise InputError(f"Expected UTF-8. Received: '{shown}' in {path}, line {number}") from error


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    row = json_row(line, path, number)
    translation = row.get("translation")
    # The datasets of Hugging Face have a text by language here.
    return row | translation if isinstance(translation, dict) else row


def _cells(
    lines: list[str], suffix: str, path: Path, columns: Columns
) -> list[tuple[int, dict[str, Any] | InputError]]:
    """Returns the line numbers and rows of a table; rows have their cells by column name and by column number."""
    if suffix == ".tsv":  # quotation marks have no special meaning
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, strict=True)
    table = list(_read_cells(reader, path))
    header, first = next(((n, row) for n, (_, row) in enumerate(table) if not isinstance(row, InputError)), (0, []))
    # Not LABEL_COLUMNS: in a file without header, one of them may be the label of the first text.
    given = columns.label if columns.needs_label else ()
    known = {name for name in (*TEXT_COLUMNS, *columns.text, *given) if not name.isdigit()}
    names = [cell.strip() for cell in first]
    if len(names) > 1 and known.intersection(names):
        del table[header]
    else:
        names = ["text", "label"][: len(names)]
    rows: list[tuple[int, dict[str, Any] | InputError]] = []
    for number, cells in table:
        if isinstance(cells, InputError):
            rows.append((number, cells))
        elif len(cells) < len(names):
            expected = f"Expected {len(names)} columns. Received: {len(cells)} in {path}, line {number}"
            rows.append((number, InputError(expected)))
        else:
            by_number = {str(n): cell for n, cell in enumerate(cells, 1)}
            rows.append((number, dict(zip(names, cells, strict=False)) | by_number))
    return rows


def _read_cells(reader: Any, path: Path) -> Iterator[tuple[int, list[str] | InputError]]:
    """Yields the cells of each row that is not empty with the number of its line, or why it cannot be read."""
    while True:
        try:
            row = next(reader)
            _check_utf8("\t".join(row), path, reader.line_num)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"The table cannot be read: {error}. Received: {path}, line {reader.line_num}"
            yield reader.line_num, InputError(problem)
        except InputError as error:
            yield reader.line_num, error
        else:
            if row:
                yield reader.line_num, row


def _example(row: Mapping[str, Any], columns: Columns, location: str) -> Example:
    text = _cell(row, columns.text, "text", location)
    words: tuple[str, ...] = ()
    if isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(word, str) for word in text):
        words, text = tuple(text), " ".join(text)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"A text was expected. Received: {text!r:.80} ({location})")
    label = _cell(row, columns.label, "label", location, needed=columns.needs_label)
    starts: tuple[int, ...] = ()
    if isinstance(label, Mapping) and "text" in label:  # the format of SQuAD: texts and positions of answers
        label, starts = _answers(label, location)
    if hasattr(label, "tolist"):
        label = label.tolist()
    label = columns.class_of(label, location)
    question = _cell(row, QUESTION_COLUMNS, "question", location, needed=False)
    pair = _cell(row, columns.pair, "pair", location, needed=False)
    choices = _cell(row, CHOICE_COLUMNS, "choice", location, needed=False)
    if isinstance(choices, Mapping):  # the format of ARC: texts and their letters
        letters, choices = list(choices.get("label", ())), choices.get("text")
        label = letters.index(label) if label in letters else label
    if choices is not None and not (isinstance(choices, list | tuple) and all(isinstance(one, str) for one in choices)):
        raise InputError(f"A list of texts to choose from was expected. Received: {choices!r:.80} ({location})")
    group = row.get("group")
    group = group if isinstance(group, str) else None
    return Example(text, label, question, pair, words, tuple(choices or ()), starts, group, location)


def _answers(label: Mapping[str, Any], location: str) -> tuple[list[Any], tuple[int, ...]]:
    """Returns answers and their positions, one or several of each.

    Raises:
        InputError: their numbers differ.
    """
    answers, starts = (
        [value] if isinstance(value, str | int) else list(value)
        for value in (label["text"], label.get("answer_start", ()))
    )
    if starts and len(starts) != len(answers):
        raise InputError(
            f"A position for each answer was expected. Received: {len(answers)} answers and {len(starts)} positions "
            f"({location})"
        )
    return answers, tuple(map(int, starts))


def _cell(row: Mapping[str, Any], names: Sequence[str], what: str, location: str, needed: bool = True) -> Any:
    cell = next((row[name] for name in names if name in row), None)
    if cell is None and needed:
        columns = ", ".join(name for name in row if not name.isdigit())
        raise InputError(
            f"A column of {what}s was expected, named {' or '.join(names)}. Received: {columns or 'none'} "
            f"({location}). Name it with {f'{what}_column'}=…"
        )
    return cell
