"""Batches over files larger than memory: blocks of rows, each answered and written whole, so that a run can continue.

An output folder has a file for each block of the input, `part-000000.parquet` and so on, in the order of the input. The
folder `_run` in it has the record of the run; for each finished block, its figures, which are written last; and the
rows that failed, in `errors.jsonl`. Whatever is not finished is done again, under another name and then renamed, so
that a process may be killed at any time.

    python -m kerasformer.integrations.batch out reviews.jsonl classified --workers 4
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kerasformer import telemetry
from kerasformer.arguments import check, integer
from kerasformer.errors import InputError, KerasformerError, SourceError, require
from kerasformer.files import sources
from kerasformer.files.publishing import write_json
from kerasformer.files.reading import local_path, read_json, setting_of
from kerasformer.files.shards import Block, JsonLines, Parquet, Shard, open_shard
from kerasformer.integrations.columns import ColumnModel, shown_error
from kerasformer.progress import StageProgress

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet")
_DEATHS = 3
"""Attempts that ended with their worker, after which the rows of a block are answered one by one."""
_DEATHS_OF_ROW = 2
"""Workers that one row must end to be kept aside."""
_DEATHS_BEFORE_ROWS = 30
"""Attempts that ended before the first row of a block, such as while the model was opened, after which the run ends."""
_LOOKED_AT = 100
"""Rows of a file of lines of which one must have the columns."""


@dataclass(frozen=True)
class Job:
    """A block and its place.

    Attributes:
        number: Its number among all blocks.
        path: File of the input.
        name: Name of this file within the input.
        block: Rows of the file.
    """

    number: int
    path: Path
    name: str
    block: Block


@dataclass(frozen=True)
class Figures:
    """Figures of one block, or sums of those of several.

    Attributes:
        rows: Rows of the input.
        failed: Rows that failed.
        tokens: Tokens of the texts of the others.
        core_seconds: Time of the processor in all threads of the workers, in seconds.
    """

    rows: int = 0
    failed: int = 0
    tokens: int = 0
    core_seconds: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        return self._with(other, 1)

    def __sub__(self, other: Figures) -> Figures:
        return self._with(other, -1)

    def _with(self, other: Figures, sign: int) -> Figures:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Figures(*(round(a + sign * b, 3) for a, b in pairs))


@dataclass(frozen=True)
class BatchReport:
    """What a run did.

    Attributes:
        total: Figures of the whole output, also of earlier runs that this one continued.
        blocks: Number of blocks.
        new: Figures of the blocks of this run.
        seconds: Duration of this run.
        errors: File of the rows that failed; `None` if there are none.
    """

    total: Figures
    blocks: int
    new: Figures
    seconds: float
    errors: Path | None


Runner = Callable[["BlockWriter", Sequence[Job]], Iterator[Figures]]
"""Calls a copy of the writer for each job, in any order, and yields the figures of those that are finished."""


def batch(
    model: ColumnModel,
    inputs: str | os.PathLike[str],
    output: str | os.PathLike[str],
    run: Runner,
    *,
    block_rows: int = 1000,
    progress: StageProgress = lambda stage, done, total: None,
) -> BatchReport:
    """Answers the rows of files, and continues an earlier run with the same arguments.

    Args:
        model: The model with its columns and settings.
        inputs: File or folder, with its subfolders, of JSON lines (`.jsonl`, also `.gz`) or Parquet. Lines are counted
            before the run.
        output: Folder of the results, in the formats of the input: rows with the new columns of `model`.
        run: What calls the workers, such as `kerasformer.integrations.ray.on_ray`.
        block_rows: Number of rows of a block, which a worker has in memory, and does again if it is killed.
        progress: Called with the number of finished rows.
    Raises:
        InputError: there are no rows, a file lacks the columns or cannot be read, or the output folder has other files
            or the results of another run: the message names what differs.
    """
    size = check("block_rows", block_rows, integer(1))
    files = _input_files(local_path(inputs, InputError))
    shards = {name: open_shard(path, model.columns) for name, path in files.items()}
    for shard in shards.values():
        _check_columns(shard, model.columns)
    folder = local_path(output, InputError)
    _open_folder(folder, _record(model, files, size))
    blocks = ((name, block) for name, shard in shards.items() for block in shard.blocks(size))
    jobs = [Job(number, files[name], name, block) for number, (name, block) in enumerate(blocks)]
    if not jobs:
        raise InputError(f"At least one row was expected. Received: {len(files)} empty files in {inputs}")
    start, rows = time.perf_counter(), sum(job.block.count for job in jobs)
    writer = BlockWriter(model, folder)
    finished = {job: figures for job in jobs if (figures := writer.finished(job)) is not None}
    before = total = sum(finished.values(), Figures())
    left = [job for job in jobs if job not in finished]
    progress("batch", total.rows, rows)
    for figures in run(writer, left) if left else ():
        total += figures
        rate = (total.rows - before.rows) / (time.perf_counter() - start)
        failed = f", {total.failed:,} failed" if total.failed else ""
        progress(f"{total.rows:,} of {rows:,} rows{failed}, {rate:,.1f}/s", total.rows, rows)
    for unfinished in (*folder.glob(".part-*"), *(folder / "_run").glob(".*.*")):  # of workers that were killed
        unfinished.unlink()
    return BatchReport(total, len(jobs), total - before, time.perf_counter() - start, _join_errors(writer, jobs))


class BlockWriter:
    """Answers blocks and writes their results; each worker has one.

    Args:
        model: The model.
        folder: Output folder, which every worker must see.
    """

    def __init__(self, model: ColumnModel, folder: Path) -> None:
        self.model, self.folder = model, folder
        self._shard: JsonLines | Parquet | None = None

    def finished(self, job: Job) -> Figures | None:
        """Returns the figures of a block that is finished."""
        path = self._path(job, ".json")
        return Figures(**read_json(path)) if path.exists() else None

    def errors(self, job: Job) -> Path:
        """Returns the file of the rows of a block that failed; it exists if there are any."""
        return self._path(job, ".errors.jsonl")

    def write(self, job: Job) -> Figures:
        """Answers a block and writes its results.

        Raises:
            InputError: the file has changed, a new column has the name of another one, or workers end before a row.
            OSError: the results cannot be written.
        """
        start = time.process_time()
        if self._shard is None or self._shard.path != job.path:
            self._shard = open_shard(job.path, self.model.columns)
        shard = self._shard
        part = _TablePart(shard, job) if isinstance(shard, Parquet) else _LinesPart(shard, job)
        journal = _Journal(self._path(job, ".attempts"))
        if journal.is_hopeless:
            raise InputError(
                f"The worker process ended {_DEATHS_BEFORE_ROWS} times before the first row of a block. Expected: "
                "enough memory for the model and a block of rows. Finished blocks are kept: run it again to continue"
            )
        answers = self._careful_answers(part.columns, journal) if journal.is_careful else self._answers(part.columns)
        results = part.with_unread(answers)
        good = [index for index, each in enumerate(results) if not isinstance(each, Exception)]
        name = f"part-{job.number:06}{part.suffix}"
        if good:
            new = self.model.new_columns([results[index] for index in good])
            _replace(self.folder / name, lambda path: part.write(path, good, new))
        else:  # an earlier attempt may have had others
            (self.folder / name).unlink(missing_ok=True)
        if failed := [(index, each) for index, each in enumerate(results) if isinstance(each, Exception)]:
            lines = [{"file": job.name, **part.described(index), "error": shown_error(each)} for index, each in failed]
            _write_lines(self.errors(job), map(_line, lines))
        else:
            self.errors(job).unlink(missing_ok=True)
        seconds = time.process_time() - start
        figures = Figures(len(results), len(failed), self._tokens(part.columns, answers), round(seconds, 3))
        _replace(self._path(job, ".json"), lambda path: write_json(path, asdict(figures)))
        journal.path.unlink(missing_ok=True)
        return figures

    def _path(self, job: Job, suffix: str) -> Path:
        return self.folder / "_run" / f"{job.number:06}{suffix}"

    def _answers(self, columns: Mapping[str, list[Any]]) -> list[Any]:
        return self.model.results(columns)

    def _careful_answers(self, columns: Mapping[str, list[Any]], journal: _Journal) -> list[Any]:
        """Returns the results of rows one by one, without those that ended workers before."""
        results: list[Any] = []
        self.model.open()  # before a row is noted, which would be blamed for a worker that ends here
        for index, row in enumerate(zip(*columns.values(), strict=True)):
            if index in journal.deadly:
                ended = f"The worker process ended while it answered this row, in each of {_DEATHS_OF_ROW} attempts"
                results.append(InputError(ended))
                continue
            journal.note(index)
            results += self.model.results({name: [value] for name, value in zip(columns, row, strict=True)})
        journal.note("end")
        return results

    def _tokens(self, columns: Mapping[str, list[Any]], results: Sequence[Any]) -> int:
        """Returns the number of tokens of the texts of rows that have a result."""
        tokenizer = self.model.open().tokenizer
        texts = [
            value
            for values in columns.values()
            for value, result in zip(values, results, strict=True)
            if isinstance(value, str) and not isinstance(result, Exception)
        ]
        return int(tokenizer(texts, truncation=False).attention_mask.sum()) if texts else 0


class _LinesPart:
    """The rows of a block of lines.

    Attributes:
        columns: Columns of the texts, of the rows that can be read.
    """

    suffix = ".jsonl"

    def __init__(self, shard: JsonLines, job: Job) -> None:
        self._lines = shard.read_block(job.block)
        self._rows: list[Any] = []
        for number, raw in self._lines:
            try:
                self._rows.append(shard.row(raw, number))
            except InputError as error:
                self._rows.append(error)
        _check_count(len(self._rows), job)
        read = [row for row in self._rows if not isinstance(row, Exception)]
        self.columns = {name: [row[name] for row in read] for name in shard.columns}

    def with_unread(self, answers: Sequence[Any]) -> list[Any]:
        """Returns the answers, and errors for the rows that cannot be read."""
        rest = iter(answers)
        return [row if isinstance(row, Exception) else next(rest) for row in self._rows]

    def write(self, path: Path, good: Sequence[int], new: Mapping[str, list[Any]]) -> None:
        """Writes rows with their new columns."""
        for index in good:
            _check_new(self._rows[index], new)
        added = (dict(zip(new, values, strict=True)) for values in zip(*new.values(), strict=True))
        lines = (_line({**self._rows[index], **values}) for index, values in zip(good, added, strict=True))
        path.write_text("".join(lines), encoding="utf-8")

    def described(self, index: int) -> dict[str, Any]:
        """Returns the number of a row and its content."""
        number, raw = self._lines[index]
        row = self._rows[index]
        return {"row": number, "input": raw.decode(errors="replace").strip() if isinstance(row, Exception) else row}


class _TablePart:
    """The rows of a block of Parquet, which keep their types.

    Attributes:
        columns: Columns of the texts.
    """

    suffix = ".parquet"

    def __init__(self, shard: Parquet, job: Job) -> None:
        self._table, self._start = shard.read_block(job.block), job.block.start
        _check_count(self._table.num_rows, job)
        self.columns = {name: self._table[name].to_pylist() for name in shard.columns}

    def with_unread(self, answers: Sequence[Any]) -> list[Any]:
        """Returns the answers."""
        return list(answers)

    def write(self, path: Path, good: Sequence[int], new: Mapping[str, list[Any]]) -> None:
        """Writes rows with their new columns; lists of objects, which may be empty, are JSON."""
        arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        _check_new(self._table.column_names, new)
        table = self._table.take(good)
        for name, values in new.items():
            is_json = any(isinstance(each, list) and (not each or isinstance(each[0], Mapping)) for each in values)
            column = [_line(each).strip() for each in values] if is_json else values
            table = table.append_column(name, arrow.array(column))
        parquet.write_table(table, path)

    def described(self, index: int) -> dict[str, Any]:
        """Returns the number of a row and its texts."""
        return {"row": self._start + index + 1, "input": {name: each[index] for name, each in self.columns.items()}}


class _Journal:
    """Notes of the attempts at a block, which tell the next one whether a row ends workers.

    Attributes:
        is_careful: Whether so many attempts ended with their worker that rows are answered one by one.
        deadly: Rows that ended workers.
        is_hopeless: Whether attempts end before any row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        notes = path.read_text().split() if path.exists() else []
        self.is_careful = notes.count("start") >= _DEATHS
        pairs = list(itertools.pairwise([*notes, "start"]))
        self.is_hopeless = pairs.count(("start", "start")) >= _DEATHS_BEFORE_ROWS
        last = [note for note, after in pairs if after == "start" and note.isdigit()]
        self.deadly = {int(row) for row, count in Counter(last).items() if count >= _DEATHS_OF_ROW}
        self.note("start")

    def note(self, what: object) -> None:
        """Adds a note, which outlives the process."""
        with self.path.open("a") as file:
            file.write(f"{what}\n")


