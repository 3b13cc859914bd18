"""Writes what is generated from the files of `kerasformer.zoo`: a table, a section of a page, and a picture.

python -m tests.core.zoo.table [--write]        without --write, only reports whether they are up to date
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from kerasformer import zoo
from kerasformer.basics import tasks
from kerasformer.bundle import tested
from kerasformer.bundle.architectures import FILE, Architecture, lineages
from kerasformer.models.registry import describe, zoo_modules
from kerasformer.tools.viz import draw_family_tree
from tests.core.zoo import coverage

COMMAND = "python -m tests.core.zoo.table --write"
ROOT = Path(__file__).parents[3]
TABLE = ROOT / "kerasformer/bundle" / FILE
PAGE = ROOT / "docs" / "zoo.md"
PICTURES = {
    ROOT / "docs" / "pictures" / f"models{name}.svg": narrow for name, narrow in {"": False, "-narrow": True}.items()
}
_BEGIN, _END = f"<!-- from the zoo: {COMMAND} -->", "<!-- end -->"
_COVERAGE = f"<!-- from benchmarks/peer_coverage.json: {COMMAND} -->"
_IN_WORDS = {tasks.SENTENCE_SIMILARITY, "text-ranking", "zero-shot-classification"}
"""Tasks that the page assigns to models by those that the table lists."""


def architectures() -> dict[str, Architecture]:
    """Returns the architectures by `model_type`, as their modules describe them."""
    found = (describe(zoo.architecture(name)) for name in zoo_modules())
    return {architecture.model_type: architecture for architecture in found}


def table(members: Iterable[Architecture]) -> str:
    """Returns the content of `kerasformer/bundle/architectures.json`, one line for each architecture."""
    lines = (json.dumps(asdict(architecture), ensure_ascii=False) for architecture in members)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def section(text: str, members: Iterable[Architecture]) -> str:
    """Returns a page with its table of models updated."""
    usual: dict[str, str] = {}
    lines = [["`model_type`", "model", "more (+) or fewer (−) tasks", "tested checkpoints"], ["---"] * 4]
    for branch, lineage in lineages(members).items():
        usual[branch] = Counter(_listed_tasks(member, variants=False) for member, _ in lineage).most_common(1)[0][0]
        lines += [_cells(member, usual[branch]) for member, _ in lineage]
    tasks_of_branches = [f"- {branch}: {names}" for branch, names in usual.items()]
    rows = (f"| {' | '.join(line)} |" for line in lines)
    return _replaced(text, _BEGIN, "\n".join(["Tasks of a branch:", "", *tasks_of_branches, "", *rows]))


def _replaced(text: str, begin: str, part: str) -> str:
    """Returns a page with another part after a line."""
    before, _, rest = text.partition(begin)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE} must have the lines {begin} and {_END}")
    return f"{before}{begin}\n{part}\n{end}{after}"


def _cells(architecture: Architecture, usual: str) -> list[str]:
    name, listed = architecture.model_type, _listed_tasks(architecture)
    checkpoints = [f"`{checkpoint}`" for checkpoint in tested.checkpoints().get(name, [])]
    here, there = listed.split(", "), usual.split(", ")
    more = ", ".join(task for task in here if task not in there)
    fewer = ", ".join(task for task in there if task not in here)
    changes = [f"{sign} {names}" for sign, names in (("+", more), ("−", fewer)) if names]
    return [f"`{name}`", f"{architecture.name}: {architecture.summary}", "; ".join(changes), ", ".join(checkpoints)]


def _listed_tasks(architecture: Architecture, variants: bool = True) -> str:
    derived = [task for task, performer in tasks.PERFORMED_BY.items() if performer in architecture.tasks]
    omitted = _IN_WORDS if variants else {*_IN_WORDS, *tasks.VARIANTS}
    return ", ".join(task for task in (*architecture.tasks, *derived) if task not in omitted)


def picture(known: Mapping[str, Architecture], narrow: bool) -> str:
    """Returns the family tree as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        draw_family_tree(lineages(known.values()), path := Path(folder, "models.svg"), narrow)
        return path.read_text(encoding="utf-8")


def lines(drawn: str) -> list[str]:
    """Returns the names of the lines of a picture, which have the texts of both their ends."""
    return re.findall(r'<g id="([^"]+-to-[^"]+)"', drawn)


def outdated() -> dict[Path, str]:
    """Returns the new content of each file that is out of date; of the pictures, only the lines are compared."""
    known = architectures()
    page = PAGE.read_text(encoding="utf-8")
    texts = {
        TABLE: table(known.values()),
        PAGE: _replaced(section(page, known.values()), _COVERAGE, coverage.section()),
    }
    changed = {path: text for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, narrow in PICTURES.items():
        drawn = picture(known, narrow)
        if not path.exists() or lines(drawn) != lines(path.read_text(encoding="utf-8")):
            changed[path] = drawn
    return changed


def main(arguments: Sequence[str]) -> int:
    """Writes or compares the files; returns the exit status."""
    write, changed = "--write" in arguments, outdated()
    for path, text in changed.items():
        if write:
            path.write_text(text, encoding="utf-8")
        print(f"{'written' if write else 'out of date'}: {path.relative_to(ROOT)}")
    return 0 if write else len(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
