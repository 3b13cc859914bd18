"""Safe replacement of an output folder: write beside, rename, repair.

The new folder is written in a hidden sibling of its destination (`staging`). `publish` renames the old folder to
another hidden sibling, the new one to the destination, and removes the old one. A crash between the two renames leaves
no destination; `repair`, called whenever a bundle is opened, then moves the old folder back. It may do so while a
running process is between its renames, which then tries again. Whoever reads during a replacement notices it by the
checksums, see `bundle.load`. Files in the old folder that are not part of the bundle are kept.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kerasformer.errors import BundleError, KerasformerError, SourceError
from kerasformer.files.reading import local_path, read_json

MANIFEST = "kerasformer.json"
"""The file that makes a folder a bundle."""
SITE = "site.json"
"""The file that makes a folder a web site of bundles."""
_CONTENT = {MANIFEST: ("bundle", "files"), SITE: ("site", "names")}
"""What a folder with such a file is, and the field of the file that lists all others."""
_DISK_ERRORS = {
    getattr(errno, name, 0) for name in "ENOSPC EDQUOT EFBIG EROFS EACCES EPERM EIO ENOTDIR EEXIST ENAMETOOLONG".split()
}
"""Numbers of errors of a disk that is full, of a folder that is not writable, and of a name that no folder can have."""
_ATTEMPTS = 40
"""Attempts to move a folder into place while other processes write there or repair."""
_ABANDONED_S = 24 * 60 * 60
"""Seconds without a change after which a staging folder is that of a killed process."""


def check_destination(destination: str | Path, overwrite: bool = False, mark: str = MANIFEST) -> Path:
    """Checks that a folder may be written, before any work is done; repairs an interrupted replacement first.

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
    kind = _CONTENT[mark][0]
    if not (destination / mark).is_file():
        raise BundleError(
            f"only a {kind} or an empty folder may be replaced. Received: {destination}, which has no {mark}. "
            "Choose another folder, or remove this one yourself"
        )
    if not overwrite:
        raise BundleError(f"a {kind} already exists there. Received: {destination}. Pass overwrite=True to replace it")
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
        BundleError: the folder cannot be created or written, such as on a full disk; the type is `error_type`.
    """
    destination = local_path(destination, error_type)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{_hidden(destination)}new-", dir=destination.parent))
        try:
            folder.chmod(0o755)  # mkdtemp creates private folders; a bundle is an ordinary folder
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise error_type(
            f"the {what} could not be written: {error}. Received: {destination}. Nothing was changed there. "
            "Free disk space, or choose another folder"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context with another name for a file, which gets its own at the end, so that no reader finds a part of it."""
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Writes a file that people can read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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
    """Moves a finished folder to its destination on the same file system; of several processes, the last one wins.

    Existing files that the old bundle does not list are kept.

    Returns:
        The absolute destination.
    Raises:
        BundleError: as for `check_destination`; or a file to be kept has the name of a new one; or the move fails, in
            which case the old folder is restored.
    """
    destination = check_destination(destination, overwrite, mark)
    _flush(*folder.rglob("*"), folder)
    if (destination / mark).is_file():
        _keep_foreign(destination, folder, mark)
    failure: OSError | None = None
    for attempt in range(_ATTEMPTS):
        check_destination(destination, overwrite, mark)  # another process may have put a folder there
        old = destination.with_name(f"{_hidden(destination)}old-{time.time_ns()}")
        try:
            if (destination / mark).is_file():
                destination.rename(old)
            elif destination.exists():
                destination.rmdir()
            folder.rename(destination)
        except OSError as error:
            failure = error
            repair(destination)
            # Another process moved the old folder away or back, or put one there, between the two renames.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                # A process that has just waited is less likely to be interrupted between the renames.
                time.sleep(0.001 * min(attempt, 20))
                continue
            break
        _flush(destination.parent)
        _remove(old)
        return destination
    raise BundleError(
        f"the finished folder could not be moved into place: {failure}. Received: {destination}. "
        "Its previous content is unchanged. Try again with another folder"
    ) from failure


def _keep_foreign(old: Path, new: Path, mark: str) -> None:
    """Links or copies files of the old folder that are not part of its bundle into the new folder.

    Raises:
        BundleError: the new folder has files of the same names.
        OSError: a file cannot be copied.
    """
    kind, field = _CONTENT[mark]
    try:
        listed = {mark, *read_json(old / mark)[field]}
    except (SourceError, KeyError, TypeError):  # files of the same names are probably part of the old bundle
        listed = _files(new)
    foreign = sorted(_files(old) - listed)
    if conflicts := [name for name in foreign if os.path.lexists(new / name)]:
        raise BundleError(
            f"the new {kind} would replace files that the old one did not write: {', '.join(conflicts)} in {old}. "
            "Nothing was changed there. Move them elsewhere, or choose another folder"
        )
    for name in foreign:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(old / name, new / name)


def link_or_copy(source: Path, target: Path) -> None:
    """Makes a hard link to a file, or copies it where the file system has none."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _files(folder: Path) -> set[str]:
    """Returns the relative paths, with `/`, of all files and links below a folder; links are not followed."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths}


def repair(destination: str | Path) -> Path:
    """Completes or undoes a replacement that a crash interrupted, and removes abandoned staging folders.

    Returns:
        The absolute destination, which need not exist.
    """
    destination = local_path(destination, BundleError)
    hidden = _hidden(destination)
    for path in sorted(destination.parent.glob(f"{glob.escape(hidden)}*"), reverse=True):  # the newest first
        with suppress(OSError):  # another process repairs or publishes at the same time; rmtree refuses links
            if path.name.startswith(f"{hidden}old-"):
                if _empty(destination):
                    destination.rmdir()
                if not destination.exists():
                    path.rename(destination)
                if any((destination / mark).is_file() for mark in _CONTENT):
                    _remove(path)
            elif path.name.startswith(f"{hidden}gone-"):
                shutil.rmtree(path)
            elif time.time() - path.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(path)
    return destination


def _remove(old: Path) -> None:
    """Removes a folder that was replaced, under another name first: a repair must not restore a part of it."""
    gone = old.with_name(old.name.replace(".kerasformer-old-", ".kerasformer-gone-"))
    with suppress(OSError):  # there was none, or another process removes it
        old.rename(gone)
        shutil.rmtree(gone)


def _hidden(destination: Path) -> str:
    """Returns the start of the names of folders beside a destination.

    `new-…` are being written, `old-…` are replaced and restored after a crash, `gone-…` are being removed.
    """
    return f".{destination.name}.kerasformer-"


def _empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None


def _flush(*paths: Path) -> None:
    """Flushes files and folders to disk: otherwise a rename may reach it before the content does."""
    for path in paths:
        if path.is_dir() and os.name != "posix":  # Windows cannot open a folder
            continue
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
