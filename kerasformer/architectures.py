"""The tasks of each architecture, read from the source of `kerasformer.zoo`, so that Keras is not imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from kerasformer import sources


def models() -> dict[str, list[str]]:
    """The tasks of each architecture by its `model_type`, as `kerasformer.zoo.models` has them."""
    files = sorted(path for path in sources.zoo_folder().glob("*.py") if path.stem != "__init__")
    return {_model_type(path): [_task(path, name) for name in _model_classes(path)] for path in files}


def _model_type(path: Path) -> str:
    """The `model_type` of the configuration class in a file of the zoo."""
    classes = [node for node in _tree(path).body if isinstance(node, ast.ClassDef)]
    return next(value for each in classes if (value := _attribute(each, "model_type")) is not None)


def _model_classes(path: Path) -> list[str]:
    """Names of the classes in `MODELS = by_task(…)`."""
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and _assigns(node, "MODELS") and isinstance(node.value, ast.Call):
            return [argument.id for argument in node.value.args if isinstance(argument, ast.Name)]
    return []


def _task(path: Path, name: str) -> str:
    """The task of a class: its own attribute, or that of the first base class that has one."""
    found = _definition(path, name)
    if found is None:
        return ""
    path, definition = found
    task = _attribute(definition, "task")
    if task is not None:
        return task
    return next(filter(None, (_task(path, ast.unparse(base)) for base in definition.bases)), "")


def _definition(path: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """The class that `name` means in a file, and the file that defines it; `name` may have the name of a module."""
    first, _, rest = name.partition(".")
    for node in _tree(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return path, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kerasformer."):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    module = f"{node.module}.{alias.name}" if rest else str(node.module)
                    return _definition(_file(module), rest or alias.name)
    return None  # of another package


def _attribute(definition: ast.ClassDef, name: str) -> str | None:
    """The text that a class assigns to an attribute, or `None`."""
    for node in definition.body:
        if isinstance(node, ast.Assign) and _assigns(node, name) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _file(module: str) -> Path:
    """The file of a module, which is not imported."""
    parts = module.split(".")
    if parts[1] == "zoo":
        return sources.zoo_folder().joinpath(*parts[2:]).with_suffix(".py")
    return Path(__file__).parent.joinpath(*parts[1:]).with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
