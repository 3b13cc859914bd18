"""Imports the core in copies of the package without one satellite after the other, and runs it without all of them.

Satellites are the folders of `kerasformer/tools/`; `cli`, which is above them, is removed, too.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
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
    return [".".join(names).removesuffix(".__init__") for names in parts if names[1] not in ("tools", "moved")]


def run() -> None:
    """Goes through the core: loads a model, exports it and compares the answers of the model and of the bundle."""
    import kerasformer as kf

    with tempfile.TemporaryDirectory() as folder:
        model = kf.load("sentiment-bert")
        model.export(Path(folder) / "bundle", format="onnx")
        expected, received = (kf.pipeline(source)("A fine film.") for source in (model, Path(folder) / "bundle"))
    if expected[0]["label"] != received[0]["label"]:
        raise RuntimeError(f"other answers were received: {received}, and not {expected}")


def error_of(function: Callable[..., object], *arguments: object) -> Exception | None:
    """Calls a function; returns the error that it raises."""
    try:
        function(*arguments)
    except Exception as error:
        return error
    return None


def fails_without(removed: list[str], folder: Path, modules: list[str]) -> bool:
    """Imports the modules in a child process while the folders of satellites are elsewhere; prints what fails.

    Without any satellite, the core also runs.
    """
    for name in removed:
        shutil.move(folder / TOOLS / name, folder / name)
    child = os.fork()  # it has Keras and TensorFlow already, which take longest
    if not child:
        sys.path.insert(0, str(folder))
        # An editable installation would find what was removed.
        sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "_EditableFinder"]
        failed = [f"{name}: {error!r}" for name in modules if (error := error_of(importlib.import_module, name))]
        if len(removed) > 1 and (error := error_of(run)):
            failed.append(f"its functions: {error!r}")
        if failed:
            print(
                f"without {', '.join(removed)}, {len(failed)} parts of the core fail, such as {failed[0]}", flush=True
            )
        os._exit(bool(failed))
    status = os.waitpid(child, 0)[1]
    for name in removed:
        shutil.move(folder / name, folder / TOOLS / name)
    return bool(status)


def main() -> None:
    """Exits with status 1 if the core needs a satellite."""
    import keras  # noqa: F401
    import tf2onnx  # noqa: F401

    names = satellites()
    with tempfile.TemporaryDirectory() as folder:
        modules = copy_core(Path(folder))
        failed = [
            removed for removed in (*([name] for name in names), names) if fails_without(removed, Path(folder), modules)
        ]
    print(f"{len(modules)} modules without each of {', '.join(names)}, and without all; failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
