"""Throughput of `kerasformer batch` beside bare workers: processes with `kerasformer.pipeline` and nothing else.

Both answer the same rows of a file of JSON lines, in turns, with as many processes; the time is from the first row to
the last one, without the start of processes and the opening of models. Each bare worker reads its own share of the
rows, which are in memory, and keeps the results there.

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kerasformer.integrations.batch import BlockWriter, Figures, Job, batch
from kerasformer.integrations.columns import ColumnModel
from kerasformer.integrations.ray import cluster, on_ray
from kerasformer.sample_texts import SAMPLE_TEXTS

BLOCK_ROWS = 250


def texts(task: str, count: int) -> list[str]:
    """Returns texts of several sentences, in a random order of which each is another one."""
    draw, sentences = random.Random(0), SAMPLE_TEXTS[task]
    return [" ".join(draw.choices(sentences, k=draw.randint(1, 3))) for _ in range(count)]


def bare(source: str, parts: Sequence[Sequence[str]]) -> float:
    """Returns the seconds in which processes answer their texts."""
    context = multiprocessing.get_context("spawn")
    ready, begin = context.Barrier(len(parts) + 1), context.Barrier(len(parts) + 1)
    processes = [context.Process(target=_answer, args=(source, part, ready, begin)) for part in parts]
    for process in processes:
        process.start()
    ready.wait()
    begin.wait()
    start = time.perf_counter()
    for process in processes:
        process.join()
    return time.perf_counter() - start


def _answer(source: str, part: Sequence[str], ready: Any, begin: Any) -> None:
    from kerasformer.pipelines import pipeline

    pipe = pipeline(source, num_threads=1)
    pipe(list(part[:10]))
    ready.wait()
    begin.wait()
    for first in range(0, len(part), BLOCK_ROWS):
        pipe(list(part[first : first + BLOCK_ROWS]))


def on_blocks(source: str, file: Path, workers: int) -> float:
    """Returns the seconds in which `kerasformer batch` answers the rows of a file, from when its workers are open."""
    model = ColumnModel(source, num_threads=1)
    with tempfile.TemporaryDirectory() as folder:
        seconds: list[float] = []

        def run(writer: BlockWriter, jobs: Sequence[Job]) -> Iterator[Figures]:
            # The first blocks, one for each worker, open the model.
            answered = on_ray(workers)(writer, jobs)
            for _ in range(workers):
                yield next(answered)
            start = time.perf_counter()
            yield from answered
            seconds.append((time.perf_counter() - start) * len(jobs) / (len(jobs) - workers))

        batch(model, file, Path(folder) / "out", run, block_rows=BLOCK_ROWS)
        return seconds[0]


def main() -> None:
    """Prints the rows per second of both, by the number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="Bundle for text-classification.")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    content = texts("text-classification", options.rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        rows = [{"id": number, "text": text} for number, text in enumerate(content)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print("workers\tbare min\tbare median\tbatch min\tbatch median\tratio of medians")
        for workers in options.workers:
            times: dict[str, list[float]] = {"bare": [], "batch": []}
            for _ in range(options.rounds):
                times["bare"].append(bare(options.source, [content[n::workers] for n in range(workers)]))
                with cluster(None, workers):
                    times["batch"].append(on_blocks(options.source, file, workers))
            rates = {name: [options.rows / each for each in seconds] for name, seconds in times.items()}
            cells = [f"{figure(rates[name]):.0f}" for name in rates for figure in (min, statistics.median)]
            ratio = statistics.median(times["bare"]) / statistics.median(times["batch"])
            print(workers, *cells, f"{ratio:.3f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
