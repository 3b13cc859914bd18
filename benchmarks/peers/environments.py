"""One virtual environment for each library, as their requirements exclude each other."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalogue import Library

_STAMP = "requirements.txt"


def default_folder() -> Path:
    """In the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "kerasformer" / "peers"


def setup(name: str, library: Library, folder: Path) -> Path:
    """Makes the environment unless it is there already with these requirements; returns its Python.

    Raises:
        subprocess.CalledProcessError: pip failed; its messages are on standard error.
    """
    place = folder / name
    if not _is_ready(place, library):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([str(_python(place)), "-m", "pip", "install", "--quiet", *library.requirements], check=True)
        (place / _STAMP).write_text("\n".join(library.requirements) + "\n")
    return _python(place)


def find(name: str, library: Library, folder: Path) -> Path | None:
    """The Python of the environment; this one where it has all the packages; `None` where there is none."""
    if _is_ready(folder / name, library):
        return _python(folder / name)
    return Path(sys.executable) if all(map(_is_installed_here, library.requirements)) else None


def _is_ready(place: Path, library: Library) -> bool:
    stamp = place / _STAMP
    return stamp.exists() and stamp.read_text().split() == list(library.requirements)


def _python(place: Path) -> Path:
    return place / "bin" / "python" if os.name != "nt" else place / "Scripts" / "python.exe"


def _is_installed_here(requirement: str) -> bool:
    package, version = requirement.split("==")
    try:
        return importlib.metadata.version(package.split("[")[0]).split("+")[0] == version
    except importlib.metadata.PackageNotFoundError:
        return False
