"""Batches over files larger than memory: blocks of rows, each answered and written whole, so that a run can continue.

An output folder has a file for each block of the input, `part-000000.parquet` and so on, in the order of the input. The
folder `_run` in it has the record of the run; for each finished block, its figures and the rows that failed, written
last; and at the end all rows that failed, in `errors.jsonl`. Whatever is not finished is done again, under another name
and then renamed, so that a process may be killed at any time.

    python -m kerasformer.tools.integrations.batch out reviews.jsonl classified --workers 4

Ray runs the workers and starts them again. Readers, writers and checkpoints of Ray Data 2.60 are not used. Checkpoints
need ids, which only its reader of Parquet makes and which stay in the output. Files are named by chance, not in the
order of the input. A broken line loses its file, `write_json` adds keys of other rows as `null`, and a row that kills
its worker is tried for ever.
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
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from kerasformer import telemetry
from kerasformer.basics.arguments import check, integer
from kerasformer.basics.progress import StageProgress
from kerasformer.errors import InputError, KerasformerError, SourceError
from kerasformer.extras import require
from kerasformer.files import sources
from kerasformer.files.reading import local_path, parse_json, read_json, setting_of
from kerasformer.files.shards import Block, JsonLines, Parquet, open_shard
from kerasformer.tools.integrations.columns import ColumnModel, shown_error

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
        name: Name of its file within the input.
        path: The file.
        block: Rows of the file.
    """

    number: int
    name: str
    path: Path
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
        return Figures(*(round(a + b, 3) for a, b in zip(astuple(self), astuple(other), strict=True)))


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
        run: What calls the workers, such as `kerasformer.tools.integrations.ray.on_ray`.
        block_rows: Number of rows of a block, which a worker has in memory, and does again if it is killed.
        progress: Called with the number of finished rows.
    Raises:
        InputError: there are no rows, a file lacks the columns or cannot be read, or the output folder has other files
            or the results of another run: the message names what differs.
    """
    size = check("block_rows", block_rows, integer(1))
    shards = {name: _shard(path, model.columns) for name, path in _files(local_path(inputs, InputError)).items()}
    folder = local_path(output, InputError)
    _open_folder(folder, _record(model, {name: shard.path for name, shard in shards.items()}, size))
    blocks = ((name, shard.path, block) for name, shard in shards.items() for block in shard.blocks(size))
    jobs = [Job(number, *block) for number, block in enumerate(blocks)]
    if not jobs:
        raise InputError(f"At least one row was expected. Received: {len(shards)} empty files in {inputs}")
    start, rows = time.perf_counter(), sum(job.block.count for job in jobs)
    writer, new = BlockWriter(model, folder), Figures()
    finished = {job: figures for job in jobs if (figures := writer.finished(job)) is not None}
    before = total = sum(finished.values(), Figures())
    left = [job for job in jobs if job not in finished]
    progress("batch", total.rows, rows)
    for figures in run(writer, left) if left else ():
        new += figures
        total = before + new
        failed = f", {total.failed:,} failed" if total.failed else ""
        rate = new.rows / (time.perf_counter() - start)
        progress(f"{total.rows:,} of {rows:,} rows{failed}, {rate:,.1f}/s", total.rows, rows)
    for unfinished in (*folder.glob(".part-*"), *(folder / "_run").glob(".*.*")):  # of workers that were killed
        unfinished.unlink()
    errors = folder / "_run" / "errors.jsonl" if total.failed else None
    if errors is not None:
        _write(errors, writer.errors(jobs))
    return BatchReport(total, len(jobs), new, time.perf_counter() - start, errors)


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
        if not (path := self._path(job, ".jsonl")).exists():
            return None
        with path.open(encoding="utf-8") as file:
            return Figures(**parse_json(next(file), str(path)))

    def errors(self, jobs: Sequence[Job]) -> Iterator[str]:
        """Yields lines with the rows that failed in finished blocks."""
        for job in jobs:
            with self._path(job, ".jsonl").open(encoding="utf-8") as file:
                yield from itertools.islice(file, 1, None)

    def write(self, job: Job) -> Figures:
        """Answers a block and writes its results.

        Raises:
            InputError: the file has changed, a new column has the name of another one, or workers end before a row.
            OSError: the results cannot be written.
        """
        start = time.process_time()
        if self._shard is None or self._shard.path != job.path:
            self._shard = open_shard(job.path, self.model.columns)
        rows, journal = _Rows(self._shard, job), _Journal(self._path(job, ".attempts"))
        careful = journal.is_careful
        answers = self._careful_answers(rows.columns, journal) if careful else self.model.results(rows.columns)
        rest = iter(answers)
        results = [row if isinstance(row, Exception) else next(rest) for row in rows.rows]
        failed = {index: result for index, result in enumerate(results) if isinstance(result, Exception)}
        part = self.folder / f"part-{job.number:06}{rows.suffix}"
        if good := [index for index in range(len(results)) if index not in failed]:
            rows.write(part, good, self.model.new_columns([results[index] for index in good]))
        else:  # an earlier attempt may have had others
            part.unlink(missing_ok=True)
        errors = [{"file": job.name, **rows.named(index), "error": shown_error(failed[index])} for index in failed]
        tokens, seconds = self._tokens(rows.columns, answers), round(time.process_time() - start, 3)
        figures = Figures(len(results), len(failed), tokens, seconds)
        _write(self._path(job, ".jsonl"), map(_line, [asdict(figures), *errors]))
        journal.path.unlink(missing_ok=True)
        return figures

    def _path(self, job: Job, suffix: str) -> Path:
        return self.folder / "_run" / f"{job.number:06}{suffix}"

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
        good = [not isinstance(result, Exception) for result in results]
        values = (value for column in columns.values() for value in itertools.compress(column, good))
        texts = [value for value in values if isinstance(value, str)]
        return int(self.model.open().tokenizer(texts, truncation=False).attention_mask.sum()) if texts else 0


class _Rows:
    """The rows of a block; those of Parquet as a table, which keeps their types.

    Attributes:
        rows: The rows, of Parquet with the columns of the texts alone; the error of a line that cannot be read.
        columns: Columns of the texts, of the rows that can be read.
        suffix: Suffix of the file of the results.
    """

    def __init__(self, shard: JsonLines | Parquet, job: Job) -> None:
        self._table: Any = None
        self.rows: list[Any]
        if isinstance(shard, Parquet):
            self.suffix, self._table = ".parquet", shard.read_block(job.block)
            self.rows = self._table.select(shard.columns).to_pylist()
            self._raw: list[tuple[int, Any]] = list(enumerate(self.rows, job.block.start + 1))
        else:
            self.suffix, self._raw = ".jsonl", list(shard.read_block(job.block))
            self.rows = [_read(shard, number, raw) for number, raw in self._raw]
        if len(self.rows) != job.block.count:
            raise InputError(
                f"The input must not change during a run. Expected: {job.block.count} rows after row "
                f"{job.block.start}. Received: {len(self.rows)} in {job.path}"
            )
        read = [row for row in self.rows if not isinstance(row, Exception)]
        self.columns = {name: [row[name] for row in read] for name in shard.columns}

    def named(self, index: int) -> dict[str, Any]:
        """Returns the number of a row in its file, and its content."""
        (number, raw), row = self._raw[index], self.rows[index]
        return {"row": number, "input": raw.decode(errors="replace").strip() if isinstance(row, Exception) else row}

    def write(self, path: Path, good: Sequence[int], new: Mapping[str, list[Any]]) -> None:
        """Writes some of the rows with their new columns; lists of objects, which may be empty, are JSON in Parquet."""
        chosen = [self.rows[index] for index in good]
        names = set().union(*chosen) if self._table is None else set(self._table.column_names)
        if same := sorted(names & set(new)):
            raise InputError(
                f"New columns need other names than those of the input. Received: {', '.join(same)} in both. Pass "
                "prefix=…"
            )
        if self._table is None:
            added = zip(*new.values(), strict=True)
            rows = ({**row, **dict(zip(new, values, strict=True))} for row, values in zip(chosen, added, strict=True))
            _write(path, map(_line, rows))
            return
        arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        table = self._table.take(good)
        for name, values in new.items():
            is_json = any(isinstance(each, list) and (not each or isinstance(each[0], Mapping)) for each in values)
            table = table.append_column(
                name, arrow.array([_line(each).strip() for each in values] if is_json else values)
            )
        with _replaced(path) as temporary:
            parquet.write_table(table, temporary)


def _read(shard: JsonLines, number: int, line: bytes) -> Mapping[str, Any] | InputError:
    try:
        return shard.row(line, number)
    except InputError as error:
        return error


class _Journal:
    """Notes of the attempts at a block, which tell the next one whether a row ends workers.

    Attributes:
        is_careful: Whether so many attempts ended with their worker that rows are answered one by one.
        deadly: Rows that ended workers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        notes = path.read_text().split() if path.exists() else []
        self.is_careful = notes.count("start") >= _DEATHS
        pairs = list(itertools.pairwise([*notes, "start"]))
        if pairs.count(("start", "start")) >= _DEATHS_BEFORE_ROWS:
            raise InputError(
                f"The worker process ended {_DEATHS_BEFORE_ROWS} times before the first row of a block. Expected: "
                "enough memory for the model and a block of rows. Finished blocks are kept: run it again to continue"
            )
        last = Counter(note for note, after in pairs if after == "start" and note.isdigit())
        self.deadly = {int(row) for row, count in last.items() if count >= _DEATHS_OF_ROW}
        self.note("start")

    def note(self, what: object) -> None:
        """Adds a note, which outlives the process."""
        with self.path.open("a") as file:
            file.write(f"{what}\n")


def _files(path: Path) -> dict[str, Path]:
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


def _shard(path: Path, columns: Sequence[str]) -> JsonLines | Parquet:
    """Opens a file and checks that it has the columns; of lines, one of the first."""
    shard, names = open_shard(path, columns), list[str]()
    if isinstance(shard, Parquet):
        names = shard.names()
    else:
        for number, raw in itertools.islice(shard.read(0), _LOOKED_AT):
            with suppress(InputError):  # a row that is kept aside
                names += [name for name in shard.parse(raw, number) if name not in names]
    missing = [name for name in columns if name not in names]
    if names and missing:
        raise InputError(
            f"Each file needs the columns {', '.join(columns)}. Received: {', '.join(names)}, without "
            f"{', '.join(missing)}, in {path}. Name them with columns=…, or --column"
        )
    return shard


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
        _write(path, [json.dumps(record, indent=2)])
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


def _write(path: Path, lines: Iterable[str]) -> None:
    with _replaced(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Context with another name for a file, which is renamed at its end."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
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
        prog="python -m kerasformer.tools.integrations.batch",
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
    from kerasformer.tools.integrations.ray import on_ray

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
    from kerasformer.tools.integrations.batch import main as run_program

    run_program()
