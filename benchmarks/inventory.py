"""Machine-independent figures of a bundle, read from its files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MANIFEST = "kerasformer.json"
WEIGHTS = (".tflite", ".onnx", ".data", ".onnx_data")
"""Suffixes of the files whose size is compared."""
GROWTH = 0.001
"""Allowed relative growth of a file."""
ROUNDING = 1e-5
"""Allowed growth of an error relative to the largest logit, because float32 sums depend on the order of operators."""
FIDELITY = {"agreement": "more", "generated": "more", "perplexity": "error", "divergence": "error"}
FIDELITY |= {"max_error": "error", "mean_error": "error"}

Figures = dict[str, tuple[str, Any]]
"""Rule of `verdict` and value of each figure, by name."""


class Finding(NamedTuple):
    """A figure of a bundle before and after a change; `verdict` is same, better, worse or new."""

    where: str
    what: str
    before: str
    after: str
    verdict: str


def inventory(folder: Path) -> Figures:
    """Returns all figures of a bundle that are known without running it."""
    manifest = json.loads((folder / MANIFEST).read_text())
    figures: Figures = {}
    for name, signature in manifest["signatures"].items():
        figures[f"tensors of {name}"] = ("fixed", json.dumps(_interface(signature), sort_keys=True))
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        figures[f"file {name}"] = ("bytes", path.stat().st_size) if name.endswith(WEIGHTS) else ("fixed", "there")
        operators = {".tflite": _tflite, ".onnx": _onnx}.get(path.suffix, lambda _: ())
        for operator, count in sorted(Counter(operators(path)).items()):
            figures[f"operators: {name} {operator}"] = ("operators", count)
    scale = manifest["fidelity"].get("scale") or 1.0
    for name, rule in FIDELITY.items():
        value = manifest["fidelity"].get(name)
        figures[f"fidelity: {name}"] = (rule, value / scale if value is not None and name.endswith("_error") else value)
    with np.load(folder / "references.npz") as answers:
        for name in (name for name in answers.files if name.startswith("output.") and answers[name].dtype.kind == "f"):
            values = answers[name][np.isfinite(answers[name])]  # outputs at padding are NaN
            size = np.sqrt(np.mean(np.square(values, dtype="float64")))
            figures[f"root mean square of Keras' {name.removeprefix('output.')}"] = ("fixed", float(size))
    return figures


def _interface(signature: dict[str, Any]) -> dict[str, Any]:
    """Returns the file, names, shapes and dtypes, which the manifests of all versions contain."""
    tensors = {
        part: {name: {key: info[key] for key in ("dtype", "shape")} for name, info in signature[part].items()}
        for part in ("inputs", "outputs")
    }
    return {"file": signature["file"], **tensors}


def _tflite(path: Path) -> Iterator[str]:
    """Yields each operator, preceded by the signature of its subgraph or, without one, the name of the subgraph."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    known = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    codes = [code.customCode.decode() if code.customCode else known[code.builtinCode] for code in model.operatorCodes]
    signed = {signature.subgraphIndex: signature.signatureKey.decode() for signature in model.signatureDefs}
    for index, graph in enumerate(model.subgraphs):
        for operator in graph.operators or []:
            yield f"{signed.get(index) or graph.name.decode()} {codes[operator.opcodeIndex]}"


def _onnx(path: Path) -> Iterator[str]:
    """Yields the operator of each node, including nodes of nested graphs."""
    import onnx

    graphs = [onnx.load(path, load_external_data=False).graph]
    for graph in graphs:
        for node in graph.node:
            yield f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else attribute.graphs


def compared(where: str, before: Figures, after: Figures) -> Iterator[Finding]:
    """Yields a finding for each figure of two inventories; the inventory of a missing bundle is empty."""
    if not before or not after:
        before, after = ({"bundle": ("fixed", "there")} if figures else {} for figures in (before, after))
    for what in before | after:
        rule = (before.get(what) or after[what])[0]
        old, new = (figures[what][1] if what in figures else None for figures in (before, after))
        yield Finding(where, what, _text(old), _text(new), verdict(rule, old, new))


def verdict(rule: str, old: Any, new: Any) -> str:
    """Returns `same`, `better`, `worse`, or `new` if there was no old value.

    Args:
        rule: `operators`: less is better; `bytes`: less is better, with a tolerance of `GROWTH`; `more`: more is
            better; `error`: less is better, with a tolerance of `ROUNDING` and 5 %; `fixed`: equal, numbers within
            1e-4.
        old: Old value; `None` if there is none.
        new: New value; `None` if there is none.
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
