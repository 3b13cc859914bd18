"""Runs quickstart.ipynb, or other notebooks, and updates their outputs.

    python examples/quickstart.py
    python examples/quickstart.py examples/notebooks/*.ipynb

The repository contains the outputs, so that the notebook can be read without running it. Do not edit them by hand: a
test also runs the notebooks and compares their outputs.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).with_name("quickstart.ipynb")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def executed(path: Path = NOTEBOOK, folder: Path | None = None) -> NotebookNode:
    """Returns a notebook with the current outputs of its cells, and without metadata of this machine.

    Args:
        path: The notebook.
        folder: Its working folder; by default a temporary one.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as temporary:
        resources = {"metadata": {"path": str(folder or temporary)}}
        NotebookClient(notebook, timeout=600, coalesce_streams=True, resources=resources).execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in cell.outputs if _is_kept(output)]
    return notebook


def printed(cell: NotebookNode) -> str:
    """Returns the output of a cell as text."""
    parts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ()))
    return "".join(parts)


def _is_kept(output: NotebookNode) -> bool:
    """Whether the repository keeps an output: no message of a runtime, and no view that is a page of its own."""
    page = output.output_type == "execute_result" and "text/html" in output.data
    return output.get("name") != "stderr" and not page


def _plain(output: NotebookNode) -> NotebookNode:
    """Returns the output as text or as a drawing, without colours and without the equivalent HTML."""
    if "text" in output:
        output.text = _COLOURS.sub("", output.text)
    if "data" in output and "text/plain" in output.data:
        drawing = {kind: data for kind, data in output.data.items() if kind == "image/svg+xml"}
        output.data = {"text/plain": _COLOURS.sub("", output.data["text/plain"]), **drawing}
    output.pop("transient", None)
    return output


if __name__ == "__main__":
    for notebook_path in map(Path, sys.argv[1:] or [NOTEBOOK]):
        nbformat.write(executed(notebook_path), notebook_path)
