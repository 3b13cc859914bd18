"""The architectures: what each one is and which tasks it has.

All of it is parsed from the source of `kerasformer.zoo`, so that Keras is not imported.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kerasformer import sources
from kerasformer.errors import UnsupportedConfigError
from kerasformer.tasks import of_class

ENCODER, DECODER, ENCODER_DECODER = BRANCHES = ("encoder", "decoder", "encoder-decoder")
"""Kinds of architectures, by the parts of the original Transformer that they have."""

_BACKBONES = {"BidirectionalEncoder": ENCODER, "CausalDecoder": DECODER, "EncoderDecoder": ENCODER_DECODER}
"""The kind of an architecture by the base class of its backbone."""


@dataclass(frozen=True)
class Architecture:
    """An architecture, as its file in the zoo describes it.

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


@cache
def architectures() -> dict[str, Architecture]:
    """Returns all architectures by `model_type`, in alphabetical order."""
    files = sorted(path for path in sources.zoo_folder().glob("*.py") if path.stem != "__init__")
    found = [_read(path) for path in files]
    return {each.model_type: each for each in found}


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
        near = difflib.get_close_matches(model_type.lower().replace("_", "-"), known, n=1, cutoff=0.75)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise UnsupportedConfigError(
            f"Unsupported model_type. Expected one of {', '.join(known)}. Received: {model_type!r}{hint}"
        )
    return known[model_type]


def lineage(branch: str) -> list[tuple[Architecture, int]]:
    """Returns the architectures of a branch as a tree: each before those derived from it, with its depth.

    Those that are derived from the same one are sorted by year and name.
    """
    members = [each for each in architectures().values() if each.branch == branch]
    names = {each.model_type for each in members}

    def below(parent: str | None, depth: int) -> Iterator[tuple[Architecture, int]]:
        children = [each for each in members if (each.derived_from if each.derived_from in names else None) == parent]
        for child in sorted(children, key=lambda each: (each.year, each.name.lower())):
            yield child, depth
            yield from below(child.model_type, depth + 1)

    return list(below(None, 0))


def _read(path: Path) -> Architecture:
    """Reads the file of an architecture."""
    described = ast.get_docstring(_tree(path)) or ""
    title, _, summary = described.splitlines()[0].partition(": ")
    parent = re.search(r"^Derived from: `([\w-]+)`", described, re.MULTILINE)
    paper = re.search(r"^Paper: (.+?)\.(?:\s+Reference: .*)?$", described, re.MULTILINE | re.DOTALL)
    citation = " ".join(paper[1].split()) if paper else ""
    year = re.search(r"\b(?:19|20)\d\d\b", citation)
    classes = _model_classes(path)
    return Architecture(
        model_type=_model_type(path),
        name=title,
        branch=_branch(path, classes),
        summary=summary.removesuffix("."),
        derived_from=parent[1] if parent else None,
        year=int(year[0]) if year else 0,
        paper=citation,
        tasks=tuple(task for name in classes for task in of_class(_task(path, name))),
    )


def _model_type(path: Path) -> str:
    """Returns the `model_type` of the configuration class in a file of the zoo."""
    classes = [node for node in _tree(path).body if isinstance(node, ast.ClassDef)]
    return next(value for each in classes if (value := _attribute(each, "model_type")) is not None)


def _branch(path: Path, classes: list[str]) -> str:
    """Returns the kind of the backbone of the model classes."""
    for name in classes:
        located = _definition(path, name)
        for keyword in located[1].keywords if located else ():
            if located and keyword.arg == "backbone":
                bases = _base_classes(located[0], ast.unparse(keyword.value))
                return next(_BACKBONES[base] for base in bases if base in _BACKBONES)
    raise LookupError(f"{path} has no model class with a backbone")


def _base_classes(path: Path, name: str) -> Iterator[str]:
    """Yields the name of a class and of all its base classes."""
    located = _definition(path, name)
    if located is not None:
        yield located[1].name
        for base in located[1].bases:
            yield from _base_classes(located[0], ast.unparse(base))


def _model_classes(path: Path) -> list[str]:
    """Returns the names of the classes in `MODELS = by_task(…)`."""
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and _assigns(node, "MODELS") and isinstance(node.value, ast.Call):
            return [argument.id for argument in node.value.args if isinstance(argument, ast.Name)]
    return []


def _task(path: Path, name: str) -> str:
    """Returns the `task` attribute of a class, or that of the first base class that has one."""
    located = _definition(path, name)
    if located is None:
        return ""
    path, definition = located
    task = _attribute(definition, "task")
    if task is not None:
        return task
    return next(filter(None, (_task(path, ast.unparse(base)) for base in definition.bases)), "")


def _definition(path: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """Returns the file that defines a class and its definition.

    Args:
        path: File that uses the class.
        name: Name of the class in that file, possibly qualified by a module.
    """
    first, _, rest = name.partition(".")
    for node in _tree(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return path, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kerasformer."):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    module = f"{node.module}.{alias.name}" if rest else str(node.module)
                    return _definition(_file(module), rest or alias.name)
    return None  # defined in another package


def _attribute(definition: ast.ClassDef, name: str) -> str | None:
    """Returns the constant that a class assigns to an attribute, as text, or `None`."""
    for node in definition.body:
        if isinstance(node, ast.Assign) and _assigns(node, name) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _file(module: str) -> Path:
    """Returns the file of a module without importing it."""
    parts = module.split(".")
    if parts[1] == "zoo":
        return sources.zoo_folder().joinpath(*parts[2:]).with_suffix(".py")
    return Path(__file__).parent.joinpath(*parts[1:]).with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
