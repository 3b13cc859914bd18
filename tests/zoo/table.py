"""Generates the table of models in docs/zoo.md from the zoo and from the checkpoints that tests read.

python -m tests.zoo.table [--write]        without --write, only reports whether it is up to date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kerasformer import architectures, tasks, tested
from kerasformer.architectures import Architecture

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
_BEGIN, _END = "<!-- from the zoo: python -m tests.zoo.table --write -->", "<!-- end -->"
_IN_WORDS = (tasks.SENTENCE_SIMILARITY, "text-ranking", "zero-shot-classification")
"""Tasks that the page assigns to models by those that the table lists."""


def models() -> str:
    """Returns a table with a row for each architecture, those of a branch as they are derived from each other."""
    lines = [["`model_type`", "model", "tasks", "tested checkpoints"], ["---"] * 4]
    lines += [_row(each) for branch in architectures.BRANCHES for each, _ in architectures.lineage(branch)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(architecture: Architecture) -> list[str]:
    name = architecture.model_type
    derived = [task for task, performer in tasks.PERFORMED_BY.items() if performer in architecture.tasks]
    listed = [task for task in (*architecture.tasks, *derived) if task not in _IN_WORDS]
    checkpoints = [f"`{checkpoint}`" for checkpoint in tested.checkpoints().get(name, [])]
    return [f"`{name}`", f"{architecture.name}: {architecture.summary}", ", ".join(listed), ", ".join(checkpoints)]


def page(text: str) -> str:
    """Returns the page with its generated part updated."""
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE} must have the lines {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n{models()}\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Writes or compares the page; returns the exit status."""
    text = PAGE.read_text(encoding="utf-8")
    updated, write = page(text), "--write" in arguments
    if updated == text:
        return 0
    if write:
        PAGE.write_text(updated, encoding="utf-8")
    print(f"{'written' if write else 'out of date'}: {PAGE.name}")
    return 0 if write else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