def _input_files(path: Path) -> dict[str, Path]:
    """Returns the files of the input, by their names within it, in order."""
    if path.is_file():
        return {path.name: path}
    if not path.is_dir():
        raise InputError(f"A file or folder of JSON lines or Parquet was expected. Received: {path}")
    found = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name.endswith(_SUFFIXES)]
    names = {each.relative_to(path).as_posix(): each for each in found}
    names = {name: each for name, each in names.items() if not any(part[0] in "._" for part in name.split("/"))}
    if not names:
        raise InputError(f"Files that end in .jsonl, .jsonl.gz or .parquet were expected. Received: {path}")
    return names


def _check_columns(shard: Shard, columns: Sequence[str]) -> None:
    """Checks that a file has the columns; of lines, one of the first."""
    if isinstance(shard, Parquet):
        names = shard.names()
    else:
        names = []
        for number, raw in itertools.islice(shard.read(0), _LOOKED_AT):
            try:
                names += [name for name in shard.parse(raw, number) if name not in names]
            except InputError:
                continue  # a row that is kept aside
        if not names:
            return
    missing = [name for name in columns if name not in names]
    if missing:
        raise InputError(
            f"Each file needs the columns {', '.join(columns)}. Received: {', '.join(names)}, without "
            f"{', '.join(missing)}, in {shard.path}. Name them with columns=…, or --column"
        )


