"""Exports a model to several bundles: `python -P benchmarks/exports.py SOURCE FOLDER [any] < VARIANTS`.

`VARIANTS` is a JSON object that maps names of bundles to arguments of `kerasformer.export.export`, and optionally
`rounding` and `budget` of the recipe. With `any`, the fidelity of quantized bundles has no limits: with random weights,
the best logit is hardly larger than the next. `FOLDER/NAME.json` has the seconds of each export, and the peak memory of
the process up to its end in MB. The script does not use other files of this repository, so that any Python can run it
with its installed version of kerasformer.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import time
from pathlib import Path

from kerasformer.export import export, recipe
from kerasformer.process import free_tensors


def main() -> None:
    """Exports all variants of a model, which is loaded for each, so that its weights are freed."""
    source, folder, *any_fidelity = sys.argv[1:]
    free_tensors()
    for name, arguments in json.load(sys.stdin).items():
        settings = recipe(arguments.pop("quantize"))
        changes = {key: arguments.pop(key) for key in ("rounding", "budget") if key in arguments}
        settings = dataclasses.replace(settings, **changes)
        if any_fidelity and not settings.exact:
            settings = dataclasses.replace(settings, max_divergence=None, max_divergence_p99=None)
            settings = dataclasses.replace(settings, min_agreement=0.0, min_cosine=0.0, tolerance=10.0)
        print(f"{folder}: export {name}", file=sys.stderr, flush=True)
        start = time.monotonic()
        export(source, Path(folder) / name, quantize=settings, overwrite=True, progress=False, **arguments)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        cost = {"seconds": time.monotonic() - start, "megabytes": peak}
        Path(folder, f"{name}.json").write_text(json.dumps(cost), encoding="utf-8")


if __name__ == "__main__":
    main()
