"""Batches over files: blocks, the record of a run, rows that fail; without Ray, whose tests are in `test_ray.py`."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet as parquet
import pytest

import kerasformer as kf
from kerasformer.errors import InputError
from kerasformer.tools.integrations.batch import batch, main
from kerasformer.tools.integrations.columns import ColumnModel
from tests.tools.integrations import models
from tests.tools.integrations.models import read_lines, rows, write_lines


def inline(writer, jobs):
    for job in jobs:
        yield writer.write(job)


def run(inputs, output, runner=inline, block_rows=10, **settings):
    return batch(ColumnModel(models.classifier(), **settings), inputs, output, runner, block_rows=block_rows)


@pytest.fixture(scope="module")
def labels():
    pipe = kf.pipeline(models.classifier())
    return lambda read: [each["label"] for each in pipe([row["text"] for row in read])]


def test_lines_keep_their_order_and_other_columns(tmp_path, labels):
    content = rows(35)
    lines = [json.dumps(row) for row in content]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("\n\n".join(lines[:17]) + "\n \n")
    with gzip.open(tmp_path / "in/b.jsonl.gz", "wt") as file:
        file.write("\n".join(lines[17:]))
    report = run(tmp_path / "in", tmp_path / "out")
    assert (report.total.rows, report.total.failed, report.blocks, report.errors) == (35, 0, 4, None)
    read = read_lines(tmp_path / "out")
    assert [row["id"] for row in read] == list(range(35)) and [*read[0]] == [
        "id",
        "text",
        "result_label",
        "result_score",
    ]
    assert [row["result_label"] for row in read] == labels(content)
    tokenizer = kf.Tokenizer.load(models.classifier())
    assert report.total.tokens == sum(len(tokenizer.encode(row["text"])) for row in content)
    assert not list((tmp_path / "out").rglob("*.attempts"))


def test_parquet_keeps_its_types(tmp_path, labels):
    content = rows(25)
    schema = pyarrow.schema([("id", pyarrow.int16()), ("text", pyarrow.large_string()), ("none", pyarrow.date32())])
    table = pyarrow.Table.from_pylist([{**row, "none": None} for row in content], schema)
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=7)
    assert run(tmp_path / "in.parquet", tmp_path / "out").blocks == 3
    read = parquet.read_table(tmp_path / "out")
    assert read.schema.names == [*schema.names, "result_label", "result_score"]
    assert read.select(schema.names) == table
    assert read["result_label"].to_pylist() == labels(content)


def test_lists_of_results_are_json_in_parquet(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist(rows(3)), tmp_path / "in.parquet")
    run(tmp_path / "in.parquet", tmp_path / "out", top_k=2)
    first = json.loads(parquet.read_table(tmp_path / "out")["result"][0].as_py())
    assert [sorted(each) for each in first] == [["label", "score"]] * 2


def test_rows_that_fail_are_kept_aside(tmp_path):
    content = rows(30)
    content[3]["text"], content[14] = None, {"id": 14}
    lines = [json.dumps(row) for row in content]
    lines[25] = "{broken"
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    report = run(tmp_path / "in.jsonl", tmp_path / "out")
    assert (report.total.rows, report.total.failed) == (30, 3)
    errors = list(map(json.loads, report.errors.read_text().splitlines()))
    assert [each["row"] for each in errors] == [4, 15, 26] and {each["file"] for each in errors} == {"in.jsonl"}
    assert "null for text" in errors[0]["error"] and errors[2]["input"] == "{broken"
    assert [row["id"] for row in read_lines(tmp_path / "out")] == [n for n in range(30) if n not in (3, 14, 25)]


def test_a_run_continues_after_it_was_stopped(tmp_path):
    inputs = write_lines(tmp_path / "in.jsonl", rows(50))

    def stopped(writer, jobs):
        yield writer.write(jobs[0])
        writer.write(jobs[3])  # finished, but not yet counted
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(inputs, tmp_path / "out", stopped)
    left = []

    def noted(writer, jobs):
        left.extend(job.number for job in jobs)
        return inline(writer, jobs)

    report = run(inputs, tmp_path / "out", noted)
    assert left == [1, 2, 4] and (report.total.rows, report.new.rows) == (50, 30)
    assert [row["id"] for row in read_lines(tmp_path / "out")] == list(range(50))
    assert run(inputs, tmp_path / "out", noted).new.rows == 0 and len(left) == 3


def test_files_of_an_attempt_that_was_killed_are_replaced(tmp_path):
    inputs, record = write_lines(tmp_path / "in.jsonl", rows(20)), tmp_path / "out/_run"
    run(inputs, tmp_path / "out")
    (record / "000001.jsonl").unlink()
    for left in (record / ".000001.jsonl.0a1b2c3d", tmp_path / "out/.part-000001.jsonl.0a1b2c3d"):
        left.write_text("{}\n")
    report = run(inputs, tmp_path / "out")
    assert (report.new.rows, report.errors) == (10, None)
    assert sorted(path.name for path in record.iterdir()) == ["000000.jsonl", "000001.jsonl", "run.json"]
    assert sorted(path.name for path in record.parent.iterdir()) == ["_run", "part-000000.jsonl", "part-000001.jsonl"]


class Stopped(ColumnModel):
    """A model at one of whose texts the process ends."""

    def results(self, batch):
        if "deadly" in batch["text"]:
            raise KeyboardInterrupt
        return super().results(batch)


def test_a_row_that_ends_workers_is_kept_aside(tmp_path):
    content = rows(20)
    content[4]["text"] = content[16]["text"] = "deadly"
    inputs = write_lines(tmp_path / "in.jsonl", content)

    def again(writer, jobs):
        for job in jobs:
            for _ in range(10):
                try:
                    yield writer.write(job)
                    break
                except KeyboardInterrupt:  # as a worker that is started again
                    continue

    report = batch(Stopped(models.classifier()), inputs, tmp_path / "out", again, block_rows=10)
    assert (report.total.rows, report.total.failed) == (20, 2)
    errors = list(map(json.loads, report.errors.read_text().splitlines()))
    assert [each["input"]["id"] for each in errors] == [4, 16]
    assert all("The worker process ended while it answered this row" in each["error"] for each in errors)
    assert len(read_lines(tmp_path / "out")) == 18


@pytest.mark.parametrize(
    ("changed", "name"),
    [({"top_k": 2}, "settings"), ({"block_rows": 9}, "block_rows"), ({"prefix": "it"}, "prefix")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_output_of_another_run_is_refused(changed, name, tmp_path):
    inputs = write_lines(tmp_path / "in.jsonl", rows(5))
    run(inputs, tmp_path / "out")
    with pytest.raises(InputError, match=f"that of another run, with another value of {name}"):
        run(inputs, tmp_path / "out", **changed)


def test_the_output_of_another_source_or_input_is_refused(tmp_path):
    inputs = write_lines(tmp_path / "in.jsonl", rows(5))
    run(inputs, tmp_path / "out")
    with pytest.raises(InputError, match="another value of source"):
        batch(ColumnModel(models.writer()), inputs, tmp_path / "out", inline)
    write_lines(inputs, rows(6))
    with pytest.raises(InputError, match='another value of files. Expected: {"in.jsonl": .* Received: {"in.jsonl"'):
        run(inputs, tmp_path / "out")


def test_a_file_without_the_column_is_named(tmp_path):
    write_lines(tmp_path / "in/a.jsonl", rows(3))
    parquet.write_table(pyarrow.table({"id": [1], "review": ["a"]}), tmp_path / "in/b.parquet")
    with pytest.raises(InputError, match=r"columns text. Received: id, review, without text, in .*b\.parquet"):
        run(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write_lines(tmp_path / "only/c.jsonl", [{"review": "a"}])
    with pytest.raises(InputError, match=r"Received: review, without text, in .*c\.jsonl"):
        run(tmp_path / "only", tmp_path / "out")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "A file or folder of JSON lines or Parquet was expected"),
        (lambda folder: write_lines(folder / "a.jsonl", []), "At least one row was expected"),
        (lambda folder: write_lines(folder / "a.parquet", []), "A file of Parquet was expected"),
        (lambda folder: write_lines(folder / "a.jsonl", [{"text": "a", "result_label": 1}]), "result_label in both"),
        (lambda folder: write_lines(folder / "a.txt", [{}]), "Files that end in .jsonl"),
    ],
    ids=["missing", "no rows", "no Parquet", "collision", "only text"],
)
def test_bad_input_is_named(make, message, tmp_path):
    make(tmp_path / "in")
    with pytest.raises(InputError, match=message):
        run(tmp_path / "in", tmp_path / "out")


def test_a_folder_with_other_files_is_refused(tmp_path):
    inputs = write_lines(tmp_path / "in.jsonl", rows(5))
    write_lines(tmp_path / "out/mine.txt", [])
    with pytest.raises(InputError, match="which has other files"):
        run(inputs, tmp_path / "out")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_the_program_prints_the_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    monkeypatch.setattr("kerasformer.tools.integrations.ray.on_ray", lambda workers, address: inline)
    inputs, output = write_lines(tmp_path / "in.jsonl", [{"a": text} for text in models.texts(5)]), tmp_path / "out"
    arguments = [str(models.classifier()), str(inputs), str(output), "--column", "a", "--set", "top_k=2"]
    main([*arguments, "--json", "--block-rows", "3"])
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["blocks"], report["new_rows"], report["errors"]) == (5, 2, 5, None)
    assert len(read_lines(output)[0]["result"]) == 2
    main([*arguments, "--block-rows", "3"])
    assert "new rows\t0" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        main([*arguments, "--set", "top_k"])
    assert capsys.readouterr().err.startswith("Error: --set must be name=value. Received: 'top_k'")
