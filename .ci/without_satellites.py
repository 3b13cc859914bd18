"""Imports the core in copies of the package from which one satellite after the other is removed.

Satellites are the folders of `kerasformer/tools/`; `cli`, which is above them, is removed, too.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = "kerasformer/tools"


def satellites() -> list[str]:
    """Returns the names of the folders in `kerasformer/tools/`."""
    return sorted(path.parent.name for path in (ROOT / TOOLS).glob("*/__init__.py"))


def copy_core(folder: Path) -> list[str]:
    """Copies the package with its satellites; returns the names of the modules of the core."""
    package = folder / "kerasformer"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kerasformer", package, ignore=ignored)
    shutil.rmtree(package / "cli")
    for room in ("zoo", "export"):  # where `pyproject.toml` maps them
        shutil.copytree(ROOT / room, package / room, ignore=ignored)
    parts = (path.relative_to(folder).with_suffix("").parts for path in sorted(package.rglob("*.py")))
    return [".".join(names).removesuffix(".__init__") for names in parts if names[1] != "tools"]


def import_error(name: str) -> Exception | None:
    """Imports a module; returns the error that it raises."""
    try:
        importlib.import_module(name)
    except Exception as error:
        return error
    return None


def fails_without(satellite: str, folder: Path, modules: list[str]) -> bool:
    """Imports the modules in a child process while the folder of a satellite is elsewhere; prints what fails."""
    shutil.move(folder / TOOLS / satellite, folder / satellite)
    child = os.fork()  # it has Keras and TensorFlow already, which take longest
    if not child:
        sys.path.insert(0, str(folder))
        # An editable installation would find what was removed.
        sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "_EditableFinder"]
        failed = [f"{name}: {error}" for name in modules if (error := import_error(name))]
        if failed:
            print(f"without {satellite}, {len(failed)} modules cannot be imported, such as {failed[0]}", flush=True)
        os._exit(bool(failed))
    status = os.waitpid(child, 0)[1]
    shutil.move(folder / satellite, folder / TOOLS / satellite)
    return bool(status)


def main() -> None:
    """Exits with status 1 if a module of the core needs a satellite."""
    import keras  # noqa: F401
    import tf2onnx  # noqa: F401

    names = satellites()
    with tempfile.TemporaryDirectory() as folder:
        modules = copy_core(Path(folder))
        failed = [name for name in names if fails_without(name, Path(folder), modules)]
    print(f"{len(modules)} modules without each of {', '.join(names)}; failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
