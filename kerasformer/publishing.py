"""Puts a finished folder in the place of an old one so that a crash at any moment loses neither.

The new folder is written beside its destination, in a hidden sibling (`staging`). `publish` then exchanges the two in
one step and removes the old one. Where the system cannot do that, it moves the old folder aside and the new one into
place: a crash between these moves leaves no destination, only the old folder under its hidden name, and `repair`,
called at the next opening, moves it back. A staging folder is locked as long as its process lives; one that a killed
process left behind is removed at the next opening. Files in the old folder that are not part of the bundle are kept.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kerasformer.errors import BundleError, KerasformerError, SourceError, argument
from kerasformer.files import local_path, read_json

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
_ATTEMPTS = 100
_PAUSE = 0.01
"""Seconds between attempts to move a folder into place: who opens a bundle between two moves puts the old one back."""
_LISTS = {MANIFEST: "files", SITE: "names"}
"""Where each kind of folder names the files that belong to it."""


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
            f"{_KINDS[mark]} is there already. Received: {destination}. "
            f"Pass {argument('overwrite', True)} to replace it"
        )
    return destination


@contextmanager
def staging(
    destination: str | Path, what: str = "bundle", error_type: type[KerasformerError] = BundleError
) -> Iterator[Path]:
    """A new folder beside `destination`, to be filled and given to `publish`; removed if that does not happen.

    Args:
        destination: Where the content will go.
        what: What errors call the content.
        error_type: What is raised.
    Raises:
        BundleError: the folder cannot be made, or a file cannot be written into it: a full disk, a read-only place.
    """
    destination = local_path(destination, error_type)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder, lock = _locked_folder(destination)
    except OSError as error:
        raise error_type(
            f"a {what} cannot be written there: {error}. Expected a place where folders may be made. "
            f"Received: {destination}. Choose another one"
        ) from error
    try:
        yield folder
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise error_type(
            f"the {what} could not be written: {error}. Received: {destination}. Nothing was changed there; make room, "
            "or choose another place"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def publish(folder: Path, destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Moves a finished folder to its destination, on the same file system; at every moment one whole folder is there.

    Files that are there and that the old bundle does not list are kept.

    Returns:
        The absolute destination.
    Raises:
        BundleError: see `check_destination`; also where a file that is to be kept has the name of a new one, and when
            the move fails, and then the old folder is back in place.
    """
    destination = check_destination(destination, overwrite, mark)
    _flush(folder)
    if (destination / mark).is_file():
        _keep_foreign(destination, folder, mark)
        if _exchange(folder, destination):
            _flush_entry(destination.parent)
            shutil.rmtree(folder, ignore_errors=True)  # now the old one
            return destination
    _move(folder, destination)
    _flush_entry(destination.parent)
    shutil.rmtree(_aside(destination), ignore_errors=True)
    return destination


def _exchange(folder: Path, destination: Path) -> bool:
    """Swaps two folders in one step; false where the system or the file system cannot."""
    if sys.platform == "linux":
        at_working_directory, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        rename = getattr(ctypes.CDLL(None), "renameat2", None)
        arguments = at_working_directory, os.fsencode(folder), at_working_directory, os.fsencode(destination), exchange
    elif sys.platform == "darwin":
        rename = getattr(ctypes.CDLL(None), "renamex_np", None)
        arguments = os.fsencode(folder), os.fsencode(destination), 2  # RENAME_SWAP
    else:
        return False
    return rename is not None and rename(*arguments) == 0


def _move(folder: Path, destination: Path) -> None:
    """Puts a folder in the place of another in two moves."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if destination.exists():
                destination.rename(_aside(destination))
            folder.rename(destination)
            return
        except OSError as error:
            repair(destination)
            # Who opens the bundle between the two moves puts the old one back: then again.
            if attempt == _ATTEMPTS or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise BundleError(
                    f"the finished folder could not be moved into place: {error}. Received: {destination}. "
                    "What was there before is untouched; try again with another folder"
                ) from error
            time.sleep(_PAUSE)


def _keep_foreign(old: Path, new: Path, mark: str) -> None:
    """Puts the files of the old folder that its bundle does not list into the new one.

    Raises:
        BundleError: the new folder has files of the same names, or one cannot be copied.
    """
    own = _own_files(old, mark)
    foreign = [name for name in _files(old) if own is None or name not in own]
    taken = [name for name in foreign if os.path.lexists(new / name)]
    if taken and own is not None:
        raise BundleError(
            f"the new {_KINDS[mark].split()[-1]} would replace files that the old one did not write: "
            f"{', '.join(taken)} in {old}. Nothing was changed there. Move them elsewhere, or choose another folder"
        )
    for name in foreign:
        if name in taken:  # whose it is cannot be known without a readable list
            continue
        try:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(old / name, new / name)
        except OSError as error:
            raise BundleError(
                f"{name} in {old} is not part of what is replaced, and cannot be kept: {error}. Nothing was changed "
                "there. Move it elsewhere, or choose another folder"
            ) from error


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _files(folder: Path) -> list[str]:
    """Files and links below a folder, relative to it with `/`; links are not followed."""
    found = []
    for path, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        found += [(Path(path) / name).relative_to(folder).as_posix() for name in (*links, *files)]
    return sorted(found)


def _own_files(folder: Path, mark: str) -> set[str] | None:
    """Files that a bundle or a site lists; `None` if its list cannot be read."""
    try:
        content = read_json(folder / mark)
        return {mark, *content[_LISTS[mark]]}
    except (SourceError, KeyError, TypeError):
        return None


def repair(destination: str | Path) -> Path:
    """Finishes or undoes a swap that a crash interrupted, and removes what a killed export left behind.

    Returns:
        The absolute destination, whether or not anything is there.
    """
    destination = local_path(destination, BundleError)
    old = _aside(destination)
    if os.path.isdir(old):  # unlike Path.is_dir, false where the name is too long
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
        try:
            old.rename(destination)
        except OSError:
            if old.is_dir() and not destination.is_dir():  # no other process repaired it in the meantime
                raise


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
