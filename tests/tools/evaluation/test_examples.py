"""Texts with labels from lists and from files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools.evaluation import Example, examples, read_examples, read_parallel

TWO = [Example("a good film", "1"), Example("no, not this", "0")]

FILES = {
    "data.tsv": "a good film\t1\nno, not this\t0\n",
    "header.tsv": "label\tsentence\n1\ta good film\n0\tno, not this\n",
    "data.csv": 'text,label\na good film,1\n"no, not this",0\n',
    "data.jsonl": '{"text": "a good film", "label": "1"}\n\n{"text": "no, not this", "label": "0"}\n',
    "windows.tsv": "\ufeffa good film\t1\r\nno, not this\t0\r\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_file_formats(tmp_path, name, packed):
    path = tmp_path / (name + (".gz" if packed else ""))
    data = FILES[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read_examples(path) == TWO


def test_lines_are_texts_without_labels(tmp_path):
    (tmp_path / "data.txt").write_text("a good film\n\n  no, not this \n")
    assert [(each.text, each.label) for each in read_examples(tmp_path / "data.txt")] == [
        ("a good film", None),
        ("no, not this", None),
    ]


@pytest.mark.parametrize("columns", [("2", "1"), ("what", "how")])
def test_columns_by_number_and_by_name(tmp_path, columns):
    header = "" if columns[0] == "2" else "how\twhat\n"
    (tmp_path / "data.tsv").write_text(header + "1\ta good film\n0\tno, not this\n")
    assert read_examples(tmp_path / "data.tsv", *columns) == TWO


def test_quotation_marks_are_literal_in_tsv_and_quote_cells_in_csv(tmp_path):
    (tmp_path / "data.tsv").write_text('"good film\t1\nno "\t0\n')
    assert [each.text for each in read_examples(tmp_path / "data.tsv")] == ['"good film', 'no "']
    (tmp_path / "data.csv").write_text('text,label\n"two\nlines",1\n')
    assert read_examples(tmp_path / "data.csv")[0].text == "two\nlines"


def test_words_questions_and_pairs(tmp_path):
    rows = [
        {"tokens": ["Ada", "left"], "ner_tags": ["B-PER", "O"]},
        {"question": "Who?", "context": "Ada left.", "answers": {"text": ["Ada"], "answer_start": [0]}},
        {"sentence1": "Ada left.", "sentence2": "She is gone.", "label": 1},
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = read_examples(tmp_path / "data.jsonl")
    assert read == [
        Example("Ada left", ["B-PER", "O"], words=("Ada", "left")),
        Example("Ada left.", ["Ada"], question="Who?", starts=(0,)),
        Example("Ada left.", 1, pair="She is gone."),
    ]
    assert examples([each.to_dict() for each in read]) == read


def test_translations_by_language_are_columns(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"id": 3, "translation": {"en": "Rain.", "de": "Regen."}}\n')
    assert read_examples(tmp_path / "data.jsonl", "en", "de") == [Example("Rain.", "Regen.")]
    assert read_examples(tmp_path / "data.jsonl", "de", "en") == [Example("Regen.", "Rain.")]
    with pytest.raises(InputError, match="Received: id, translation, en, de .*line 1"):
        read_examples(tmp_path / "data.jsonl")


def test_parallel_files(tmp_path):
    (tmp_path / "a.en").write_bytes(b"Rain.\r\nMr. O'Neil\xe2\x80\xa8 left.\r\n")  # a line separator is no line end
    (tmp_path / "a.de.gz").write_bytes(gzip.compress(b"Regen.\nHerr O'Neil ging."))
    (tmp_path / "b.de").write_text("\nHerr O'Neil verschwand.\n")
    first = read_parallel(tmp_path / "a.en", [tmp_path / "a.de.gz"])
    assert [each.label for each in first] == [["Regen."], ["Herr O'Neil ging."]]
    assert [each.text for each in first] == ["Rain.", "Mr. O'Neil\u2028 left."]
    both = read_parallel(tmp_path / "a.en", [tmp_path / "a.de.gz", tmp_path / "b.de"])
    assert [each.label for each in both] == [["Regen."], ["Herr O'Neil ging.", "Herr O'Neil verschwand."]]


@pytest.mark.parametrize(
    ("text", "reference", "message"),
    [
        ("a\nb\n", "a\n", "same number of lines.*Received: 2 in .*a.en, 1 in .*a.de"),
        ("a\n\n", "a\nb\n", "empty line 2 in .*a.en"),
        ("a\n", None, "file of texts was expected. Received: .*a.de"),
    ],
)
def test_invalid_parallel_files_raise(tmp_path: Path, text, reference, message):
    (tmp_path / "a.en").write_text(text)
    if reference is not None:
        (tmp_path / "a.de").write_text(reference)
    with pytest.raises(InputError, match=message):
        read_parallel(tmp_path / "a.en", [tmp_path / "a.de"])


def test_lists():
    assert examples(["a", "b"], np.array([1, 0])) == [Example("a", 1), Example("b", 0)]
    assert examples([{"question": "Who?", "context": "Ada."}], [["Ada"]]) == [Example("Ada.", ["Ada"], "Who?")]
    assert examples([["Ada", "left"]], [[1, 0]]) == [Example("Ada left", [1, 0], words=("Ada", "left"))]
    assert examples(TWO) == TWO


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("Rain.", None, "list of at least one text"),
        (["a", 3], None, "A text was expected. Received: 3 .text 2"),
        (["a", " "], None, "A text was expected"),
        (["a", "b"], [1], "2 texts and 1 labels"),
        ([{"sentense": "a"}], None, "column of texts was expected.*Received: sentense"),
    ],
)
def test_invalid_lists_raise(texts, labels, message):
    with pytest.raises(InputError, match=message):
        examples(texts, labels)


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("no.tsv", None, (), "A file of texts was expected. Received: .*no.tsv"),
        ("empty.tsv", b"", (), "at least one text"),
        ("bad.jsonl", b'{"text": "a"}\n{"text"', (), "JSON object: .*bad.jsonl, line 2"),
        ("short.tsv", b"a\t1\nb\n", (), "Expected 2 columns. Received: 1 .*line 2"),
        ("bytes.txt", b"a\nsp\xe4t", (), r"Expected UTF-8. Received: 'sp.*xe4t' in .*bytes.txt, line 2"),
        ("fake.tsv.gz", b"no archive", (), "cannot be read"),
        ("data.tsv", b"how\twhat\n1\tx\n", ("who", "how"), "named who. Received: how, what.*text_column"),
    ],
)
def test_invalid_files_raise(tmp_path: Path, name, content, columns, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_examples(tmp_path / name, *columns)


def test_choices(tmp_path: Path):
    """The forms of HellaSwag and of ARC."""
    rows = [
        {"ctx": "She", "endings": ["left.", "is rain."], "label": "0"},
        {"ctx": "Who?", "choices": {"text": ["Ada", "Tom"], "label": ["A", "B"]}, "label": "B"},
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_examples(tmp_path / "data.jsonl") == [
        Example("She", "0", choices=("left.", "is rain.")),
        Example("Who?", 1, choices=("Ada", "Tom")),
    ]
    with pytest.raises(InputError, match="A list of texts to choose from was expected. Received: 'a'"):
        examples([{"text": "Who?", "choices": "a", "label": 0}])
