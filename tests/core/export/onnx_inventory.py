"""Operators of one layer in an ONNX file: those that a third layer adds to two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.core.export.onnx_bundles import load, tiny, write


def per_layer(
    folder: Path,
    model_type: str,
    task: str | None = None,
    quantize: str = "none",
    profile: str = "ort",
    **settings: Any,
) -> dict[str, dict[str, int]]:
    """Counts of operators by file; `settings` are those of the model."""
    counts = []
    for num_layers in (2, 3):
        model = tiny(model_type, task, num_layers=num_layers, **settings)
        write(folder / str(num_layers), model, quantize, profile)
        files = sorted(path.stem for path in (folder / str(num_layers) / "onnx").glob("*.onnx"))
        counts.append({name: operators(folder / str(num_layers), name) for name in files})
    two, three = counts
    return {name: dict(sorted((three[name] - two[name]).items())) for name in two}


def operators(folder: Path, name: str = "model") -> Counter[str]:
    """Nodes of a file, by operator."""
    return Counter(node.op_type for node in load(folder, name).graph.node)
