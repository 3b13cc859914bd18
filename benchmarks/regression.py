"""What a change makes worse: `python -m benchmarks.regression compare before.json after.json --speed`.

`record` exports presets and random models in each format and recipe with the kerasformer of `--python`, and keeps
operators, tensors, sizes, fidelity and times. `compare` prints what got worse, and exits with 1 if anything did.
`--speed` measures the bundles of both records anew, in turn, each with its own Python; `times` does so for any two
folders of bundles. Records compare if their random models are the same: those of `--checkpoints`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.in_turn import READS, WRITES, Effort, Side, in_turn, own_package, times
from benchmarks.inventory import MANIFEST, Finding, compared, inventory
from benchmarks.shapes import Shape, write_checkpoint

_SIZE: dict[str, Any] = {"vocab_size": 4000, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
_LAYERS = {**_SIZE, "num_hidden_layers": 4}
_DISTIL = {"vocab_size": 4000, "dim": 256, "n_heads": 4, "hidden_dim": 1024, "n_layers": 4}
_GPT2 = {"vocab_size": 4000, "n_embd": 256, "n_head": 4, "n_layer": 4, "n_positions": 512}
_T5: dict[str, Any] = {"vocab_size": 4000, "d_model": 256, "num_heads": 4, "d_kv": 64, "d_ff": 1024, "num_layers": 4}
_T5 |= {"decoder_start_token_id": 0, "dropout_rate": 0.0}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SUBJECTS: dict[str, Shape | None] = {
    "sentiment-bert": None,  # a preset
    "story-gpt2": None,
    "summarizer-t5": None,
    "bert": Shape("BERT", "BertForSequenceClassification", READS, _LAYERS),
    "bert-masked": Shape("BERT, masked words", "BertForMaskedLM", READS, _LAYERS),
    "distilbert": Shape("DistilBERT, words", "DistilBertForTokenClassification", READS, _DISTIL),
    "albert": Shape("ALBERT, answers", "AlbertForQuestionAnswering", READS, {**_LAYERS, "embedding_size": 64}),
    "gpt2": Shape("GPT-2", "GPT2LMHeadModel", WRITES, _GPT2),
    "t5": Shape("T5", "T5ForConditionalGeneration", WRITES, _T5),
    "t5-gated": Shape("T5 1.1", "T5ForConditionalGeneration", WRITES, {**_T5, **_GATED}),
}
_FORMS = {"tflite": {"format": "tflite"}, "onnx": {"format": "onnx", "profile": "ort"}}
_FORMS["portable"] = {"format": "onnx", "profile": "portable"}
WAYS: dict[str, dict[str, Any]] = {
    f"{form}-{recipe}": {**asked, "quantize": recipe}
    for form, asked in _FORMS.items()
    for recipe in ("none", "int8", "int4")
}
WAYS["portable-int4"]["opset"] = 21  # the first with four bits
"""Arguments of `export` by the name of the bundle."""


def export_all(subject: str, given: argparse.Namespace) -> None:
    """Bundles of a subject: all, or with `--keep` those that are not there yet."""
    place, source, shape = given.bundles / subject, given.checkpoints / subject, SUBJECTS[subject]
    if shape and not source.exists():
        write_checkpoint(shape, source)
    ways = {way: asked for way, asked in WAYS.items() if not (given.keep and (place / way / MANIFEST).exists())}
    if ways:
        script = Path(__file__).with_name("exports.py")
        arguments = [source, place, "random"] if shape else [subject, place]
        command = [given.python, "-P", *map(str, (script, *arguments))]
        subprocess.run(command, input=json.dumps(ways), text=True, check=True, env=own_package())


def record(given: argparse.Namespace) -> None:
    """Exports, takes inventory, measures the ways of each subject in turn."""
    subjects, effort = given.subjects or list(SUBJECTS), Effort(given.openings, given.rounds, given.threads)
    for subject in subjects:
        export_all(subject, given)
    found = {f"{subject}/{way}": inventory(given.bundles / subject / way) for subject in subjects for way in WAYS}
    content: dict[str, Any] = {"python": given.python, "bundles": str(given.bundles.resolve()), "inventory": found}
    given.out.write_text(json.dumps(content, indent=1) + "\n")
    content["times"] = {}
    for subject in subjects if given.rounds else ():
        sides = {f"{subject}/{way}": Side(given.python, given.bundles / subject / way) for way in WAYS}
        content["times"] |= times(sides, effort)
        given.out.write_text(json.dumps(content, indent=1) + "\n")


def report(findings: Iterable[Finding], full: bool) -> bool:
    """Prints what got worse, with `full` all that differs; returns whether nothing got worse."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    table, counts = Table("bundle", "figure", "before", "after", ""), Counter[str]()
    for finding in findings:
        counts[finding.verdict] += 1
        if finding.verdict == "worse" or (full and finding.verdict != "same"):
            table.add_row(*finding, style="red" if finding.verdict == "worse" else None)
    if table.row_count:
        console.print(table)
    console.print(", ".join(f"{counts[word]} {word}" for word in ("same", "better", "new", "worse")))
    return not counts["worse"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regression", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writes = commands.add_parser("record", help="export, take inventory, measure")
    writes.add_argument("out", type=Path, help="JSON file")
    writes.add_argument("--python", default=sys.executable, help="of the kerasformer that is recorded; this one")
    writes.add_argument("--bundles", type=Path, help="their folder; beside the file by default, with its name")
    writes.add_argument("--keep", action="store_true", help="make only bundles that are not there yet")
    writes.add_argument("--checkpoints", type=Path, default=Path("benchmark-models/checkpoints"))
    reads = commands.add_parser("compare", help="two records")
    reads.add_argument("--speed", action="store_true", help="measure the bundles of both in turn")
    measures = commands.add_parser("times", help="two folders of bundles, in turn")
    for command in (reads, measures):
        for side in ("before", "after"):
            command.add_argument(side, type=Path)
            command.add_argument(f"--python-{side}", help="interpreter; that of the record, or this one, by default")
        command.add_argument("--full", action="store_true", help="print what is better or new, too")
    for command in (writes, reads, measures):
        command.add_argument("--subjects", nargs="*", default=[], help="all by default")
        command.add_argument("--openings", type=int, default=5, help="processes of each bundle")
        command.add_argument("--rounds", type=int, default=15, help="answers to each question")
        command.add_argument("--threads", type=int, default=2, help="of the runtimes")
    given = parser.parse_args()
    if given.command == "record" and given.bundles is None:
        given.bundles = given.out.with_suffix("")
    return given


def main() -> None:
    """The command."""
    given = _arguments()
    if given.command == "record":
        record(given)
        return
    sides = [(given.python_before, given.before), (given.python_after, given.after)]
    findings: list[Finding] = []
    if given.command == "compare":
        records = [json.loads(path.read_text()) for _, path in sides]
        old, new = (found["inventory"] for found in records)
        for where in old | new:
            if not given.subjects or where.split("/")[0] in given.subjects:
                findings += compared(where, old.get(where, {}), new.get(where, {}))
        both = zip(sides, records, strict=True)
        sides = [(python or found["python"], Path(found["bundles"])) for (python, _), found in both]
    if given.command == "times" or given.speed:
        before, after = (Side(python or sys.executable, folder) for python, folder in sides)
        findings += in_turn(before, after, given.subjects, Effort(given.openings, given.rounds, given.threads))
    sys.exit(0 if report(findings, given.full) else 1)


if __name__ == "__main__":
    main()
