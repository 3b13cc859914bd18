"""Resolution of a source (preset, folder, file, name, hub id or package) to a local path, and safe access to its files.

Called by `models.loading.load` and `pipelines.opening` with what the user named.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

from kerasformer.errors import MissingExtraError, SourceError
from kerasformer.extras import require
from kerasformer.files.named_models import MODELS
from kerasformer.files.publishing import MANIFEST, repair
from kerasformer.files.reading import local_path
from kerasformer.files.reading import read_json as read_json

HUB_ID = r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?"
"""Pattern of a preset, a name or an id on the hub."""
_CHECKPOINT_FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.safetensors"]
_IN_SUBFOLDERS = [f"*/{name}" for name in _CHECKPOINT_FILES]
"""Files that are not downloaded: many repositories have copies for other frameworks in subfolders."""
_TEMPLATE_FILES = ["chat_template.jinja", "additional_chat_templates/*.jinja"]
_OTHER_CONFIGS = ("modules.json", "gliner_config.json")
"""Files that folders of static embeddings and of GLiNER have instead of `config.json`."""
READERS = {".gguf": ("kerasformer.tools.gguf", "GgufCheckpoint")}
"""Module and class of the `readers.ForeignCheckpoint` for files with a suffix, which are imported when one is read."""
PACKAGE = "package:"
"""What begins a source in an installed Python package."""
_FOR_KERAS_FILES = (
    "Open a .keras file with keras.models.load_model, after import kerasformer.zoo, which registers its classes"
)
_GRAPHS = ("*.onnx", "onnx/*.onnx", "*.tflite")
_ATTEMPTS = 3
"""Attempts to find a folder that another process may be moving at the moment."""
_TORCH_FILES = ["pytorch_model*.bin"]
_VECTOR_FILES = ["colbert_linear.pt", "sparse_linear.pt"]
"""Files of BGE-M3 beside the encoder."""
_MODULE_FILES = [
    f"[0-9]_*/{name}" for name in ("config.json", "model.safetensors", "pytorch_model.bin", "tokenizer.json")
]
"""Files of the modules of sentence-transformers, each in a subfolder such as `1_Pooling`."""


def resolve(source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None) -> Path:
    """Returns the local folder of a preset, a path, a name or a hub id, tried in this order.

    What is on the hub is downloaded once.

    A file in a format of `READERS`, such as llama.cpp's GGUF, takes the place of a checkpoint's folder; it is returned
    itself.

    Args:
        source: Name of a preset or of one of `named_models.MODELS`, path (`"./name"` if one of these has the same
            name), hub id `"owner/name"`, or `"package:NAME"` for the weights in an installed Python package, of which
            nothing is imported. The environment variable `HF_ENDPOINT` sets the hub's address.
        revision: Branch, tag or commit on the hub.
        token: Access token for private repositories; defaults to the one stored by `hf auth login`.
    Raises:
        SourceError: the source was not found; the message lists the locations searched.
    """
    if isinstance(source, str) and source in presets():
        return _presets_folder() / source
    if isinstance(source, str) and source.startswith(PACKAGE):
        return _in_package(source.removeprefix(PACKAGE))
    for _ in range(_ATTEMPTS):
        folder = repair(local_path(source))
        if folder.is_dir():
            return folder
    if is_foreign(folder):
        return folder
    if folder.exists():
        advice = f". {_FOR_KERAS_FILES}" if folder.suffix == ".keras" else ""
        raise SourceError(
            f"a folder with config.json or {MANIFEST}, or a file with the suffix {' or '.join(READERS)}, was expected. "
            f"Received: the file {folder}{advice}"
        )
    if not isinstance(source, str) or not re.fullmatch(HUB_ID, source):
        raise SourceError(_not_found(str(source), [f"the folder {folder}"]))
    named = MODELS.get(source)
    try:
        return _download(named.hub_id if named else source, revision, token)
    except (OSError, ValueError, MissingExtraError) as error:
        reason = str(error).strip().splitlines()[0]
        if named is not None:
            package = f", or pip install {named.package} and pass '{PACKAGE}{named.package}'" if named.package else ""
            raise SourceError(
                f"{source} is {named.hub_id} on the hub, which could not be downloaded. Received: {reason}. "
                f"Try again with a network{package}"
            ) from error
        raise SourceError(_not_found(source, [f"the folder {folder}", f"the hub ({reason})"])) from error


def presets() -> list[str]:
    """Returns the names of the small trained models that ship with this package."""
    folder = _presets_folder()
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if (path / "config.json").is_file())


def is_foreign(path: Path) -> bool:
    """Whether a path is that of a file in another library's format, which takes the place of a checkpoint's folder."""
    return path.suffix.lower() in READERS and path.is_file()


def kind(folder: Path) -> Literal["checkpoint", "bundle"]:
    """Returns whether a folder is an exported bundle or a Hugging Face checkpoint, as a foreign file is.

    Raises:
        SourceError: the folder is neither.
    """
    if is_foreign(folder):
        return "checkpoint"
    for _ in range(_ATTEMPTS):
        if os.path.isfile(folder / MANIFEST):
            return "bundle"
        if any(os.path.isfile(folder / name) for name in ("config.json", *_OTHER_CONFIGS)):
            return "checkpoint"
        repair(folder)
    files = sorted(path.name for path in folder.glob("*") if is_foreign(path))
    hint = f" Pass one of its files: {', '.join(files[:5])}" if files else foreign_graph(folder)
    if os.path.isfile(folder / "adapter_config.json"):
        hint = " It has an adapter: load the base model, and then the adapter with load_adapter"
    raise SourceError(
        f"a bundle contains {MANIFEST} and a checkpoint contains config.json; this folder has neither. "
        f"Received: {folder}.{hint}"
    )


def foreign_graph(folder: Path) -> str:
    """Returns what to do about a folder with the graph of another exporter; an empty text if it has none."""
    found = [path for pattern in _GRAPHS for path in sorted(folder.glob(pattern))] if folder.is_dir() else []
    if not found:
        return ""
    return (
        f" {found[0].relative_to(folder).as_posix()} is a graph that another tool exported, which cannot be loaded as "
        "a model. Load the checkpoint that it was made from, and export that"
    )


def inside(folder: Path, name: str) -> Path:
    """Joins a folder and a file name from an untrusted file in it, such as a shard listed in an index.

    Raises:
        SourceError: the name is absolute, contains `..`, or follows a link out of the folder.
    """
    parts = PurePosixPath(name).parts
    absolute = name.startswith("/") or bool(PureWindowsPath(name).drive)
    if not parts or absolute or ".." in parts or "\\" in name or "\0" in name:
        raise SourceError(f"a file name relative to its folder was expected. Received: {name!r} in {folder}")
    path = folder / name
    target = local_path(path)
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise SourceError(f"a file must be inside its folder. Received: {name!r} in {folder}, a link to {target}")
    return path


def _presets_folder() -> Path:
    return zoo_folder() / "presets"


def zoo_folder() -> Path:
    """Returns the folder of the architectures and the presets."""
    # Located without an import: importing kerasformer.zoo loads Keras.
    spec = importlib.util.find_spec("kerasformer.zoo")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError("the installation of kerasformer is damaged: kerasformer.zoo is missing. Reinstall it")
    return Path(list(spec.submodule_search_locations)[0])


def _roots(folder: Path) -> list[Path]:
    """Returns the folders that files may resolve to: in the hub's cache, `snapshots/<commit>` links to `blobs`."""
    folder = folder.resolve()
    if folder.parent.name == "snapshots":
        return [folder, folder.parent.parent / "blobs"]
    return [folder]


