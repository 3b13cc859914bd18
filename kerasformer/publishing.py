"""Crash-safe replacement of an output folder: a crash at any moment loses neither the old nor the new one.

The new folder is written beside its destination, in a hidden sibling (`staging`). `publish` then exchanges the two
atomically and removes the old one. If the system does not support that, it locks the old folder, moves it aside and the
new one into place. A crash between these moves leaves no destination, only the old folder under its hidden name and
without a lock; `repair`, called whenever a bundle is opened, moves it back. While that folder is locked, `repair` waits
for the second move. A staging folder is locked while its process is alive; one that a killed process left behind is
removed by `repair`. Files in the old folder that are not part of the bundle are kept.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
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
except ImportError:  # without locks, on Windows, an abandoned folder cannot be distinguished from one in use
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
_PATIENCE = 10.0
"""Seconds for which another process is waited for that is between its two moves, or that undoes the first of ours."""
_LISTS = {MANIFEST: "files", SITE: "names"}
"""Field of the marker file that lists the files belonging to each kind of folder."""


def check_destination(destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Checks that a folder may be written, before any work is done; repairs an interrupted exchange first.

    Args:
        destination: Folder to write.
        overwrite: Whether an existing folder of the same kind may be replaced.
        mark: File that identifies the kind of folder, a bundle by default.
    Returns:
        The absolute destination.
    Raises:
        BundleError: the destination exists and `overwrite` is false, or it is not empty and not a folder of this kind.
    """
    destination = repair(destination)
    if not destination.exists() or _empty(destination):
        return destination
    if not (destination / mark).is_file():
        raise BundleError(
            f"only {_KINDS[mark]} or an empty folder may be replaced. Received: {destination}, which has no {mark}. "
            "Choose another folder, or remove this one yourself"
        )
    if not overwrite:
        raise BundleError(
            f"{_KINDS[mark]} already exists there. Received: {destination}. "
            f"Pass {argument('overwrite', True)} to replace it"
        )
    return destination


