"""The models that a low-rank adapter belongs to, as its configuration names them."""

from __future__ import annotations

import re
from pathlib import Path

from kerasformer.errors import CheckpointError, SourceError
from kerasformer.files.reading import read_json
from kerasformer.files.sources import HUB_ID, inside, resolve

ADAPTER_CONFIG = "adapter_config.json"
"""Name of the configuration of an adapter."""


def with_bases(folder: Path, token: str | None = None) -> list[Path]:
    """Returns the folder of an adapter, that of its base model, and so on up to a whole model.

    Args:
        folder: Any folder of a checkpoint; one without an adapter is returned alone.
        token: Access token for private repositories on the hub.

    Raises:
        CheckpointError: an adapter belongs to itself.
        SourceError: a base model is a path, or does not exist.
    """
    folders = [folder]
    while (base := _base_model(folders[-1])) is not None:
        path = resolve(base, token=token)
        if path in folders:
            raise CheckpointError(f"The base model of an adapter must not be the adapter itself. Received: {path}")
        folders.append(path)
    return folders


def _base_model(folder: Path) -> str | None:
    """Returns the model that an adapter with a configuration of its own belongs to; `None` for any other folder.

    Raises:
        SourceError: the model is a path. Only a preset or a hub id may be loaded because a file names it.
    """
    if (
        not (folder / ADAPTER_CONFIG).is_file()
        or not (folder / "config.json").is_file()
        or (folder / "model.safetensors").exists()
    ):
        return None
    path = inside(folder, ADAPTER_CONFIG)
    name = read_json(path).get("base_model_name_or_path")
    if not isinstance(name, str) or not re.fullmatch(HUB_ID, name):
        raise SourceError(
            f"{path} must name its base model, a preset or a hub id. Received: {name!r}. Load that model, and then the "
            "adapter with load_adapter"
        )
    return name
