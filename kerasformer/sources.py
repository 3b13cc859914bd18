"""From what a user names (a preset, a folder, a hub id) to a local folder, and safe reading of what lies in it."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

from kerasformer.errors import MissingExtraError, SourceError, require
from kerasformer.files import local_path
from kerasformer.files import read_json as read_json
from kerasformer.publishing import MANIFEST, repair

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_CHECKPOINT_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja"]
_LOOKS = 3
"""Times that a folder is looked at which another process may just be moving."""
_TORCH_FILES = ["pytorch_model*.bin"]


def resolve(source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None) -> Path:
    """Finds the local folder of a preset, a folder or a hub id, in this order; a hub id is downloaded once.

    Args:
        source: A name of `presets()`, a path (`"./name"` where a preset has the same name), or `"owner/name"`.
        revision: Branch, tag or commit on the hub.
        token: For private repositories; the one stored by `hf auth login` is used without it.
            The environment variable `HF_ENDPOINT` names another server.
    Raises:
        SourceError: nothing of that name was found; the message says where it was looked for.
    """
    if isinstance(source, str) and source in presets():
        return _presets_folder() / source
    for _ in range(_LOOKS):
        folder = repair(local_path(source))
        if folder.is_dir():
            return folder
    if folder.exists():
        raise SourceError(f"a folder was expected, with config.json or {MANIFEST} in it. Received: the file {folder}")
    if not isinstance(source, str) or not _HUB_ID.fullmatch(source):
        raise SourceError(_not_found(str(source), [f"the folder {folder}"]))
    try:
        return _download(source, revision, token)
    except (OSError, ValueError, MissingExtraError) as error:
        looked_at = [f"the folder {folder}", f"the hub ({str(error).strip().splitlines()[0]})"]
        raise SourceError(_not_found(source, looked_at)) from error


def presets() -> list[str]:
    """Names of the small trained models that ship with this package."""
    folder = _presets_folder()
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if (path / "config.json").is_file())


def kind(folder: Path) -> Literal["checkpoint", "bundle"]:
    """Tells an exported bundle from a Hugging Face checkpoint.

    Raises:
        SourceError: the folder is neither.
    """
    for _ in range(_LOOKS):
        if os.path.isfile(folder / MANIFEST):
            return "bundle"
        if os.path.isfile(folder / "config.json"):
            return "checkpoint"
        repair(folder)
    raise SourceError(
        f"a bundle holds {MANIFEST} and a checkpoint holds config.json; this folder has neither. Received: {folder}"
    )


def inside(folder: Path, name: str) -> Path:
    """Joins a file name that a folder's own files give, such as a shard in an index, to that folder.

    Raises:
        SourceError: the name is absolute, climbs with `..`, or follows a link out of the folder.
    """
    parts = PurePosixPath(name).parts
    absolute = name.startswith("/") or bool(PureWindowsPath(name).drive)
    if not parts or absolute or ".." in parts or "\\" in name or "\0" in name:
        raise SourceError(f"a file name relative to its folder was expected. Received: {name!r} in {folder}")
    path = folder / name
    target = local_path(path)
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise SourceError(f"a file must lie inside its folder. Received: {name!r} in {folder}, which leads to {target}")
    return path


def _presets_folder() -> Path:
    return zoo_folder() / "presets"


def zoo_folder() -> Path:
    """The folder of the architectures and of the presets."""
    # Found, not imported: kerasformer.zoo loads Keras, and a folder is all that is wanted.
    spec = importlib.util.find_spec("kerasformer.zoo")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError("the installation of kerasformer is damaged: kerasformer.zoo is missing. Install it again")
    return Path(list(spec.submodule_search_locations)[0])


def _roots(folder: Path) -> list[Path]:
    """Where files of a folder may really lie: the hub's cache keeps links in `snapshots/<commit>` to `blobs`."""
    folder = folder.resolve()
    if folder.parent.name == "snapshots":
        return [folder, folder.parent.parent / "blobs"]
    return [folder]


def _download(name: str, revision: str | None, token: str | None) -> Path:
    hub = require("huggingface_hub", "tensorflow")

    def fetch(**patterns: list[str]) -> Path:
        return Path(hub.snapshot_download(name, revision=revision, token=token, **patterns))

    # Top-level files only: many repositories hold copies for other frameworks in folders.
    folder = fetch(allow_patterns=_CHECKPOINT_FILES, ignore_patterns=["*/*"])
    if (folder / MANIFEST).is_file():
        return fetch()
    if not any(folder.glob("*.safetensors")):
        return fetch(allow_patterns=_CHECKPOINT_FILES + _TORCH_FILES, ignore_patterns=["*/*"])
    return folder


def _not_found(source: str, looked_at: list[str]) -> str:
    close = difflib.get_close_matches(source, presets(), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    names = ", ".join(presets()) or "none are installed"
    return (
        f"no model of that name was found; a preset, a folder or a hub id was expected. Received: {source!r}.{hint} "
        f"Looked at: the presets ({names}); {'; '.join(looked_at)}"
    )
