"""Saving of a model as a checkpoint in Hugging Face's format."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import keras
import numpy as np

from kerasformer.errors import CheckpointError, KerasformerError
from kerasformer.files.publishing import MANIFEST, move_files, staging, write_json
from kerasformer.files.reading import local_path, read_json
from kerasformer.files.tensors import TORCH_SUFFIX, save_tensors, save_torch
from kerasformer.layers.core import merged_lora
from kerasformer.models.origin import README, Origin
from kerasformer.models.weight_table import Names
from kerasformer.models.weights import hf_tensors


def save_checkpoint(model: keras.Model, folder: str | Path, dtype: str | None, overwrite: bool) -> Path:
    """Implements `PretrainedModel.save_pretrained`."""
    folder = local_path(folder, CheckpointError)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"A folder was expected, in which to write the checkpoint. Received: the file {folder}")
    _check_folder(model, folder, overwrite)
    with staging(folder, "checkpoint", CheckpointError) as aside, merged_lora(model):
        files: dict[str, dict[str, np.ndarray]] = {}
        names: Names = model.backbone_type.names
        for name, value in hf_tensors(model, names.in_files(model.rows(saved=True))):
            subfolder, _, tensor = name.rpartition("/")
            tensors = files.setdefault(subfolder, {})
            tensors[tensor] = np.ascontiguousarray(value if dtype is None else value.astype(dtype))
        for subfolder, tensors in files.items():
            if subfolder.endswith(TORCH_SUFFIX):
                save_torch(tensors, aside / subfolder)
                continue
            (aside / subfolder).mkdir(exist_ok=True)
            save_tensors(tensors, aside / subfolder / "model.safetensors")
        content = {"architectures": [model.architecture], **model.config.to_hf()}
        content["dtype"] = dtype or next(iter(files[""].values())).dtype.name
        for name, entries in {"config.json": content, **model.extra_files()}.items():
            (aside / name).parent.mkdir(exist_ok=True)
            write_json(aside / name, entries)
        if model.generates:
            model.generation_config.save(aside)
        if model.tokenizer is not None:
            model.tokenizer.save(aside)
        if not (folder / README).exists():  # a card that somebody may have written
            Origin.of_model(model).write_checkpoint(aside, model)
        move_files(aside, folder)
    return folder


def _check_folder(model: keras.Model, folder: Path, overwrite: bool) -> None:
    """Checks that the folder has no other model that would be lost.

    Raises:
        CheckpointError: it does, or it is a bundle.
    """
    if (folder / MANIFEST).exists():
        raise CheckpointError(f"A folder without a bundle was expected. Received: the bundle {folder}")
    if overwrite or not (folder / "config.json").exists():
        return
    expected, architecture = model.config.model_type, model.architecture
    try:
        content = read_json(folder / "config.json")
        if not content:
            return
        names = ", ".join(map(str, content.get("architectures") or ["no class"]))
        received = f"{content.get('model_type')!r}, {names}"
        if content.get("model_type") == expected and names == architecture:
            other = type(model.config).from_hf(content)
            different = [
                field.name
                for field in dataclasses.fields(other)
                if getattr(other, field.name) != getattr(model.config, field.name)
            ]
            if not different:
                return
            received += f", with other values of {', '.join(different)}"
    except KerasformerError as error:
        received = str(error)
    raise CheckpointError(
        f"The folder has another model, which would be replaced. Received: {folder}: {received}; model to save: "
        f"{expected!r}, {architecture}. Choose another folder, or pass overwrite=True to replace it"
    )
