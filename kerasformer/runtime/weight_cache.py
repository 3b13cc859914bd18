"""What a runtime prepares from a model file once and finds again at later loads, in a folder of bounded size.

A file is named by its key, which holds all that it was made from, and by the sha256 of its own content. It is written
aside and renamed, so that several processes may prepare the same file at once; one that is damaged, or that a killed
process left half-written, is never used: it is removed and made again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from kerasformer.errors import InputError

MAX_BYTES = 4 * 1000**3
"""Of all files together; those that were not used for the longest time make room."""

_SUFFIX = ".packed"
_UNFINISHED = ".unfinished"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is taken for one of a killed process."""

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Entry:
    """A file of a cache.

    Attributes:
        path: Where it is.
        size: In bytes.
        used: Seconds since the epoch, of its last use.
    """

    path: Path
    size: int
    used: float


def user_folder() -> Path:
    """`KERASFORMER_CACHE`, or a folder of ours among the user's caches."""
    if chosen := os.environ.get("KERASFORMER_CACHE"):
        return Path(chosen)
    home = Path.home()
    usual = {"darwin": home / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", home))}
    base = os.environ.get("XDG_CACHE_HOME") or usual.get(sys.platform, home / ".cache")
    return Path(base) / "kerasformer"


def folder_of(cache_dir: str | Path | bool | None) -> Path | None:
    """The folder that `cache_dir=` means: `True` is that of the user, `None` or `False` none.

    Raises:
        InputError: it is no folder that can be made and written to.
    """
    if cache_dir is None or cache_dir is False:
        return None
    folder = user_folder() if cache_dir is True else Path(cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cache_dir must be a folder that can be written. Received: {folder}. {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"cache_dir must be a folder that can be written. Received: {folder}, which is read-only")
    return folder


def key_of(*parts: str) -> str:
    """A key of these parts and of this machine's processor, whose instructions decide about the layout of weights."""
    return hashlib.sha256("\n".join((*parts, _processor())).encode()).hexdigest()[:32]


def load(folder: Path, key: str, make: Callable[[Path], _Made], max_bytes: int = MAX_BYTES) -> _Made:
    """Makes something with a file that is there, or that it writes.

    Args:
        folder: Of the cache.
        key: Of the file.
        make: Gets a path, and reads the file there if there is one or writes it otherwise.
        max_bytes: The most that the folder may hold afterwards.
    """
    if found := _whole(folder, key):
        with suppress(OSError):
            os.utime(found)
        return make(found)
    unfinished = folder / f"{key}-{uuid4().hex}{_UNFINISHED}"
    try:
        made = make(unfinished)
        if unfinished.is_file():
            unfinished.replace(folder / f"{key}-{_sha256(unfinished)}{_SUFFIX}")
    finally:
        with suppress(OSError):  # where a file in use cannot be renamed, nothing is kept
            unfinished.unlink(missing_ok=True)
    trim(folder, max_bytes)
    return made


def entries(folder: Path) -> list[Entry]:
    """The files of a cache, last used first."""
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process may just have removed it
            status = path.stat()
            found.append(Entry(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: -entry.used)


def trim(folder: Path, max_bytes: int) -> int:
    """Removes what was not used for the longest time until the rest fits, and what killed processes left.

    Returns:
        How many bytes were freed.
    """
    total, freed = 0, 0
    for entry in entries(folder):
        total += entry.size
        if total > max_bytes:
            freed += _remove(entry.path)
    for path in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):
            if max_bytes == 0 or time.time() - path.stat().st_mtime > _ABANDONED:
                freed += _remove(path)
    return freed


def _remove(path: Path) -> int:
    """Bytes that this freed; none where another process has the file in use, or was faster."""
    try:
        size = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size


def _whole(folder: Path, key: str) -> Path | None:
    """The file with this key whose content is what its name says; others with this key are removed."""
    for path in sorted(folder.glob(f"{key}-*{_SUFFIX}")):
        with suppress(OSError):
            if path.name == f"{key}-{_sha256(path)}{_SUFFIX}":
                return path
            path.unlink()
    return None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _processor() -> str:
    """What tells processors apart whose kernels lay weights out differently."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        told = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
        return "\n".join((platform.machine(), *told))
    return f"{platform.machine()} {platform.processor()}"
