"""Regressions between two versions: `python -m benchmarks.regression compare before.json after.json --speed`.

`record` exports presets and random models in each format and recipe with the kerasformer of `--python`, and records
parity with `transformers`, operators, tensors, sizes and fidelity. `compare` prints the figures that became worse, and
exits with 1 if there are any. `--speed` measures the bundles of both records in alternating rounds, each with its own
Python; `times` does the same for any two folders of bundles. Records are comparable if their random models are the
same, see `--checkpoints`.
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

from benchmarks import installed_package
from benchmarks.in_turn import READS, WRITES, Effort, Side, in_turn
from benchmarks.inventory import Figures, Finding, compared, inventory
from benchmarks.shapes import Shape, export_bundles, write_checkpoint

PRESETS = Path(__file__).parents[1] / "zoo" / "presets"
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
VARIANTS: dict[str, dict[str, Any]] = {
    f"{form}-{recipe}": {**arguments, "quantize": recipe}
    for form, arguments in _FORMS.items()
    for recipe in ("none", "int8", "int4")
}
VARIANTS["portable-int4"]["opset"] = 21  # the first version with 4-bit types
"""Arguments of `export` by the name of the bundle."""


def export_all(subject: str, options: argparse.Namespace) -> None:
    """Exports all bundles of a subject or, with `--keep`, the missing ones."""
    source, shape, fresh = options.checkpoints / subject, SUBJECTS[subject], not options.keep
    if shape:
        write_checkpoint(shape, source)
    folder, model = options.bundles / subject, source if shape else subject
    export_bundles(model, folder, VARIANTS, fresh=fresh, limits=shape is None, python=options.python)


def parity(subject: str, options: argparse.Namespace) -> Figures:
    """Compares the Keras model of a subject with `transformers`."""
    source = options.checkpoints / subject if SUBJECTS[subject] else PRESETS / subject
    command = [options.python, "-P", str(Path(__file__).with_name("parity.py")), str(source)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=installed_package()).stdout
    rules = {"forward": "error", "greedy": "more"}
    return {f"parity: {name}": (rules[name], value) for name, value in json.loads(answer).items()}


def record(options: argparse.Namespace) -> None:
    """Exports the bundles and records their figures."""
    subjects = options.subjects or list(SUBJECTS)
    for subject in subjects:
        export_all(subject, options)
    names = [f"{subject}/{variant}" for subject in subjects for variant in VARIANTS]
    content: dict[str, Any] = {"python": options.python, "bundles": str(options.bundles.resolve())}
    content["inventory"] = {name: inventory(options.bundles / name) for name in names}
    content["inventory"] |= {f"{subject}/keras": parity(subject, options) for subject in subjects}
    options.out.write_text(json.dumps(content, indent=1) + "\n")


def report(findings: Iterable[Finding], full: bool) -> bool:
    """Prints figures that became worse, with `full` all differences; returns whether no figure became worse."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    table, counts = Table("bundle", "figure", "before", "after", ""), Counter[str]()
    for finding in findings:
        counts[finding.verdict] += 1
        if finding.verdict == "worse" or (full and finding.verdict != "same"):
            table.add_row(*finding, style="red" if finding.verdict == "worse" else None)
    if table.row_count:
        console.print(table)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("same", "better", "new", "worse")))
    return not counts["worse"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regression", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record_parser = commands.add_parser("record", help="export and record figures")
    record_parser.add_argument("out", type=Path, help="JSON file to write")
    record_parser.add_argument("--python", default=sys.executable, help="interpreter with the kerasformer to record")
    record_parser.add_argument("--bundles", type=Path, help="folder of the bundles; named like the file by default")
    record_parser.add_argument("--keep", action="store_true", help="export only missing bundles")
    record_parser.add_argument("--checkpoints", type=Path, default=Path("benchmark-models/checkpoints"))
    compare_parser = commands.add_parser("compare", help="compare two records")
    compare_parser.add_argument("--speed", action="store_true", help="measure the bundles of both again")
    times_parser = commands.add_parser("times", help="measure two folders of bundles in alternating rounds")
    for command in (compare_parser, times_parser):
        for side in ("before", "after"):
            command.add_argument(side, type=Path)
            command.add_argument(f"--python-{side}", help="interpreter; by default that of the record, or this one")
        command.add_argument("--full", action="store_true", help="also print figures that are better or new")
        command.add_argument("--openings", type=int, default=5, help="number of processes for each bundle")
        command.add_argument("--rounds", type=int, default=3, help="number of answers of a process to each question")
        command.add_argument("--threads", type=int, default=2, help="number of threads of the runtimes")
    for command in (record_parser, compare_parser, times_parser):
        command.add_argument("--subjects", nargs="*", default=[], help="models; all by default")
    options = parser.parse_args()
    if options.command == "record" and options.bundles is None:
        options.bundles = options.out.with_suffix("")
    return options


def main() -> None:
    options = _arguments()
    if options.command == "record":
        record(options)
        return
    sides = [(options.python_before, options.before), (options.python_after, options.after)]
    findings: list[Finding] = []
    if options.command == "compare":
        records = [json.loads(path.read_text()) for _, path in sides]
        old, new = (content["inventory"] for content in records)
        for where in old | new:
            if not options.subjects or where.split("/")[0] in options.subjects:
                findings += compared(where, old.get(where, {}), new.get(where, {}))
        both = zip(sides, records, strict=True)
        sides = [(python or content["python"], Path(content["bundles"])) for (python, _), content in both]
    if options.command == "times" or options.speed:
        before, after = (Side(python or sys.executable, folder) for python, folder in sides)
        findings += in_turn(before, after, options.subjects, Effort(options.openings, options.rounds, options.threads))
    sys.exit(0 if report(findings, options.full) else 1)


if __name__ == "__main__":
    main()
