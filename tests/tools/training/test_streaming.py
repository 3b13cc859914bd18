"""Streams of rows beside the rows of their files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from kerasformer.errors import InputError
from kerasformer.tools.training.resume import Resume
from kerasformer.tools.training.streaming import StreamedDataset

SIZES = [7, 12, 0, 5, 9]


def write(path: Path, rows: list, broken: dict[int, bytes] | None = None) -> Path:
    lines = [json.dumps(row).encode() for row in rows]
    for index, line in (broken or {}).items():
        lines[index] = line
    content = b"\n\n".join(lines)  # blank lines do not count
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def rows_of(shard: int, size: int) -> list[dict]:
    return [{"text": f"text {shard}-{row}", "label": row, "other": None} for row in range(size)]


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet"])
def corpus(request, tmp_path):
    """Five files of 33 rows."""
    for shard, size in enumerate(SIZES):
        path = tmp_path / f"part-{shard}.{request.param}"
        if request.param != "parquet":
            write(path, rows_of(shard, size))
            continue
        schema = arrow.schema([("text", arrow.string()), ("label", arrow.int64()), ("other", arrow.null())])
        parquet.write_table(arrow.Table.from_pylist(rows_of(shard, size), schema), path, row_group_size=4)
    return str(tmp_path / f"*.{request.param}")


def stream(files, **options):
    return StreamedDataset(
        files, lambda columns: columns["text"], **{"batch_size": 4, "buffer": 7, "seed": 1, **options}
    )


def texts(data) -> list[str]:
    return [text for index in range(len(data)) for text in data[index]]


ALL = [row["text"] for shard, size in enumerate(SIZES) for row in rows_of(shard, size)]


def test_all_rows_come_once_in_each_epoch_and_in_another_order(corpus):
    data = stream(corpus)
    assert data.counts == SIZES and len(data) == 9 and data.buffer == 8
    epochs = []
    for _ in range(3):
        epochs.append(texts(data))
        data.on_epoch_end()
    assert all(Counter(epoch) == Counter(ALL) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3 and epochs[0] != ALL
    data.epoch = 1
    assert texts(data) == epochs[1]
    assert texts(stream(corpus, shuffle=False)) == ALL
    file = texts(stream(corpus.replace("*", "part-1")))
    assert file != ALL[7:19] and set(file[:8]) == set(ALL[7:15])  # shuffled in the buffer


def test_a_stream_continues_in_the_middle_and_opens_no_earlier_file(corpus):
    whole, data = stream(corpus), stream(corpus, counts=SIZES)
    batches = [whole[index] for index in range(9)]
    opened: list[str] = []
    for shard in data._shards:
        shard.read = lambda start, shard=shard, read=shard.read: opened.append(shard.path.name) or read(start)
    data.epoch, data.start = 0, 6  # the seventh batch begins with row 25 of 33
    assert [data[index] for index in range(9)] == [batches[6]] * 6 + batches[6:]
    sizes, names = np.array(SIZES)[data._order], np.array(data.files)[data._order]
    assert opened == [name for name, size, end in zip(names, sizes, sizes.cumsum(), strict=True) if end > 24 and size]
    assert len(opened) < 4


def test_batches_in_random_order_are_refused(corpus):
    data = stream(corpus)
    _ = data[0]
    with pytest.raises(InputError, match=r"filling 1 of the buffer.*a batch of 3.*Pass shuffle=False to fit"):
        _ = data[7]


_BROKEN = {
    b'{"text": "cut': "is not valid JSON: line 1",
    b'["text"]': r"must be a JSON object\. Received: b'\[\"text\"\]",
    b'{"label": 3}': "none or null for text",
    b'{"text": null}': "none or null for text",
    b'{"text": "\xff"}': "UTF-8",
}


@pytest.mark.parametrize("line", _BROKEN)
def test_a_broken_row(tmp_path, line):
    path = write(tmp_path / "a.jsonl", rows_of(0, 6), {3: line})
    with pytest.raises(InputError, match=f"{_BROKEN[line]}") as caught:
        texts(stream(path))
    assert f"{path}, line 7" in str(caught.value)
    data = stream(path, skip_bad=True)
    for _ in range(2):
        counts = Counter(texts(data))
        assert set(counts) == {row["text"] for row in rows_of(0, 6)} - {"text 0-3"} and counts.total() == 6
        data.on_epoch_end()
    assert list(data.bad_rows) == [(str(path), 7)]


def test_files_that_cannot_be_read(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", rows_of(0, 50))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot be read after line \d+.*a\.jsonl\.gz"):
        stream(path)
    write(tmp_path / "c.jsonl", rows_of(0, 2))
    with pytest.raises(InputError, match="fewer rows than counted. Expected: 3"):
        _ = stream(tmp_path / "c.jsonl", counts=[3])[0]
    data = stream(write(tmp_path / "d.jsonl", rows_of(0, 2), {0: b"?", 1: b"!"}), skip_bad=True)
    with pytest.raises(InputError, match="None of 2 rows that follow each other can be read.*line 3"):
        _ = data[0]


class Interrupt(keras.callbacks.Callback):
    """Interrupts the training after the fourth batch of the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 3):
            raise KeyboardInterrupt


def test_a_training_continues_in_a_stream(tmp_path):
    for shard in range(3):
        write(tmp_path / f"{shard}.jsonl", [{"text": "", "label": 5 * shard + row} for row in range(5)])

    def train(folder, *callbacks):
        def encode(columns):
            read.append(columns["label"])
            labels = np.array(columns["label"], "float32")
            return labels[:, None] / 15, labels

        read: list[list[int]] = []
        keras.utils.set_random_seed(0)
        data = StreamedDataset(tmp_path / "*.jsonl", encode, columns=["label"], batch_size=3, buffer=3)
        layers = [keras.layers.Dense(4, name="a"), keras.layers.Dropout(0.3), keras.layers.Dense(1, name="b")]
        model = keras.Sequential([keras.Input([1]), *layers])
        model.compile("adam", "mse", run_eagerly=True)
        resume = Resume(tmp_path / folder, every=3, dataset=data)
        try:
            history = model.fit(data, epochs=2, shuffle=False, callbacks=[*callbacks, resume], verbose=0)
        except KeyboardInterrupt:
            return None, read
        return history.history, read

    expected, read = train("whole")
    assert train("broken", Interrupt())[0] is None
    history, again = train("broken")
    assert history == expected
    assert {tuple(batch) for batch in again[-2:]} == {tuple(batch) for batch in read[-2:]}
    assert not {tuple(batch) for batch in read[-5:-2]} & {tuple(batch) for batch in again[2:]}  # after the two of Keras
