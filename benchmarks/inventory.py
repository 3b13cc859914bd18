"""What a bundle is made of: figures that a file says by itself, which another machine would find the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MANIFEST = "kerasformer.json"
WEIGHTS = (".tflite", ".onnx", ".data", ".onnx_data")
"""Ends of the names of files whose size counts."""
GROWTH = 0.001
"""Share by which a file may grow."""
ROUNDING = 1e-5
"""An error may grow by this share of the largest logit: sums of float32 depend on the order of the operators."""
FIDELITY = {"agreement": "more", "generated": "more", "perplexity": "error", "divergence": "error"}
FIDELITY |= {"max_error": "error", "mean_error": "error"}

Figures = dict[str, tuple[str, Any]]
"""By its name, how a figure is judged (the rule of `verdict`) and its value."""


class Finding(NamedTuple):
    """A figure of a bundle before and after; `verdict` is same, better, worse, or new."""

    where: str
    what: str
    before: str
    after: str
    verdict: str


def inventory(folder: Path) -> Figures:
    """All that is known of a bundle without running it."""
    manifest = json.loads((folder / MANIFEST).read_text())
    figures: Figures = {}
    for name, signature in manifest["signatures"].items():
        figures[f"tensors of {name}"] = ("fixed", json.dumps(signature, sort_keys=True))
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        figures[f"file {name}"] = ("bytes", path.stat().st_size) if name.endswith(WEIGHTS) else ("fixed", "there")
        read = {".tflite": _tflite, ".onnx": _onnx}.get(path.suffix, lambda _: ())
        for operator, count in sorted(Counter(read(path)).items()):
            figures[f"operators: {name} {operator}"] = ("operators", count)
    scale = manifest["fidelity"].get("scale") or 1.0
    for name, rule in FIDELITY.items():
        value = manifest["fidelity"].get(name)
        figures[f"fidelity: {name}"] = (rule, value / scale if value is not None and name.endswith("_error") else value)
    with np.load(folder / "references.npz") as answers:
        for name in (name for name in answers.files if name.startswith("output.") and answers[name].dtype.kind == "f"):
            told = answers[name][np.isfinite(answers[name])]  # NaN: nobody asks for the answer at padding
            size = np.sqrt(np.mean(np.square(told, dtype="float64")))
            figures[f"root mean square of Keras' {name.removeprefix('output.')}"] = ("fixed", float(size))
    return figures


def _tflite(path: Path) -> Iterator[str]:
    """Every operator, after the signature of its subgraph or, without one, the subgraph's name."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    known = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    codes = [code.customCode.decode() if code.customCode else known[code.builtinCode] for code in model.operatorCodes]
    signed = {signature.subgraphIndex: signature.signatureKey.decode() for signature in model.signatureDefs}
    for index, graph in enumerate(model.subgraphs):
        for operator in graph.operators or []:
            yield f"{signed.get(index) or graph.name.decode()} {codes[operator.opcodeIndex]}"


def _onnx(path: Path) -> Iterator[str]:
    """Every node, those of inner graphs included."""
    import onnx

    graphs = [onnx.load(path, load_external_data=False).graph]
    for graph in graphs:
        for node in graph.node:
            yield f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else attribute.graphs


def compared(where: str, before: Figures, after: Figures) -> Iterator[Finding]:
    """All figures that either of two inventories has; a bundle that is not there has none."""
    if not before or not after:
        before, after = ({"bundle": ("fixed", "there")} if figures else {} for figures in (before, after))
    for what in before | after:
        rule = (before.get(what) or after[what])[0]
        old, new = (figures[what][1] if what in figures else None for figures in (before, after))
        yield Finding(where, what, _text(old), _text(new), verdict(rule, old, new))


def verdict(rule: str, old: Any, new: Any) -> str:
    """`same`, `better`, `worse`, or `new`: there was none before.

    Args:
        rule: `operators`: the fewer, the better; `bytes`: the same with `GROWTH`; `more`: the more, the better;
            `error`: the less, the better, but for `ROUNDING` and a twentieth; `fixed`: equal, numbers to 1e-4.
        old: Before; `None` if there was none.
        new: After.
    """
    if rule == "operators":
        old, new = old or 0, new or 0
    if old == new:
        return "same"
    if old is None or new is None:
        return "worse" if new is None else "new"
    if rule == "fixed":
        close = isinstance(old, float) and isinstance(new, float) and abs(new - old) <= 1e-4 * abs(old)
        return "same" if close else "worse"
    slack = {"bytes": GROWTH * old, "error": ROUNDING + 0.05 * old}.get(rule, 0)
    if abs(new - old) <= slack:
        return "same"
    return "better" if (new > old) == (rule == "more") else "worse"


def _text(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)
    return text if len(text) < 40 else f"{text[:36]}…"
