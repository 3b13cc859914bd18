"""Puts a finished folder in the place of an old one so that a crash at any moment loses neither.

The new folder is written beside its destination, in a hidden sibling (`staging`). `publish` then moves the old folder
aside, moves the new one into place and removes the old one. A crash between the two moves leaves no destination, only
the old folder under its hidden name: `repair`, called at the next opening, moves it back. A staging folder is locked
as long as its process lives; one that a killed process left behind is removed at the next opening.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kerasformer.errors import BundleError

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, nothing tells a dead process's folder from a live one's
    fcntl = None  # type: ignore[assignment]

MANIFEST = "kerasformer.json"
"""The file that makes a folder a bundle."""
SITE = "site.json"
"""The file that makes a folder a web site of bundles."""
_KINDS = {MANIFEST: "a bundle", SITE: "a site"}

_DISK_ERRORS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO")
    if hasattr(errno, name)
}
_ATTEMPTS = 3


def check_destination(destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Says before any work starts whether a bundle, or what else has the file `mark`, may be written there.

    Returns:
        The absolute destination, an interrupted swap repaired.
    Raises:
        BundleError: something is there and `overwrite` is false, or it is not a bundle: only bundles are replaced.
    """
    destination = repair(destination)
    if not destination.exists() or _empty(destination):
        return destination
    if not (destination / mark).is_file():
        raise BundleError(
            f"only {_KINDS[mark]} or an empty folder may be replaced. Received: {destination}, which holds no {mark}. "
            "Choose another folder, or remove this one yourself"
        )
    if not overwrite:
        raise BundleError(
            f"{_KINDS[mark]} is there already. Received: {destination}. Pass overwrite=True to replace it"
        )
    return destination


@contextmanager
def staging(destination: str | Path) -> Iterator[Path]:
    """A new folder beside `destination`, to be filled and given to `publish`; removed if that does not happen.

    Raises:
        BundleError: the folder cannot be made, or a file cannot be written into it: a full disk, a read-only place.
    """
    destination = Path(destination).expanduser().resolve()
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder, lock = _locked_folder(destination)
    except OSError as error:
        raise BundleError(
            f"a bundle cannot be written there: {error}. Expected a place where folders may be made. "
            f"Received: {destination}. Choose another one"
        ) from error
    try:
        yield folder
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise BundleError(
            f"the bundle could not be written: {error}. Received: {destination}. Nothing was changed there; make room, "
            "or choose another place"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def publish(folder: Path, destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Moves a finished folder to its destination, on the same file system; at every moment one whole folder is there.

    Returns:
        The absolute destination.
    Raises:
        BundleError: see `check_destination`; also when the move fails, and then the old folder is back in place.
    """
    destination = check_destination(destination, overwrite, mark)
    _flush(folder)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if destination.exists():
                destination.rename(_aside(destination))
            folder.rename(destination)
            break
        except OSError as error:
            repair(destination)
            # Who opens the bundle between the two moves puts the old one back: then again.
            if attempt == _ATTEMPTS or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise BundleError(
                    f"the finished folder could not be moved into place: {error}. Received: {destination}. "
                    "What was there before is untouched; try again with another folder"
                ) from error
    _flush_entry(destination.parent)
    shutil.rmtree(_aside(destination), ignore_errors=True)
    return destination


def repair(destination: str | Path) -> Path:
    """Finishes or undoes a swap that a crash interrupted, and removes what a killed export left behind.

    Returns:
        The absolute destination, whether or not anything is there.
    """
    destination = Path(destination).expanduser().resolve()
    old = _aside(destination)
    if old.is_dir():
        _undo(old, destination)
    _remove_abandoned(destination)
    return destination


def _undo(old: Path, destination: Path) -> None:
    """Puts the old folder back, or removes it where the new one is in place."""
    if any((destination / mark).is_file() for mark in _KINDS):  # the crash came while the old folder was removed
        shutil.rmtree(old, ignore_errors=True)
        return
    if destination.is_dir() and _empty(destination):
        destination.rmdir()
    if not destination.exists():
        with suppress(FileNotFoundError):  # another process repaired it in the meantime
            old.rename(destination)


def _staged(destination: Path) -> str:
    return f".{destination.name}.kerasformer-new-"


def _locked_folder(destination: Path) -> tuple[Path, int | None]:
    """A new folder beside the destination, and the descriptor that locks it as long as this process lives."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_staged(destination), dir=destination.parent))
        lock = _lock(folder)
        if folder.is_dir():  # or another process took it for abandoned before it was locked
            folder.chmod(0o755)  # mkdtemp's folders are private; a bundle is an ordinary folder
            return folder, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; `None` where another has it, or the file system has no locks."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(destination: Path) -> None:
    """Removes staging folders of this destination that no living process holds."""
    prefix = _staged(destination)
    try:
        with os.scandir(destination.parent) as entries:
            left = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    except OSError:  # there may be no such folder, or none that can be listed
        return
    for folder in left:
        if folder.is_symlink() or (lock := _lock(folder)) is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _aside(destination: Path) -> Path:
    return destination.parent / f".{destination.name}.kerasformer-old"


def _empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None


def _flush(folder: Path) -> None:
    """Makes files durable before the old folder goes: a rename may reach the disk before the bytes do."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            _flush_entry(path)
    _flush_entry(folder)


def _flush_entry(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
