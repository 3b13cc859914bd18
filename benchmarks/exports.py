"""Exports a model in several ways: `python -P benchmarks/exports.py SOURCE FOLDER [random] < WAYS`.

`WAYS` is a JSON object: arguments of `kerasformer.export.export` by the name of the bundle in the folder. Nothing here
is of the checkout of this file: any Python runs it, with the kerasformer that is installed for it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from kerasformer import zoo
from kerasformer.export import export, recipe


def main() -> None:
    """Loads once, exports each way."""
    source, folder, *random = sys.argv[1:]
    model = zoo.load(source)
    for name, asked in json.load(sys.stdin).items():
        wanted = recipe(asked.pop("quantize"))
        if random and not wanted.exact:  # the best of random logits is hardly better than the next
            wanted = dataclasses.replace(wanted, min_agreement=0.0, tolerance=10.0)
        print(f"{folder}: export {name}", file=sys.stderr, flush=True)
        export(model, Path(folder) / name, quantize=wanted, overwrite=True, progress=False, **asked)


if __name__ == "__main__":
    main()
