"""Disk cache of weights that a runtime has packed from a model file, with a limited total size.

The name of a cache file consists of its key, which is a hash of everything that it depends on, and of the SHA-256 of
its content. It is written to a temporary file and renamed, so that several processes may create the same file at once.
A damaged or partly written file is never used; it is removed and created again.
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

from kerasformer.bundle import sha256
from kerasformer.errors import InputError

MAX_BYTES = 4 * 1000**3
"""Maximum total size of a cache; the least recently used files are removed first."""

_SUFFIX = ".packed"
_UNFINISHED = ".unfinished"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is considered left behind by a killed process."""

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Entry:
    """A cached file.

    Attributes:
        path: Path of the file.
        size: Size in bytes.
        used: Time of the last use, in seconds since the epoch.
    """

    path: Path
    size: int
    used: float


def user_folder() -> Path:
    """Returns the folder set by `KERASFORMER_CACHE`, or `kerasformer` in the user's cache folder.

    Raises:
        InputError: the user has no home folder, such as one without a name in a container.
    """
    if folder := os.environ.get("KERASFORMER_CACHE"):
        return Path(folder)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "kerasformer"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise InputError(
            "The cache needs a folder, and this user has no home folder. Set the environment variable "
            "KERASFORMER_CACHE to a folder that can be written"
        ) from error
    defaults = {"darwin": home / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", home))}
    return defaults.get(sys.platform, home / ".cache") / "kerasformer"


def folder_of(cache_dir: str | Path | bool | None) -> Path | None:
    """Returns the folder for a value of `cache_dir`: that of the user for `True`, `None` for `None` or `False`.

    Raises:
        InputError: the folder cannot be created or written to, or is unknown; see `user_folder`.
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
    """Returns a key for these parts and the processor, whose instruction set determines the layout of weights."""
    return hashlib.sha256("\n".join((*parts, _processor())).encode()).hexdigest()[:32]


def load(folder: Path, key: str, make: Callable[[Path], _Made], max_bytes: int = MAX_BYTES) -> _Made:
    """Creates an object with a cached file, or caches the file that its creation writes.

    Args:
        folder: Folder of the cache.
        key: Key of the file.
        make: Function that receives a path, and reads the file if it exists or writes it otherwise.
        max_bytes: Maximum total size of the cache afterwards.
    Returns:
        The result of `make`.
    """
    if cached := _valid_file(folder, key):
        with suppress(OSError):
            os.utime(cached)
        return make(cached)
    unfinished = folder / f"{key}-{uuid4().hex}{_UNFINISHED}"
    try:
        result = make(unfinished)
        if unfinished.is_file():
            unfinished.replace(folder / f"{key}-{sha256(unfinished)}{_SUFFIX}")
    finally:
        with suppress(OSError):  # on systems that cannot rename a file in use, nothing is cached
            unfinished.unlink(missing_ok=True)
    trim(folder, max_bytes)
    return result


def entries(folder: Path) -> list[Entry]:
    """Returns the files of a cache, most recently used first."""
    files = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process may have removed it meanwhile
            status = path.stat()
            files.append(Entry(path, status.st_size, status.st_mtime))
    return sorted(files, key=lambda entry: -entry.used)


def trim(folder: Path, max_bytes: int) -> int:
    """Removes the least recently used files above `max_bytes`, and files left behind by killed processes.

    Returns:
        Number of bytes freed.
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
    """Removes a file; returns the bytes freed, 0 if it is in use or another process has removed it."""
    try:
        size = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size


def _valid_file(folder: Path, key: str) -> Path | None:
    """Returns the file with this key whose content has the checksum in its name; removes damaged ones."""
    for path in sorted(folder.glob(f"{key}-*{_SUFFIX}")):
        with suppress(OSError):
            if path.name == f"{key}-{sha256(path)}{_SUFFIX}":
                return path
            path.unlink()
    return None


def _processor() -> str:
    """Returns a description of the processor that differs if kernels lay out weights differently."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
        return "\n".join((platform.machine(), *features))
    return f"{platform.machine()} {platform.processor()}"
