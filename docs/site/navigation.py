"""The order of the pages, and those that are made from the code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.site import architectures, gallery, reference, targets, tasks
from docs.site.tables import contents

NOTEBOOKS = "examples/notebooks"

SECTIONS: dict[str, list[str]] = {
    "Start": ["docs/install", "docs/command_line", "tasks/index", "examples/quickstart", "docs/playground",
              "docs/coming_from", "docs/errors"],
    "Export": ["docs/quantization", "docs/bundles", "docs/gguf", "docs/tf_text", "targets/index"],
    "Run": ["docs/pipelines", "docs/phones", "mobile/README", "docs/web", "kerasformer/tools/web/page/library/README",
            "docs/runtimes", "docs/tools"],
    "Serve": ["docs/server", "examples/deploy/README", "docs/clusters"],
    "Generate": ["docs/decoding", "docs/chat"],
    "Train": ["docs/training", "docs/pytorch_to_keras", "docs/keras_hub", "examples/presets/README"],
    "See inside": ["docs/interpretability", "docs/anatomy", "gallery"],
    "Chapters": [NOTEBOOKS],
    "Models": ["docs/zoo", "models/index", "docs/performance", "benchmarks/RESULTS"],
    "Reference": ["reference/index", "docs/architecture", "docs/decisions", "CHANGELOG"],
}  # fmt: skip
"""Pages by section. A name that is a folder stands for the notebooks in it; what does not exist is left out."""

TITLES = {
    "CHANGELOG": "Changes",
    "benchmarks/RESULTS": "Measurements",
    "examples/deploy/README": "Containers",
    "examples/presets/README": "How the presets are trained",
    "kerasformer/tools/web/page/library/README": "JavaScript library",
    "mobile/README": "Libraries for apps",
}
"""Titles in the navigation of pages whose headings are meant for a folder."""


def write(source: Path, pages: Sequence[str]) -> None:
    """Writes the pages that are made from the code, and the navigation at the end of the first page.

    Args:
        source: Folder that Sphinx reads.
        pages: Names of the pages of the repository in it.
    """
    made = {**tasks.pages(), **architectures.pages(), **targets.pages(), **reference.pages(), **gallery.pages(source)}
    sections = {
        caption: [page for name in names for page in [*pages, *made] if page == name or _is_notebook(page, name)]
        for caption, names in SECTIONS.items()
    }
    shown = {"index", *(page for names in sections.values() for page in names)}
    sections["Reference"] += [page for page in pages if page.startswith("docs/") and page not in shown]
    others = {page for page in pages if page not in shown and not page.startswith("docs/")}
    made["files/index"] = _FILES + contents([f"/{page}" for page in sorted(others)], hidden=False)
    sections["Reference"].append("files/index")
    for name, text in made.items():
        path = source / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write("\n" + "\n".join(_tree(caption, names) for caption, names in sections.items() if names))


_FILES = "# Files of the repository\n\nFiles that pages link to.\n\n"


def _is_notebook(page: str, folder: str) -> bool:
    return page.startswith(f"{folder}/") and folder == NOTEBOOKS


def _tree(caption: str, names: Sequence[str]) -> str:
    lines = [f"{TITLES[name]} <{name}>" if name in TITLES else name for name in names]
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(lines) + "\n```\n"