@contextmanager
def staging(
    destination: str | Path, what: str = "bundle", error_type: type[KerasformerError] = BundleError
) -> Iterator[Path]:
    """Creates a folder beside `destination`, to be filled and passed to `publish`; removed on exit otherwise.

    Args:
        destination: Final location of the content.
        what: Name of the content in error messages.
        error_type: Type of the exception.
    Raises:
        BundleError: the folder cannot be created or written, for example because the disk is full or read-only; the
            type is `error_type`.
    """
    destination = local_path(destination, error_type)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder, lock = _locked_folder(destination)
    except OSError as error:
        raise error_type(
            f"a {what} cannot be written there: {error}. Expected a location where folders can be created. "
            f"Received: {destination}. Choose another folder"
        ) from error
    try:
        yield folder
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise error_type(
            f"the {what} could not be written: {error}. Received: {destination}. Nothing was changed there. "
            "Free disk space, or choose another folder"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def move_files(folder: Path, destination: Path) -> None:
    """Moves all files of a finished folder into an existing or new one on the same file system; others are kept.

    Raises:
        OSError: the destination is not writable.
    """
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        target = destination / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def publish(folder: Path, destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Moves a finished folder to its destination on the same file system, so that a complete folder always exists.

    Existing files that the old bundle does not list are kept.

    Returns:
        The absolute destination.
    Raises:
        BundleError: as for `check_destination`; or a file to be kept has the name of a new one; or the move fails, in
            which case the old folder is restored.
    """
    destination = check_destination(destination, overwrite, mark)
    _flush(folder)
    if (destination / mark).is_file():
        _keep_foreign(destination, folder, mark)
        if _exchange(folder, destination):
            _flush_entry(destination.parent)
            shutil.rmtree(folder, ignore_errors=True)  # has the old content now
            return destination
    _move(folder, destination)
    _flush_entry(destination.parent)
    shutil.rmtree(_aside(destination), ignore_errors=True)
    return destination


def _exchange(folder: Path, destination: Path) -> bool:
    """Exchanges two folders atomically; returns false if the system or the file system does not support it."""
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
    """Replaces a folder by another in two moves, during which the old one is locked."""
    failure: OSError | None = None
    for pause in _pauses():
        try:
            with _locked(destination):
                if destination.exists():
                    destination.rename(_aside(destination))
                folder.rename(destination)
            return
        except OSError as error:
            failure = error
        repair(destination)
        # Another process put a folder there between the two moves: try again.
        if failure.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            break
        time.sleep(pause)
    raise BundleError(
        f"the finished folder could not be moved into place: {failure}. Received: {destination}. "
        "Its previous content is unchanged. Try again with another folder"
    ) from failure


def _pauses() -> Iterator[float]:
    """Yields pauses in seconds that grow up to a limit, for `_PATIENCE`; random, lest two processes stay in step."""
    end, longest = time.monotonic() + _PATIENCE, 0.002
    generator = random.Random()  # the global one belongs to the program
    while time.monotonic() < end:
        yield generator.uniform(0, longest)
        longest = min(2 * longest, 0.2)


def _keep_foreign(old: Path, new: Path, mark: str) -> None:
    """Copies or links files of the old folder that are not part of its bundle into the new folder.

    Raises:
        BundleError: the new folder has files of the same names, or a file cannot be copied.
    """
    listed = _listed_files(old, mark)
    foreign = [name for name in _files(old) if listed is None or name not in listed]
    conflicts = [name for name in foreign if os.path.lexists(new / name)]
    if conflicts and listed is not None:
        raise BundleError(
            f"the new {_KINDS[mark].split()[-1]} would replace files that the old one did not write: "
            f"{', '.join(conflicts)} in {old}. Nothing was changed there. Move them elsewhere, or choose another folder"
        )
    for name in foreign:
        if name in conflicts:  # without a readable list, it is probably part of the old bundle
            continue
        try:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(old / name, new / name)
        except OSError as error:
            raise BundleError(
                f"{name} in {old} is not part of the replaced content and cannot be kept: {error}. Nothing was changed "
                "there. Move it elsewhere, or choose another folder"
            ) from error


def link_or_copy(source: Path, target: Path) -> None:
    """Makes a hard link to a file, or copies it where the file system has none."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _files(folder: Path) -> list[str]:
    """Returns the relative paths, with `/`, of all files and links below a folder; links are not followed."""
    names = []
    for path, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        names += [(Path(path) / name).relative_to(folder).as_posix() for name in (*links, *files)]
    return sorted(names)


def _listed_files(folder: Path, mark: str) -> set[str] | None:
    """Returns the files that a bundle or a site lists; `None` if the list cannot be read."""
    try:
        content = read_json(folder / mark)
        return {mark, *content[_LISTS[mark]]}
    except (SourceError, KeyError, TypeError):
        return None


def repair(destination: str | Path) -> Path:
    """Completes or undoes an exchange that a crash interrupted, and removes staging folders of killed processes.

    Returns:
        The absolute destination, which need not exist.
    """
    destination = local_path(destination, BundleError)
    old = _aside(destination)
    if os.path.isdir(old):  # unlike Path.is_dir, false where the name is too long
        _await_move(old, destination)
        _undo(old, destination)
    _remove_abandoned(destination)
    return destination


def _await_move(old: Path, destination: Path) -> None:
    """Waits while a running process is between the two moves that replace a folder."""
    for pause in _pauses():
        if _is_complete(destination) or not _is_locked(old):
            return
        time.sleep(pause)


def _undo(old: Path, destination: Path) -> None:
    """Moves the old folder back, or removes it if the new one is in place."""
    if _is_complete(destination):  # the crash happened while the old folder was removed
        shutil.rmtree(old, ignore_errors=True)
        return
    if destination.is_dir() and _empty(destination):
        destination.rmdir()
    if not destination.exists():
        try:
            old.rename(destination)
        except OSError:
            if old.is_dir() and not destination.is_dir():  # otherwise another process has repaired it in the meantime
                raise


def _is_complete(destination: Path) -> bool:
    """Returns whether a folder is a bundle or a site."""
    return any((destination / mark).is_file() for mark in _KINDS)


def _staged(destination: Path) -> str:
    return f".{destination.name}.kerasformer-new-"


def _locked_folder(destination: Path) -> tuple[Path, int | None]:
    """Creates a folder beside the destination; returns it and a descriptor that locks it while the process is alive."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_staged(destination), dir=destination.parent))
        lock = _lock(folder)
        # Another process may have taken the folder for abandoned before it was locked, and be removing it.
        if not (lock is None and _is_locked(folder)) and folder.is_dir():
            folder.chmod(0o755)  # mkdtemp creates private folders; a bundle is an ordinary folder
            return folder, lock
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Locks a folder; returns the descriptor, or `None` if another process holds the lock or locks are unsupported."""
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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder, if it exists and locks are supported; `_is_locked` finds it locked under any later name."""
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _is_locked(folder: Path) -> bool:
    """Returns whether a running process has locked a folder; false if locks are unsupported."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _remove_abandoned(destination: Path) -> None:
    """Removes staging folders of this destination that no running process has locked."""
    prefix = _staged(destination)
    try:
        with os.scandir(destination.parent) as entries:
            folders = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    except OSError:  # the parent folder does not exist or cannot be listed
        return
    for folder in folders:
        if folder.is_symlink() or (lock := _lock(folder)) is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _aside(destination: Path) -> Path:
    return destination.parent / f".{destination.name}.kerasformer-old"


def _empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None


def _flush(folder: Path) -> None:
    """Flushes files to disk before the old folder is removed: a rename may reach the disk before the content does."""
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
