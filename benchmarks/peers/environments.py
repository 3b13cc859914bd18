"""Virtual environments, one for each library because their requirements are incompatible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalogue import Library, Source

_STAMP = "requirements.txt"


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "kerasformer" / "peers"


def setup(name: str, library: Library, folder: Path) -> Path:
    """Creates the environment unless it exists with the same requirements; returns its Python.

    Raises:
        subprocess.CalledProcessError: pip failed; its messages are on standard error.
    """
    environment = folder / name
    if not _is_ready(environment, library):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pip = [str(_python(environment)), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *library.requirements], check=True)
        if library.source is not None:
            _compile(library.source, environment)
        (environment / _STAMP).write_text("\n".join(_pins(library)) + "\n")
    return _python(environment)


def _compile(source: Source, environment: Path) -> None:
    """Downloads the source of a package and installs what is compiled from it."""
    pip, folder = [str(_python(environment)), "-m", "pip"], environment / "source"
    name, _ = source.requirement.split("==")
    archives = ["--no-deps", "--no-binary", name, "--dest", str(folder)]
    subprocess.run([*pip, "download", "--quiet", *archives, source.requirement], check=True)
    (archive,) = folder.iterdir()
    shutil.unpack_archive(archive, folder)
    archive.unlink()
    (unpacked,) = folder.iterdir()
    subprocess.run([*pip, "install", "--quiet", str(unpacked)], check=True, env={**os.environ, **source.settings})


def _pins(library: Library) -> list[str]:
    return [*library.requirements, *([] if library.source is None else [library.source.requirement])]


def find(name: str, library: Library, folder: Path) -> Path | None:
    """Returns the Python of the environment; `None` if it does not exist with these requirements."""
    return _python(folder / name) if _is_ready(folder / name, library) else None


def _is_ready(environment: Path, library: Library) -> bool:
    stamp = environment / _STAMP
    return stamp.exists() and stamp.read_text().split() == _pins(library)


def _python(environment: Path) -> Path:
    return environment / "bin" / "python" if os.name != "nt" else environment / "Scripts" / "python.exe"
