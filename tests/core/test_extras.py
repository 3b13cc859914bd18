"""Tests import what the extra `test` installs; what else they need they ask for, and are skipped without it."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
ASKING = ("need", "importorskip")
FILES = [path for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "programs"]


def required(name: str, extra: str) -> Iterator[Requirement]:
    """Yields what a package, or an extra of it, requires here; for this one, what is declared."""
    if name == "kerasformer":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        yield from map(Requirement, [*project["dependencies"], *project["optional-dependencies"].get(extra, ())])
        return
    for requirement in map(Requirement, metadata.requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def modules_of_test() -> frozenset[str]:
    """Returns the names of the modules that the extra `test` installs, with those of its dependencies."""
    waiting, seen = [("kerasformer", "test")], set()
    while waiting:
        if (each := waiting.pop()) not in seen:
            seen.add(each)
            for requirement in required(*each):
                waiting += [(canonicalize_name(requirement.name), extra) for extra in ("", *requirement.extras)]
    packages = {name for name, _ in seen}
    installed = metadata.packages_distributions()
    return frozenset(name for name, owners in installed.items() if packages & {*map(canonicalize_name, owners)})


def imported(path: Path) -> set[str]:
    """Returns the first names of the modules of others that a file imports, except those that it asks for above."""
    found: list[tuple[str, int]] = []
    asked: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name.split(".")[0], node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((str(node.module).split(".")[0], node.lineno))
        # Packages that no extra has are asked for by importorskip.
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in ASKING:
            asked.setdefault(str(getattr(node.args[0], "value", "")).split(".")[0], node.lineno)
    return {name for name, line in found if line < asked.get(name, sys.maxsize)} - sys.stdlib_module_names


def test_tests_import_what_their_extra_installs() -> None:
    """If not, `need` of `tests.extras` is to be called above the import, or `test` is to have the package."""
    known = modules_of_test() | {path.name for path in ROOT.iterdir()}
    absent = {str(path.relative_to(ROOT)): imported(path) - known for path in FILES}
    assert not {path: names for path, names in absent.items() if names}
