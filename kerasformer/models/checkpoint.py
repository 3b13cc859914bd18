"""The configuration of a checkpoint, and its tensors for a model: by all of their names, and with an adapter."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle.adapters import Adapter
from kerasformer.errors import CheckpointError
from kerasformer.files import sources
from kerasformer.files.readers import checkpoint_files
from kerasformer.files.reading import JsonMapping, JsonObject, local_path, read_json
from kerasformer.files.tensors import ReplacedTensors, TensorFile
from kerasformer.models.config import Config
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.registry import ModelClasses, backbone_of
from kerasformer.models.ties import completed
from kerasformer.models.weight_table import head_tensors


def all_head_tensors(classes_by_task: ModelClasses) -> set[str]:
    """Returns the names of the tensors of all heads of an architecture."""
    return head_tensors(row for task_class in classes_by_task.values() for row in task_class.head_table)


def resolved(
    classes_by_task: ModelClasses, task_class: type[PretrainedModel], config: Config, file: TensorFile
) -> tuple[Config, TensorFile]:
    """Returns the configuration with what only the tensors reveal, and the tensors by all of their names."""
    return task_class.config_for(config, file), _by_all_names(classes_by_task, config, file)


def with_adapter(file: TensorFile, adapter: Adapter, classes_by_task: ModelClasses, content: JsonMapping) -> TensorFile:
    """Returns the tensors of a checkpoint with those that an adapter replaces.

    Others that are tied to one of them keep their values, unless the adapter ties them, too.
    """
    file = ReplacedTensors(file, adapter.base)
    if not adapter.follows and adapter.saved:
        config = backbone_of(classes_by_task).config_type.from_hf(content)
        file = _by_all_names(classes_by_task, config, file)
    return ReplacedTensors(file, adapter.saved)


def _by_all_names(classes_by_task: ModelClasses, config: Config, file: TensorFile) -> TensorFile:
    """Returns tensors of which a tied one is also found by the names that it has in models for other tasks."""
    located = backbone_of(classes_by_task).names.located(file, all_head_tensors(classes_by_task))
    omitted = {name: tensor for kind in classes_by_task.values() for name, tensor in kind.missing_ties(config).items()}
    return completed(file, located, omitted)


def check_layer_counts(config: Config, file: TensorFile) -> None:
    """Raises an error for more layers than a file can contain, before they are created."""
    for name, count in config.layer_counts.items():
        if count > len(file):
            raise CheckpointError(
                f"{name} in config.json does not match {file}, since every layer has separate tensors. "
                f"Expected at most {len(file)}, the number of all tensors. Received: {count}"
            )


def read_config(source: str | Path) -> JsonObject:
    """Returns the configuration of a checkpoint, of which no other file is needed.

    Raises:
        SourceError: there is none.
    """
    path = Path(source)
    if path.is_file() and path.suffix == ".json":
        return _read(local_path(path))
    if path.is_dir() and (path / "config.json").is_file():
        return _read(sources.inside(path, "config.json"))
    folder = sources.resolve(source)
    with checkpoint_files(folder) as files:
        return _read(sources.inside(files, "config.json"))


def _read(path: Path) -> JsonObject:
    """Returns a configuration without what an export adds for transformers.js."""
    content = read_json(path)
    content.pop("transformers.js_config", None)
    return content