def _in_package(name: str) -> Path:
    """Returns the folder of the checkpoint, or the file of `READERS`, that an installed package has."""
    try:
        files = [file for file in metadata.distribution(name).files or [] if ".." not in file.parts]
    except (metadata.PackageNotFoundError, ValueError) as error:
        raise SourceError(
            f"{PACKAGE}{name} is in a Python package that is not installed: pip install {name}"
        ) from error
    found = [file for file in files if file.suffix.lower() in READERS]
    folders = {file.parent for file in files if file.name == "config.json"}
    # Modules of sentence-transformers have a config.json, too, in folders of the model's.
    found += [folder for folder in folders if not folders & {*folder.parents}]  # type: ignore[misc]
    if len(found) != 1:
        raise SourceError(
            f"one file with the suffix {' or '.join(READERS)}, or one folder with config.json, was expected in the "
            f"package {name}. Received: {', '.join(sorted(map(str, found))) or 'none'}"
        )
    return Path(str(metadata.distribution(name).locate_file(found[0])))


def _download(name: str, revision: str | None, token: str | None) -> Path:
    hub = require("huggingface_hub", "tensorflow")

    def fetch(**patterns: list[str]) -> Path:
        return Path(hub.snapshot_download(name, revision=revision, token=token, **patterns))

    names = _CHECKPOINT_FILES + _TEMPLATE_FILES
    folder = fetch(allow_patterns=names, ignore_patterns=_IN_SUBFOLDERS)
    if (folder / MANIFEST).is_file():
        return fetch()
    if not any(folder.glob("*.safetensors")):
        folder = fetch(allow_patterns=names + _TORCH_FILES, ignore_patterns=_IN_SUBFOLDERS)
    if (folder / "modules.json").is_file():
        fetch(allow_patterns=_MODULE_FILES + _VECTOR_FILES)
    return folder


def _not_found(source: str, searched: list[str]) -> str:
    names = [*presets(), *MODELS, *(model.hub_id for model in MODELS.values())]
    close = difflib.get_close_matches(source, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"no model of that name was found; a preset, a folder, a name or a hub id was expected. Received: {source!r}."
        f"{hint} Searched: the presets ({', '.join(presets()) or 'none are installed'}); the names of kerasformer "
        f"models --real; {'; '.join(searched)}"
    )