def _check_new(names: Iterable[str], new: Mapping[str, Any]) -> None:
    if same := sorted(set(names) & set(new)):
        raise InputError(
            f"New columns need other names than those of the input. Received: {', '.join(same)} in both. Pass prefix=…"
        )


def _check_count(count: int, job: Job) -> None:
    if count != job.block.count:
        raise InputError(
            f"The input must not change during a run. Expected: {job.block.count} rows after row {job.block.start}. "
            f"Received: {count} in {job.path}"
        )


def _record(model: ColumnModel, files: Mapping[str, Path], size: int) -> dict[str, Any]:
    """Returns what makes a run the same, in the form in which JSON has it."""
    record = {
        "source": source_digest(model.source),
        "task": model.task,
        "columns": model.columns,
        "prefix": model.prefix,
        "settings": model.settings,
        "block_rows": size,
        "files": {name: path.stat().st_size for name, path in files.items()},
    }
    result: dict[str, Any] = json.loads(json.dumps(record, default=str))
    return result


def source_digest(source: str) -> str:
    """Returns a digest: of a bundle's manifest, or of a checkpoint's settings and the sizes of its files."""
    folder = sources.resolve(source)
    paths = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    if not folder.is_file() and sources.kind(folder) == "bundle":
        paths = [folder / "kerasformer.json"]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes() if path.suffix == ".json" else b"")
    return digest.hexdigest()


