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
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kerasformer import telemetry
from kerasformer.basics.arguments import check, integer
from kerasformer.basics.progress import StageProgress
from kerasformer.errors import InputError, KerasformerError, SourceError
from kerasformer.files import sources
from kerasformer.files.reading import local_path, read_json, setting_of
from kerasformer.files.shards import JsonLines, Parquet, open_shard
from kerasformer.tools.integrations.blocks import BlockWriter, Figures, Job, Runner, write_lines
from kerasformer.tools.integrations.columns import ColumnModel

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet")
_LOOKED_AT = 100
"""Rows of a file of lines of which one must have the columns."""


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
        write_lines(errors, writer.errors(jobs))
    return BatchReport(total, len(jobs), new, time.perf_counter() - start, errors)


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
        write_lines(path, [json.dumps(record, indent=2)])
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
    main()
