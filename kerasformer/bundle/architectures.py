"""The architectures: what each one is and which tasks it has, from `architectures.json`.

That file is generated from the modules of `kerasformer.zoo`, so that Keras is not imported. Other packages add
architectures with `kerasformer.zoo.register`, or with an entry point of the group `kerasformer.architectures`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import parse_json, read_text

ENCODER, DECODER, ENCODER_DECODER = BRANCHES = ("encoder", "decoder", "encoder-decoder")
"""Kinds of architectures, by the parts of the original Transformer that they have."""

FILE = "architectures.json"
GROUP = "kerasformer.architectures"
"""Group of the entry points of other packages: the name is a `model_type`, the value is the name of a module."""


@dataclass(frozen=True)
class Architecture:
    """An architecture, as its module in the zoo describes it.

    Attributes:
        model_type: Name in `config.json`.
        name: Name in its paper.
        branch: One of `BRANCHES`.
        summary: Its difference from the architecture that it is derived from.
        derived_from: `model_type` of that architecture; `None` if it is derived from the Transformer itself.
        year: Year of its paper.
        paper: Citation of its paper, and of others that it is based on.
        tasks: Names of its tasks.
    """

    model_type: str
    name: str
    branch: str
    summary: str
    derived_from: str | None
    year: int
    paper: str
    tasks: tuple[str, ...]


_added: dict[str, Architecture] = {}


def architectures() -> dict[str, Architecture]:
    """Returns the architectures of this package and those that were added to it, by `model_type`.

    Those of entry points are added when they are used, see `installed`.
    """
    return {**_table(), **_added}


@cache
def _table() -> dict[str, Architecture]:
    rows = parse_json(read_text(Path(__file__).with_name(FILE)), FILE)
    return {row["model_type"]: Architecture(**{**row, "tasks": tuple(row["tasks"])}) for row in rows}


def add(architecture: Architecture) -> None:
    """Adds the description of an architecture of another package, for this process."""
    _added[architecture.model_type] = architecture


@cache
def installed() -> dict[str, EntryPoint]:
    """Returns the entry points by which installed packages add architectures, by `model_type`; none is imported."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def models() -> dict[str, list[str]]:
    """Returns the tasks of each architecture by `model_type`, like `kerasformer.zoo.models`."""
    return {name: list(each.tasks) for name, each in architectures().items()}


def find(model_type: str) -> Architecture:
    """Returns an architecture by its `model_type`.

    Raises:
        UnsupportedConfigError: the architecture is unsupported.
    """
    known = architectures()
    if model_type not in known:
        names = [*known, *(name for name in installed() if name not in known)]
        near = difflib.get_close_matches(model_type.lower().replace("_", "-"), names, n=1, cutoff=0.75)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise UnsupportedConfigError(
            f"Unsupported model_type. Expected one of {', '.join(names)}. Received: {model_type!r}{hint}"
        )
    return known[model_type]


def lineages(known: Iterable[Architecture]) -> dict[str, list[tuple[Architecture, int]]]:
    """Returns the architectures of each branch as a tree: each before those derived from it, with its depth.

    Those that are derived from the same one are sorted by year and name.
    """
    by_age = sorted(known, key=lambda architecture: (architecture.year, architecture.name.lower()))
    branches = {architecture.model_type: architecture.branch for architecture in by_age}

    def below(branch: str, parent: str | None, depth: int) -> Iterator[tuple[Architecture, int]]:
        for child in by_age:
            derived_from = child.derived_from if branches.get(child.derived_from or "") == branch else None
            if child.branch == branch and derived_from == parent:
                yield child, depth
                yield from below(branch, child.model_type, depth + 1)

    return {branch: list(below(branch, None, 0)) for branch in BRANCHES}