def _open_folder(folder: Path, record: dict[str, Any]) -> None:
    """Makes an output folder, or checks that it is that of the same run."""
    path = folder / "_run" / "run.json"
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(each.name != "_run" for each in folder.iterdir())):
            raise InputError(
                "The output must be a new or empty folder, or that of an earlier batch. Received: "
                f"{folder}, which has other files. Choose another one"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, lambda each: write_json(each, record))
        return
    try:
        earlier = read_json(path)
    except SourceError as error:
        raise InputError(f"The record of an earlier run cannot be read: {error}. Choose another output") from error
    for name in record:
        if earlier.get(name) != record[name]:
            raise InputError(
                f"The output folder is that of another run, with another value of {name}. Expected: "
                f"{_short(earlier.get(name))}. Received: {_short(record[name])} for {folder}. Choose another folder, "
                "or remove this one"
            )
    for attempts in path.parent.glob("*.attempts"):  # whoever stopped the run does not blame its rows
        attempts.unlink()


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _join_errors(writer: BlockWriter, jobs: Sequence[Job]) -> Path | None:
    """Writes the rows that failed into one file."""
    parts = [path for job in jobs if (path := writer.errors(job)).exists()]
    if not parts:
        return None
    target = writer.folder / "_run" / "errors.jsonl"
    _write_lines(target, itertools.chain.from_iterable(map(_lines_of, parts)))
    return target


