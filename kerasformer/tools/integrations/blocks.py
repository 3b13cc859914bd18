"""Blocks of rows: each is answered and written whole, so that a batch can continue."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.files.publishing import replacing
from kerasformer.files.reading import parse_json
from kerasformer.files.shards import Block, JsonLines, Parquet, open_shard
from kerasformer.tools.integrations.columns import ColumnModel, shown_error

_DEATHS = 3
"""Attempts that ended with their worker, after which the rows of a block are answered one by one."""
_DEATHS_OF_ROW = 2
"""Workers that one row must end to be kept aside."""
_DEATHS_BEFORE_ROWS = 30
"""Attempts that ended before the first row of a block, such as while the model was opened, after which the run ends."""


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
        write_lines(self._path(job, ".jsonl"), map(_line, [asdict(figures), *errors]))
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


Runner = Callable[[BlockWriter, Sequence[Job]], Iterator[Figures]]
"""Calls a copy of the writer for each job, in any order, and yields the figures of those that are finished."""


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
            write_lines(path, map(_line, rows))
            return
        arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        table = self._table.take(good)
        for name, values in new.items():
            is_json = any(isinstance(each, list) and (not each or isinstance(each[0], Mapping)) for each in values)
            table = table.append_column(
                name, arrow.array([_line(each).strip() for each in values] if is_json else values)
            )
        with replacing(path) as temporary:
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


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a file under another name, then renames it."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)


def _line(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, default=_json) + "\n"


def _json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
