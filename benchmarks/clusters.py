"""Throughput of `kerasformer.integrations.batch` beside bare workers: processes with `kerasformer.pipeline` and nothing else.

Both answer the same rows, in turns, with as many processes of one thread each; the time is from the start of the
processes to the last row. Each bare worker has its share of the rows in memory, and forgets the results;
`batch` reads lines of JSON and writes them, on a Ray that was started before.

    python -m benchmarks.clusters out --rows 4000 --rounds 3 --workers 1 2
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kerasformer.integrations.batch import batch
from kerasformer.integrations.columns import ColumnModel
from kerasformer.integrations.ray import cluster, on_ray
from kerasformer.sample_texts import examples

BLOCK_ROWS = 250
"""Rows of a block, and of a call of a bare worker."""


def texts(count: int) -> list[str]:
    """Returns texts of one to three sentences in a random order."""
    draw, sentences = random.Random(0), [each["text"] for each in examples("text-classification")["inputs"]]
    return [" ".join(draw.choices(sentences, k=draw.randint(1, 3))) for _ in range(count)]


def bare(source: str, parts: Sequence[Sequence[str]]) -> float:
    """Returns the seconds in which processes answer their texts."""
    context, start = multiprocessing.get_context("spawn"), time.perf_counter()
    processes = [context.Process(target=_answer, args=(source, part)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - start
    if any(process.exitcode for process in processes):
        raise RuntimeError("a bare worker failed; its error is printed above")
    return seconds


def _answer(source: str, part: Sequence[str]) -> None:
    from kerasformer.pipelines import pipeline

    pipe = pipeline(source, num_threads=1)
    for first in range(0, len(part), BLOCK_ROWS):
        pipe(list(part[first : first + BLOCK_ROWS]))


def in_blocks(source: str, file: Path, workers: int) -> float:
    """Returns the seconds in which `batch` answers the rows of a file."""
    with tempfile.TemporaryDirectory() as folder, cluster(None, workers):
        output = Path(folder) / "out"
        return batch(ColumnModel(source, num_threads=1), file, output, on_ray(workers), block_rows=BLOCK_ROWS).seconds


def main() -> None:
    """Prints the rows per second of both, by the number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="Bundle for text-classification.")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    content = texts(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        rows = [{"id": number, "text": text} for number, text in enumerate(content)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print("workers\tbare min\tbare median\tbatch min\tbatch median\tratio of medians")
        for workers in options.workers:
            times: dict[str, list[float]] = {"bare": [], "batch": []}
            for _ in range(options.rounds):
                times["bare"].append(bare(options.source, [content[n::workers] for n in range(workers)]))
                times["batch"].append(in_blocks(options.source, file, workers))
            rates = {name: [options.rows / each for each in seconds] for name, seconds in times.items()}
            cells = [f"{figure(rates[name]):.0f}" for name in rates for figure in (min, statistics.median)]
            ratio = statistics.median(times["bare"]) / statistics.median(times["batch"])
            print(workers, *cells, f"{ratio:.3f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
