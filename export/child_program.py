"""The program of the child process: exports what the request of `export_in_child` asks for."""

from __future__ import annotations

import sys
from pathlib import Path

from kerasformer.bundle.recipes import Recipe
from kerasformer.export.api import export
from kerasformer.export.progress_report import write_line
from kerasformer.files.reading import read_json
from kerasformer.pipelines.labelled_texts import read_examples
from kerasformer.process import free_tensors


def main(file: Path) -> None:
    """Exports what a file asks for, and prints the stages to standard output."""
    request = read_json(file)
    options = {**request["options"], "progress": write_line}
    if "texts" in options:
        options["texts"] = read_examples(Path(options["texts"]))
    free_tensors()
    recipe = Recipe.from_dict(request["quantize"])
    export(request["source"], request["destination"], request["format"], recipe, **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
