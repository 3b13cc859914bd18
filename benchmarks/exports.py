"""Exports a model to several bundles: `python -P benchmarks/exports.py SOURCE FOLDER [any] < VARIANTS`.

`VARIANTS` is a JSON object that maps names of bundles to arguments of `kerasformer.export.export`, and optionally
`rounding` of the recipe. With `any`, the fidelity of quantized bundles has no limits: with random weights, the best
logit is hardly larger than the next. The script does not use other files of this repository, so that any Python can run
it with its installed version of kerasformer.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from kerasformer.export import export, recipe
from kerasformer.process import free_tensors


def main() -> None:
    """Exports all variants of a model, which is loaded for each, so that its weights are freed."""
    source, folder, *any_fidelity = sys.argv[1:]
    free_tensors()
    for name, arguments in json.load(sys.stdin).items():
        settings = recipe(arguments.pop("quantize"))
        settings = dataclasses.replace(settings, rounding=arguments.pop("rounding", settings.rounding))
        if any_fidelity and not settings.exact:
            settings = dataclasses.replace(settings, max_divergence=None, max_divergence_p99=None)
            settings = dataclasses.replace(settings, min_agreement=0.0, min_cosine=0.0, tolerance=10.0)
        print(f"{folder}: export {name}", file=sys.stderr, flush=True)
        export(source, Path(folder) / name, quantize=settings, overwrite=True, progress=False, **arguments)


if __name__ == "__main__":
    main()
