"""Cost of the signatures of a decoder: `python -m benchmarks.signatures`.

Exports GPT-2 124M with random weights to LiteRT with several sets of signatures. Prints for each the number of
signatures, the size of the file, and the time and the memory with which LiteRT opens it and gives the first answer, 24
tokens after a prompt of 16, as minimum and median of processes in alternating order.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.in_turn import Effort, Side, times
from kerasformer import bundle, zoo
from kerasformer.export import Checks, DecoderSignatures, TFLite, export, recipe

CAPACITY = 1024
SETS = {
    "one prefill, decode": DecoderSignatures(prefill_lengths=(64,), cache_lengths=(), rows=(), verify_lengths=()),
    "and short caches": DecoderSignatures(prefill_lengths=(64,), rows=(), verify_lengths=()),
    "and verify steps": DecoderSignatures(prefill_lengths=(64,), rows=()),
    "default": DecoderSignatures(),
    "and 16 rows": DecoderSignatures(rows=(8, 16)),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signatures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("benchmark-models/signatures"), help="of the bundles")
    parser.add_argument("--quantize", default="int8")
    parser.add_argument("--openings", type=int, default=7, help="processes of each bundle")
    parser.add_argument("--threads", type=int, default=2, help="of the runtime")
    given = parser.parse_args()
    # With random weights, the best logit is hardly larger than the next.
    settings = dataclasses.replace(recipe(given.quantize), min_agreement=0.0, tolerance=10.0)
    missing = [name for name in SETS if not (given.folder / name / bundle.MANIFEST).exists()]
    model = zoo.build("gpt2", "text-generation", eos_token_id=50256, bos_token_id=50256) if missing else None
    for name in missing:
        format = TFLite(capacity=CAPACITY, signatures=SETS[name])
        export(model, given.folder / name, format, settings, overwrite=True, checks=Checks(["It rained all day."]))
    found = times(
        {name: Side(sys.executable, given.folder / name) for name in SETS}, Effort(given.openings, 0, given.threads)
    )
    table = Table("signatures", "number", "MB", "load s, min", "median", "first answer s, min", "median", "memory MB")
    for name, figures in found.items():
        folder = given.folder / name
        seconds = [
            f"{of(figures[key]):.2f}" for key in ("load, s", "first answer, s") for of in (min, statistics.median)
        ]
        number, size = len(bundle.read(folder).signatures), (folder / "model.tflite").stat().st_size / 1e6
        table.add_row(name, str(number), f"{size:.1f}", *seconds, f"{min(figures['memory, MB']):.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
