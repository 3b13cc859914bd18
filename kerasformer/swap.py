"""Puts a finished folder in the place of an old one so that a crash at any moment loses neither.

The new folder is written beside its destination, in a hidden sibling (`staging`). `publish` then moves the old folder
aside, moves the new one into place and removes the old one. A crash between the two moves leaves no destination, only
the old folder under its hidden name: `repair`, called at the next opening, moves it back.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kerasformer.errors import BundleError

MANIFEST = "kerasformer.json"
"""The file that makes a folder a bundle."""


def check_destination(destination: str | Path, overwrite: bool = False) -> Path:
    """Says before any work starts whether a bundle may be written there.

    Returns:
        The absolute destination, an interrupted swap repaired.
    Raises:
        BundleError: something is there and `overwrite` is false, or it is not a bundle: only bundles are replaced.
    """
    destination = repair(destination)
    if not destination.exists() or _empty(destination):
        return destination
    if not (destination / MANIFEST).is_file():
        raise BundleError(
            f"only a bundle or an empty folder may be replaced. Received: {destination}, which holds no {MANIFEST}. "
            "Choose another folder, or remove this one yourself"
        )
    if not overwrite:
        raise BundleError(f"a bundle is there already. Received: {destination}. Pass overwrite=True to replace it")
    return destination


@contextmanager
def staging(destination: str | Path) -> Iterator[Path]:
    """A new folder beside `destination`, to be filled and given to `publish`; removed if that does not happen."""
    destination = Path(destination).expanduser().resolve()
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.kerasformer-new-", dir=destination.parent))
    folder.chmod(0o755)  # mkdtemp's folders are private; a bundle is an ordinary folder
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, destination: str | Path, overwrite: bool = False) -> Path:
    """Moves a finished folder to its destination, on the same file system; at every moment one whole folder is there.

    Returns:
        The absolute destination.
    Raises:
        BundleError: see `check_destination`; also when the move fails, and then the old folder is back in place.
    """
    destination = check_destination(destination, overwrite)
    _flush(folder)
    old = _aside(destination)
    try:
        if destination.exists():
            destination.rename(old)
        folder.rename(destination)
    except OSError as error:
        repair(destination)
        raise BundleError(
            f"the finished folder could not be moved into place: {error}. Received: {destination}. "
            "What was there before is untouched; try again with another folder"
        ) from error
    _flush_entry(destination.parent)
    shutil.rmtree(old, ignore_errors=True)
    return destination


def repair(destination: str | Path) -> Path:
    """Finishes or undoes a swap that a crash interrupted; costs nothing where there was none.

    Returns:
        The absolute destination, whether or not anything is there.
    """
    destination = Path(destination).expanduser().resolve()
    old = _aside(destination)
    if not old.is_dir():
        return destination
    if (destination / MANIFEST).is_file():  # the new folder was in place: the crash came while the old one was removed
        shutil.rmtree(old, ignore_errors=True)
        return destination
    if destination.is_dir() and _empty(destination):
        destination.rmdir()
    if not destination.exists():
        with suppress(FileNotFoundError):  # another process repaired it in the meantime
            old.rename(destination)
    return destination


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


def _flush_entry(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
