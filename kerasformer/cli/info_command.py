"""`kerasformer info`: a checkpoint or bundle, the parts of a model, what several models cost, or the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kerasformer.cli.console import Json, Task, preset_names, print_json, say, table
from kerasformer.errors import InputError, MissingExtraError
from kerasformer.extras import require

_COSTS = {
    "parameters": ("parameters (M)", 1e6),
    "bytes": ("weights (MB)", 1e6),
    "macs_per_token": ("multiply-adds (M/token)", 1e6),
    "cache_bytes_per_token": ("cache (KB/token)", 1e3),
}
"""Heading and unit of each figure."""


def info(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Bundles, checkpoint folders, GGUF files, presets, hub ids or files config.json; without one, the "
            "cache is shown.",
            autocompletion=preset_names,
        ),
    ] = None,
    anatomy: Annotated[
        bool, typer.Option("--anatomy", help="Show the blocks with shapes, parameters and multiply-adds.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the anatomy: a drawing (.svg), the table (.txt) or all values (.json)."),
    ] = None,
    task: Task = None,
    clear_cache: Annotated[bool, typer.Option("--clear-cache", help="Remove all files of the cache.")] = False,
    as_json: Json = False,
) -> None:
    """Show a checkpoint's config or a bundle's summary, its anatomy, what several models cost, or the cache.

    No weights are loaded: bytes, multiply-adds and the cache of each token are computed from the configuration. Bundles
    opened in Python with cache_dir= store packed weights in the cache, which make later loads faster. The environment
    variable KERASFORMER_CACHE sets its folder.
    """
    sources, anatomy = sources or [], anatomy or out is not None
    counted = len(sources) > 1 or any(source.endswith(".json") for source in sources)
    if clear_cache and sources:
        raise InputError(f"--clear-cache clears the cache of all models. Received: {' '.join(sources)}. Remove it")
    if anatomy and len(sources) != 1:
        raise InputError(f"--anatomy and --out need one source. Received: {' '.join(sources) or 'none'}")
    if task is not None and not (anatomy or counted):
        raise InputError(f"--task is for --anatomy and for several sources. Received: --task {task}")
    if anatomy:
        _print_anatomy(sources[0], task, out, as_json)
    elif counted:
        _print_costs(sources, task, as_json)
    elif sources:
        _print_content(sources[0], as_json)
    else:
        _print_cache(clear_cache, as_json)


def _print_content(source: str, as_json: bool) -> None:
    from kerasformer import bundle
    from kerasformer.files import checkpoint_files
    from kerasformer.files.sources import inside, kind, read_json, resolve

    folder = resolve(source)
    if kind(folder) == "bundle":
        content, rows = asdict(bundle.read(folder)), [[*row] for row in bundle.Bundle(folder).rows()]
    else:
        with checkpoint_files(folder) as files:
            content = read_json(inside(files, "config.json"))
        rows = [[key, value if isinstance(value, str) else json.dumps(value)] for key, value in content.items()]
    if as_json:
        print_json(content)
        return
    table(str(folder), ["field", "value"], rows)


def _print_anatomy(source: str, task: str | None, out: Path | None, as_json: bool) -> None:
    from kerasformer.tools.interpretability.anatomy import anatomy, check_file

    if out is not None:
        check_file(out)
    described = anatomy(source, task)
    if out is not None:
        described.save(out)
    if as_json:
        print_json(described.to_dict())
        return
    columns = ["part", "block", "output", "parameters", "multiply-adds / token"]
    table(f"{described.name}: {described.architecture}, {described.task}", columns, described.rows())
    table("Whole model", ["figure", "value"], [list(fact) for fact in described.facts()])
    say("Multiply-adds of attention grow with the number of tokens that a token attends to.")


def _print_costs(sources: Sequence[str], task: str | None, as_json: bool) -> None:
    from kerasformer.tools.bench.report import short_names

    if len(set(sources)) < len(sources):
        raise InputError(f"Each source may be given only once. Received: {', '.join(sources)}")
    costs = [_costs_of(source, task) for source in sources]
    if as_json:
        print_json([{"name": source, **row} for source, row in zip(sources, costs, strict=True)])
        return
    paths = [Path(source) for source in sources]
    short = short_names([str(path.parent if path.name == "config.json" else path) for path in paths])
    names = [name if path.exists() else str(path) for name, path in zip(short, paths, strict=True)]
    rows = [
        [name, *(f"{row[key] / unit:,.2f}" if row[key] else "–" for key, (_, unit) in _COSTS.items())]
        for name, row in zip(names, costs, strict=True)
    ]
    table("Comparison", ["model", *(heading for heading, _ in _COSTS.values())], rows)
    say("Speed and memory: kerasformer bench. Quality on your own texts: kerasformer eval.")


def _costs_of(source: str, task: str | None) -> dict[str, Any]:
    """Returns the figures of a model; `None` for those of a bundle that need Keras, if it is not installed."""
    from kerasformer import bundle
    from kerasformer.files.sources import kind, resolve
    from kerasformer.tools.bench.own_models import size_mb

    row: dict[str, Any] = dict.fromkeys(_COSTS)
    path = Path(source)
    is_config = path.suffix == ".json" and path.is_file() or path.is_dir() and size_mb(path) == 0
    folder = None if is_config else resolve(source)
    manifest = bundle.read(folder) if folder is not None and kind(folder) == "bundle" else None
    try:
        require("keras", "tensorflow")
    except MissingExtraError:
        if manifest is None:
            raise
    else:
        from kerasformer.tools.interpretability.costs import costs

        found = costs(source, task)
        figures = (found.parameters, found.parameter_bytes, found.macs, found.cache_bytes)
        row = dict(zip(_COSTS, figures, strict=True))
    if manifest is not None and manifest.cache_dtype and row["cache_bytes_per_token"]:
        row["cache_bytes_per_token"] = row["cache_bytes_per_token"] * np.dtype(manifest.cache_dtype).itemsize // 4
    if folder is not None:
        row["bytes"] = round(1e6 * size_mb(folder))
    return row


def _print_cache(clear: bool, as_json: bool) -> None:
    from kerasformer.engines import weight_cache

    folder = weight_cache.user_folder()
    if clear:
        freed = weight_cache.trim(folder, 0)
        print_json({"folder": str(folder), "freed": freed}) if as_json else say(f"{freed:,} bytes freed")
        return
    entries = weight_cache.entries(folder)
    if as_json:
        files = [{"file": entry.path.name, "bytes": entry.size, "used": entry.used} for entry in entries]
        print_json({"folder": str(folder), "max_bytes": weight_cache.MAX_BYTES, "files": files})
        return
    rows = [[e.path.name, f"{e.size:,}", f"{datetime.fromtimestamp(e.used):%Y-%m-%d %H:%M}"] for e in entries]
    table(str(folder), ["file", "bytes", "last used"], rows)
