"""The figures as Markdown."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from benchmarks.candidates import TITLES
from benchmarks.shapes import SHAPES, Case

_PACKAGES = (
    "kerasformer",
    "keras",
    "tensorflow",
    "keras-hub",
    "transformers",
    "torch",
    "ai-edge-litert",
    "onnxruntime",
)


def machine(threads: int) -> dict[str, Any]:
    """What it was measured on."""
    model = platform.processor()
    if (info := Path("/proc/cpuinfo")).exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"cpu": model, "threads": threads, "system": platform.platform(), "versions": versions}


def markdown(results: dict[str, Any]) -> str:
    """All tables of a run."""
    host = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
    parts = [f"{host['cpu']}, {host['threads']} threads, {host['system']}; {versions}; {results['rounds']} rounds.\n"]
    for name, shape in results["shapes"].items():
        for index, case in enumerate(SHAPES[name].cases):
            parts += [f"### {SHAPES[name].title}, {case}\n", _answers(shape["candidates"], index, case)]
        if shape["exports"]:
            parts += [f"### {SHAPES[name].title}, export\n", _exports(shape["exports"])]
    return "\n".join(parts)


def _answers(candidates: dict[str, Any], index: int, case: Case) -> str:
    rows = []
    base = candidates.get("transformers")
    for name, result in candidates.items():
        times = result["cases"][index]
        row = [TITLES[name]]
        if case.write:
            row += [f"{case.write / times[key]:.1f}" for key in ("min_s", "median_s")]
        row += [f"{1000 * times[key]:.0f}" for key in ("min_s", "median_s")]
        # Of the best times, too: on a busy machine PyTorch's threads wait for each other, and its median says little.
        row += [f"{base['cases'][index][key] / times[key]:.2f}" if base else "–" for key in ("min_s", "median_s")]
        row += [f"{result['load_s']:.1f}", f"{result['first_s'][index]:.1f}"]
        row += [f"{result['peak_mb']:.0f}", f"{result['size_mb']:.0f}"]
        rows.append(row)
    speed = ["tokens/s, best", "median"] if case.write else []
    head = [
        "",
        *speed,
        "ms, best",
        "median",
        "× transformers, best",
        "median",
        "load s",
        "first answer s",
        "peak MB",
        "file MB",
    ]
    return _table(head, rows)


def _exports(exports: dict[str, Any]) -> str:
    rows = []
    for name, figures in exports.items():
        stages = [f"{s} {of['seconds']:.0f} s, {of['peak_mb']:.0f} MB" for s, of in figures["stages"].items()]
        total = [f"{figures['seconds']:.0f}", f"{figures['peak_mb']:.0f}"]
        rows.append([TITLES[name].removeprefix("kerasformer "), *total, "; ".join(stages)])
    return _table(["", "s, after loading", "peak MB", "by stage"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