def _lines_of(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)

    _replace(path, write)


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file under another name, and renames it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _line(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, default=_json) + "\n"


def _json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Answers the rows of files on Ray, as the arguments of the command line say, and prints the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m kerasformer.integrations.batch",
        description="Runs a model on files of rows that are larger than memory, on several processes or a cluster. The "
        "same command continues a run that was stopped. Needs the extra ray.",
    )
    parser.add_argument("source", help="Bundle, checkpoint folder, GGUF file, preset or hub id.")
    parser.add_argument("input", help="File or folder of JSON lines, also compressed as .gz, or Parquet.")
    parser.add_argument("output", help="Folder of the results; that of a run that was stopped continues.")
    parser.add_argument("--task", help="Hugging Face task name; the task of the model by default.")
    column = "Column of the texts [text]; repeated for the second text of pairs and contexts."
    parser.add_argument("--column", action="append", help=column)
    parser.add_argument("--prefix", default="result", help="Prefix of the names of new columns [result].")
    parser.add_argument("--workers", type=int, default=1, help="Processes, each of which opens the model [1].")
    parser.add_argument("--address", help="Address of a cluster of Ray, such as auto; by default, Ray is started here.")
    rows = "Rows of a block, which is done again if its worker is killed [1000]."
    parser.add_argument("--block-rows", type=int, default=1000, help=rows)
    parser.add_argument("--num-threads", type=int, help="CPU threads of a worker; the runtime's default otherwise.")
    parser.add_argument("--max-new-tokens", type=int, help="Maximum number of new tokens.")
    setting = "Another argument of the pipeline or of its call as name=value, with the value as JSON. May be repeated."
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=setting)
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args(arguments)
    telemetry.switch_off()
    try:
        _run(options)
    except KerasformerError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def _run(options: argparse.Namespace) -> None:
    from kerasformer.integrations.ray import on_ray

    named = {name: getattr(options, name) for name in ("num_threads", "max_new_tokens")}
    settings = {name: value for name, value in named.items() if value is not None} | dict(map(setting_of, options.set))
    model = ColumnModel(options.source, options.task, columns=options.column, prefix=options.prefix, **settings)
    runner = on_ray(options.workers, options.address)

    def progress(stage: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{stage} ", end="" if done < total else "\n", file=sys.stderr, flush=True)

    # Ray prints notices, such as that of a killed worker, where the command prints its report.
    with redirect_stdout(sys.stderr):
        report = batch(model, options.input, options.output, runner, block_rows=options.block_rows, progress=progress)
    figures = {
        **asdict(report.total),
        "blocks": report.blocks,
        "new_rows": report.new.rows,
        "seconds": report.seconds,
        "rows_per_second": report.new.rows / report.seconds,
        "errors": None if report.errors is None else str(report.errors),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(name.replace("_", " "), f"{value:,.1f}" if isinstance(value, float) else value, sep="\t")


if __name__ == "__main__":
    # Workers find the classes in the module of this name.
    from kerasformer.integrations.batch import main as run_program

    run_program()
