"""Tasks of each architecture, parsed from the source of `kerasformer.zoo` so that Keras is not imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from kerasformer import sources
from kerasformer.tasks import of_class


def models() -> dict[str, list[str]]:
    """Returns the tasks of each architecture by `model_type`, like `kerasformer.zoo.models`."""
    files = sorted(path for path in sources.zoo_folder().glob("*.py") if path.stem != "__init__")
    return {
        _model_type(path): [task for name in _model_classes(path) for task in of_class(_task(path, name))]
        for path in files
    }


def _model_type(path: Path) -> str:
    """Returns the `model_type` of the configuration class in a file of the zoo."""
    classes = [node for node in _tree(path).body if isinstance(node, ast.ClassDef)]
    return next(value for each in classes if (value := _attribute(each, "model_type")) is not None)


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
