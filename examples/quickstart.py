"""Runs quickstart.ipynb, and keeps what it prints in it.

    python examples/quickstart.py

The notebook is read where it is not run, so its outputs are in the repository. They are never typed: a test runs it
too.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).with_name("quickstart.ipynb")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def executed() -> NotebookNode:
    """The notebook with what its cells print now, and nothing that tells the machine."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, coalesce_streams=True, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def printed(cell: NotebookNode) -> str:
    """What a cell shows, as text."""
    parts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ()))
    return "".join(parts)


def _plain(output: NotebookNode) -> NotebookNode:
    """The output as text: without colours, and without the HTML that says the same."""
    if "text" in output:
        output.text = _COLOURS.sub("", output.text)
    if "data" in output and "text/plain" in output.data:
        output.data = {"text/plain": _COLOURS.sub("", output.data["text/plain"])}
    output.pop("transient", None)
    return output


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
