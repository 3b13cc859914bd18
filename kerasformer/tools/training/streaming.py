"""Corpora that are larger than the memory, streamed from shards of JSON lines or Parquet."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from kerasformer.basics.arguments import BOOLEAN, FUNCTION, STRING, check, integer, optional, sequence
from kerasformer.errors import InputError
from kerasformer.files.shards import Shard, open_shard, shard_paths

Columns = dict[str, list[Any]]
"""Values of a batch by the name of their column."""


class StreamedDataset(keras.utils.PyDataset):
    """Batches of the rows of many files, of which only a part is in memory.

    In each epoch, the files come in another random order. Their rows are read one after another into a buffer, and
    shuffled there. The order depends on the seed and the number of the epoch alone, so that `Resume` continues in the
    middle of an epoch and opens only the files from there on.

        data = StreamedDataset("corpus/*.jsonl.gz", encode, batch_size=64)
        model.fit(data, epochs=3, shuffle=False, callbacks=[Resume("state", every=1000, dataset=data)])

    Pass `shuffle=False` to `fit`, which would ask for the batches in random order.

    Args:
        files: Files that end in `.jsonl`, `.ndjson` or `.json`, also compressed as `.gz`, with an object in each line;
            or in `.parquet`. A list of paths, or a pattern such as `"corpus/*.parquet"`.
        encode: Function that makes a batch for `fit` of its rows: from a dictionary that has a list of `B` values for
            each column to a pair of inputs and targets.
        columns: Names of the columns that each row must have.
        batch_size: Number of rows of a batch.
        shuffle: Whether the order is random; otherwise, it is that of the files and of their rows.
        buffer: Number of rows in memory, rounded up to whole batches.
        seed: Seed of the order.
        skip_bad: Whether rows that cannot be read are replaced by others of the buffer and noted in `bad_rows`;
            otherwise they raise an error.
        counts: Number of rows of each file, as in the attribute of a data set of the same files; by default they are
            counted, for which JSON lines are read once.
        kwargs: Arguments of `keras.utils.PyDataset`. Threads are supported, processes are not.

    Attributes:
        epoch: Number of the epoch, from 0, which `fit` counts and `Resume` sets.
        start: Number of the first batch that is needed; earlier ones are not read, and are replaced by this one.
        bad_rows: Reasons why rows were skipped, by file and number of the row, from 1.
        counts: Number of rows of each file, lines of JSON without blank ones.

    Raises:
        InputError: there are no files or no rows, a file has another suffix or cannot be read, or a row is bad: the
            message names the file, the line and the reason.
        MissingExtraError: pyarrow, which reads Parquet, is not installed.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        encode: Callable[[Columns], Any],
        *,
        columns: Sequence[str] = ("text",),
        batch_size: int = 32,
        shuffle: bool = True,
        buffer: int = 10_000,
        seed: int = 0,
        skip_bad: bool = False,
        counts: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.encode = check("encode", encode, FUNCTION)
        self.columns = check("columns", columns, sequence(STRING, 1))
        self.batch_size, self.seed = check("batch_size", batch_size, integer(1)), check("seed", seed, integer(0))
        self.shuffle, self.skip_bad = check("shuffle", shuffle, BOOLEAN), check("skip_bad", skip_bad, BOOLEAN)
        self.buffer = -(-check("buffer", buffer, integer(1)) // self.batch_size) * self.batch_size
        paths = shard_paths(files)
        self.files = [path.name for path in paths]
        self._shards = [open_shard(path, self.columns) for path in paths]
        known = check("counts", counts, optional(sequence(integer(0))))
        if known is not None and len(known) != len(paths):
            raise InputError(f"counts must have a number for each of {len(paths)} files. Received: {len(known)}")
        self.counts = list(known) if known is not None else [shard.count() for shard in self._shards]
        if not sum(self.counts):
            raise InputError(f"At least one row was expected. Received: {len(paths)} empty files, such as {paths[0]}")
        self.bad_rows: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()
        self.start = self.epoch = 0

    @property
    def epoch(self) -> int:
        """Number of the epoch, which determines the order."""
        return self._epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch = number
        order = np.arange(len(self._shards))
        self._order = self._random().permutation(order) if self.shuffle else order
        self._blocks: dict[int, list[Mapping[str, Any]]] = {}
        self._reader: Iterator[tuple[Shard, int, Any]] = iter(())
        self._next = -1

    def __len__(self) -> int:
        return -(-sum(self.counts) // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        row = max(index, self.start) * self.batch_size
        with self._lock:
            block = self._block(row // self.buffer)
        rows = block[row % self.buffer :][: self.batch_size]
        return self.encode({name: [each[name] for each in rows] for name in self.columns})

    def on_epoch_end(self) -> None:
        """Goes on to the order of the next epoch."""
        self.start, self.epoch = 0, self.epoch + 1

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch, *numbers))

    def _block(self, number: int) -> list[Mapping[str, Any]]:
        """Returns the rows of a filling of the buffer, in their order; the last two fillings are kept."""
        if number not in self._blocks:
            first = self.start * self.batch_size // self.buffer
            if number not in (self._next, 0, first):
                raise InputError(
                    f"Batches of a stream are read one after another. Expected: filling {max(self._next, 0)} of the "
                    f"buffer. Received: a batch of {number}. Pass shuffle=False to fit"
                )
            if number != self._next:
                self._reader = self._rows(number * self.buffer)
            self._blocks = {kept: self._blocks[kept] for kept in list(self._blocks)[-1:]}
            self._blocks[number] = self._filling(number)
            self._next = number + 1
        return self._blocks[number]

    def _filling(self, number: int) -> list[Mapping[str, Any]]:
        """Reads and shuffles the next rows."""
        good = []
        size = min(self.buffer, sum(self.counts) - number * self.buffer)
        rows = list(itertools.islice(self._reader, size))
        if len(rows) < size:
            raise InputError(f"The files have fewer rows than counted. Expected: {sum(self.counts)}. Count them again")
        for shard, line, raw in rows:
            try:
                good.append(shard.row(raw, line))
            except InputError as error:
                if not self.skip_bad:
                    raise
                self.bad_rows[str(shard.path), line] = str(error)
        if not good:
            last = list(self.bad_rows.values())[-1]
            raise InputError(f"None of {size} rows that follow each other can be read. The last reason: {last}")
        order = np.resize(np.arange(len(good)), size)  # batches keep their size, for which Keras compiles its steps
        return [good[index] for index in (self._random(number).permutation(order) if self.shuffle else order)]

    def _rows(self, position: int) -> Iterator[tuple[Shard, int, Any]]:
        """Yields the rows of an epoch from a position on, with their shards and their numbers; opens no other shard."""
        for index in self._order:
            if position < self.counts[index]:
                shard = self._shards[index]
                count = self.counts[index] - position
                for line, raw in itertools.islice(shard.read(position), count):
                    yield shard, line, raw
            position = max(0, position - self.counts[index])
