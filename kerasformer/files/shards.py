"""Shards: files of rows, as JSON lines or Parquet, of which only a part is in memory."""

from __future__ import annotations

import glob
import gzip
import itertools
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError, SourceError
from kerasformer.extras import require
from kerasformer.files.reading import local_path, parse_json


@dataclass(frozen=True)
class Block:
    """Rows of a file that follow each other.

    Attributes:
        start: Number of rows before them.
        count: Their number.
        position: Bytes before them in a file of lines, uncompressed.
        line: Number of lines before them in such a file, with blank ones.
    """

    start: int
    count: int
    position: int = 0
    line: int = 0


class Shard(ABC):
    """A file of rows.

    Args:
        path: The file.
        columns: Names of the columns that each row must have.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, columns

    @abstractmethod
    def count(self) -> int:
        """Returns the number of rows, without parsing them."""

    @abstractmethod
    def read(self, start: int) -> Iterator[tuple[int, Any]]:
        """Yields rows as the file has them, from one on, with their numbers from 1."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """Yields the blocks of the file, of `size` rows each and the last one of fewer, without parsing them."""

    def row(self, raw: Any, line: int) -> Mapping[str, Any]:
        """Parses a row.

        Raises:
            InputError: it is no object, or lacks a column.
        """
        row = self.parse(raw, line)
        missing = [name for name in self.columns if row.get(name) is None]
        if missing:
            raise InputError(
                f"Each row needs {', '.join(self.columns)}. Received: none or null for {', '.join(missing)} in "
                f"{self.path}, line {line}"
            )
        return row

    @abstractmethod
    def parse(self, raw: Any, line: int) -> Mapping[str, Any]:
        """Converts a row of the file to a dictionary."""


class JsonLines(Shard):
    """A file with an object in each line that is not blank."""

    def count(self) -> int:
        """Returns the number of rows, without parsing them."""
        return sum(1 for _ in self._lines())

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yields lines, from one on."""
        return itertools.islice(self._lines(), start, None)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yields the blocks of the file."""
        start = count = position = line = end = 0
        for number, raw in self._lines(blank=True):
            count, end = count + bool(raw.strip()), end + len(raw)
            if count == size:
                yield Block(start, count, position, line)
                start, count, position, line = start + count, 0, end, number
        if count:
            yield Block(start, count, position, line)

    def read_block(self, block: Block) -> list[tuple[int, bytes]]:
        """Returns the rows of a block with their numbers, and reads no other line."""
        return list(itertools.islice(self._lines(block.position, block.line), block.count))

    def _lines(self, position: int = 0, number: int = 0, blank: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yields lines from a position on, with their numbers.

        Args:
            position: Number of bytes before them.
            number: Number of lines before them.
            blank: Whether to yield blank lines, too.
        """
        try:
            with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as file:
                file.seek(position)
                for number, line in enumerate(file, number + 1):  # noqa: B020 - the number is that of the last line
                    if blank or line.strip():
                        yield number, line
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"The file cannot be read after line {number}: {error}. Received: {self.path}") from error

    def parse(self, raw: bytes, line: int) -> Mapping[str, Any]:
        """Parses a line."""
        return json_row(raw, self.path, line)


def json_row(raw: str | bytes, path: Path, line: int) -> dict[str, Any]:
    """Parses a line of a file of JSON lines.

    Raises:
        InputError: it is no JSON object.
    """
    try:
        row = parse_json(raw, f"{path}, line {line},")
    except SourceError as error:
        raise InputError(f"Each line must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"Each line must be a JSON object. Received: {raw[:80]!r} in {path}, line {line}")
    return row


class Parquet(Shard):
    """A file of Parquet, of which a group of rows is in memory."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        super().__init__(path, columns)
        self._parquet = require("pyarrow.parquet", "parquet")
        self._last: tuple[int, Any] | None = None

    def _open(self) -> Any:
        arrow = require("pyarrow", "parquet")
        try:
            return self._parquet.ParquetFile(self.path)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"A file of Parquet was expected: {error}. Received: {self.path}") from error

    def count(self) -> int:
        """Returns the number of rows, without parsing them."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def read(self, start: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yields rows with the columns that each must have, from one on."""
        with self._open() as file:
            names = [name for name in self.columns if name in file.schema_arrow.names]
            before = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if before + size > start:
                    rows = file.read_row_group(group, columns=names).to_pylist()
                    for index in range(max(0, start - before), size):
                        yield before + index + 1, rows[index]
                before += size

    def blocks(self, size: int) -> Iterator[Block]:
        """Yields the blocks of the file."""
        count = self.count()
        for start in range(0, count, size):
            yield Block(start, min(size, count - start))

    def names(self) -> list[str]:
        """Returns the names of the columns that the file has."""
        with self._open() as file:
            return list(file.schema_arrow.names)

    def read_block(self, block: Block) -> Any:
        """Returns the rows of a block with all columns, as a table of Arrow."""
        with self._open() as file:
            before, parts = 0, []
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                first, last = max(block.start - before, 0), min(block.start + block.count - before, size)
                if first < last:
                    parts.append(self._group(file, group).slice(first, last - first))
                before += size
            # A file that has become shorter may have none.
            return require("pyarrow", "parquet").concat_tables(parts) if parts else file.schema_arrow.empty_table()

    def _group(self, file: Any, group: int) -> Any:
        """Returns a group of rows, and keeps it, since the next block is often in the same one."""
        if self._last is None or self._last[0] != group:
            self._last = group, file.read_row_group(group)
        return self._last[1]

    def parse(self, raw: Mapping[str, Any], line: int) -> Mapping[str, Any]:
        """Returns the row."""
        return raw


def shard_paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Returns the files of a list or a pattern.

    Raises:
        InputError: there are none.
    """
    if isinstance(files, str | os.PathLike):
        found = glob.glob(str(local_path(files, InputError)))
        if not found:
            raise InputError(f"Files, or a pattern such as 'corpus/*.jsonl', were expected. Received: {files}")
        return [Path(path) for path in sorted(found)]
    paths = [local_path(path, InputError) for path in files]
    if not paths:
        raise InputError("At least one file was expected. Received: none")
    return paths


def open_shard(path: Path, columns: Sequence[str]) -> JsonLines | Parquet:
    """Returns the shard of a file.

    Raises:
        InputError: it does not exist, or has another suffix.
        MissingExtraError: pyarrow, which reads Parquet, is not installed.
    """
    if not path.is_file():
        raise InputError(f"A file was expected. Received: {path}")
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix in (".jsonl", ".ndjson", ".json"):
        return JsonLines(path, columns)
    if path.suffix == ".parquet":
        return Parquet(path, columns)
    raise InputError(f"A file must end in .jsonl, .jsonl.gz or .parquet. Received: {path}")
