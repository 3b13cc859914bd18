"""The table of the hundred most used text models, from their configurations and `benchmarks/peer_coverage.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.core.zoo.configurations import Row, hundred, model_type

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "peer_coverage.json"
OURS = "kerasformer"
PEERS = ("transformers.exporters", "mobius-onnx", "litert-torch", "optimum-onnx")
FORMATS = "litert", "onnx"
LIMIT = 1e-3
"""Errors above this share of the largest value are wrong answers."""
OWN_CODE = "The model is code in the repository of the checkpoint (`auto_map`), which was not run."
_FORMS = {"one length": "n", "single texts": "t"}
_TEXT = """\
A figure is the largest difference of an output from PyTorch at real tokens, relative to the largest value, for texts of
different lengths with padding on the right. For LiteRT and ONNX, it is the difference between bundle and Keras that the
export measured. **Bold** figures are above 1e-3: a wrong answer without an error. A number in brackets is the reason
why there is no figure.

| mark | meaning |
|---|---|
| `h` | The graph lacks the head or has another one; the hidden states are compared. |
| `n` | The graph has a fixed number of texts and of tokens. |
| `t` | The graph has no mask, or fails for several texts: it read one text at a time, without padding. |
| `all` | All recipes, with blocks of 32 weights for four bits; `all*`: without `int4_distilled`, for decoders. |
| ≈ | The configuration is that of another model, with what differs by the model card, to which the link leads. |

Checkpoints whose configurations differ only in sizes, labels and vocabulary were tried once, as a model with two layers
and random weights that `transformers` saved; published weights were not read. Recipes follow from the shapes of the
whole model, and were not measured. Downloads, in 30 days, and parameters are in millions. The links lead to the
configurations, or to public copies of them."""


class Notes:
    """Reasons, numbered as they first appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, who: str, message: str) -> str:
        """Returns the mark of a reason."""
        return f"[{self._numbers.setdefault(f'{who}: {_short(message)}', len(self._numbers) + 1)}]"

    def lines(self) -> list[str]:
        """Returns the reasons as a list in Markdown."""
        return [f"{number}. {reason}" for reason, number in self._numbers.items()]


def section() -> str:
    """Returns the part of the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    figures = {name: entry for entry in results["kinds"].values() for name in entry["members"]}
    notes = Notes()
    ours = ["", "checkpoint", "downloads", "`model_type`", "parameters", "loads", "LiteRT", "ONNX", "recipes"]
    heads = [*ours, *PEERS]
    lines = [heads, ["--:", "---", "--:", "---", "--:", "--:", "--:", "--:", "---", *["--:"] * len(PEERS)]]
    for number, (name, row) in enumerate(hundred().items(), 1):
        checkpoint, found = results["checkpoints"].get(name, {}), figures.get(name, {})
        lines.append([str(number), *_about(name, row, checkpoint), *_cells(row, checkpoint, found, notes)])
    return "\n".join(
        [
            _summary(results, figures),
            "",
            _TEXT,
            "",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            "Reasons, with the first words of an error as the library gives it:",
            "",
            *notes.lines(),
        ]
    )


def _summary(results: dict[str, Any], figures: dict[str, Any]) -> str:
    """Returns what was counted, with which versions, and when."""
    rows = hundred()
    loads = sum("error" in figures.get(name, {}).get(OURS, {}) for name in rows)
    lines = ["| library | versions | exports | answers as PyTorch |", "|---|---|--:|--:|"]
    for peer in (OURS, *PEERS):
        entries = [figures.get(name, {}).get(peer, {}) for name in rows]
        exported = [entry for entry in entries if peer != OURS or not {str} & {type(entry.get(f)) for f in FORMATS}]
        errors = [entry["error"] for entry in exported if "error" in entry]
        right = sum(error is not None and error <= LIMIT for error in errors)
        versions = ", ".join(f"{name} {number}" for name, number in results["versions"][peer].items())
        lines.append(f"| {peer} | {versions} | {len(errors)} | {right} |")
    refused = {name for name in rows if "message" in results["checkpoints"].get(name, {})}
    tried = {name for name, row in rows.items() if OURS in figures.get(name, {}) or "auto_map" in row["config"]}
    open_rows = len(rows.keys() - refused - tried)
    rest = f" {open_rows} are not measured yet, and have no figures." if open_rows else ""
    return "\n".join([f"{loads} of the hundred load.{rest} Measured on {results['date']}:", "", *lines])


def _about(name: str, row: Row, checkpoint: dict[str, Any]) -> list[str]:
    size = f"{checkpoint['parameters'] / 1e6:.0f}" if "parameters" in checkpoint else ""
    like = " ≈" if "like" in row else ""
    source = row["source"].partition(",")[0]
    linked = f"[`{name}`]({source})" if source.startswith("https://") else f"`{name}`"
    return [f"{linked}{like}", f"{row['downloads'] / 1e6:.1f}", f"`{model_type(row)}`", size]


def _cells(row: Row, checkpoint: dict[str, Any], found: dict[str, Any], notes: Notes) -> list[str]:
    if "auto_map" in row["config"]:
        other = notes.mark("all", OWN_CODE)
        ours = notes.mark(OURS, checkpoint["message"]) if "message" in checkpoint else other
        return [ours, "", "", "", *[other] * len(PEERS)]
    if "message" in checkpoint:
        ours = [notes.mark(OURS, checkpoint["message"]), "", "", ""]
    else:
        own = found.get(OURS, {})
        formats = [_figure({"error": own[name]} if name in own else {}, OURS, notes) for name in FORMATS]
        recipes = "" if "message" in own else _recipes(checkpoint, found)
        ours = [_figure(own, OURS, notes), *formats, recipes]
    return [*ours, *(_figure(found.get(peer, {}), peer, notes) for peer in PEERS)]


def _figure(result: dict[str, Any], who: str, notes: Notes) -> str:
    error = result.get("error", result.get("message", ""))
    if isinstance(error, str):
        return notes.mark(who, error) if error else ""
    marks = [_FORMS.get(result.get("form", ""), ""), "h" if result.get("output") == "last_hidden_state" else ""]
    figure = "NaN" if error is None else f"{error:.0e}".replace("e-0", "e-") if error < LIMIT else f"{error:.2f}"
    shown = f"**{figure}**" if error is None or error > LIMIT else figure
    return " ".join([shown, *(f"`{mark}`" for mark in marks if mark)])


def _recipes(checkpoint: dict[str, Any], found: dict[str, Any]) -> str:
    coarse = checkpoint.get("rows", 0) + checkpoint.get("bytes", 0)
    total = coarse + checkpoint.get("blocks", 0)
    usual = "`all`" if found.get("task") == "text-generation" else "`all*`"
    return f"{usual}, four bits without blocks: {coarse} of {total} matrices" if coarse else usual


def _short(message: str) -> str:
    """Returns the first sentence of a message, with what was received, and without lists of names."""
    text = re.sub(r"Expected one of .*? Received", "Received", re.sub(r"\s+", " ", message))
    text = re.sub(r"('[^']*', )+'[^']*'( \(and \d+ more\))?", "…", text)
    text = re.sub(r"\d+ initializer", "… initializer", text)
    text = text.replace('"', "")
    first, *others = re.split(r"(?<=[.?]) (?=[A-Z])", text)
    text = " ".join([first, *(sentence for sentence in others[:1] if sentence.startswith("Received"))])
    text = text if len(text) <= 160 else f"{text[:160].rsplit(' ', 1)[0]} …"
    return text.replace("|", "\\|").replace("<", "&lt;")
