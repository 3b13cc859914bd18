"""A GGUF file as the folder of a checkpoint in Hugging Face's format: its small files, and its tensors."""

from __future__ import annotations

from pathlib import Path

from kerasformer.errors import CheckpointError
from kerasformer.files.reading import JsonObject
from kerasformer.files.tensors import TensorFile
from kerasformer.tools.gguf import vocabulary
from kerasformer.tools.gguf.architecture import Metadata, Settings, find, located
from kerasformer.tools.gguf.blocks import GgufTensors
from kerasformer.tools.gguf.container import read
from kerasformer.tools.gguf.tables import ARCHITECTURES

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
"""Poolings of sentence-transformers by `pooling_type`; 0 is a model without pooling."""


class GgufCheckpoint:
    """A model in a GGUF file; a `ForeignCheckpoint`.

    Args:
        path: The file, or the first of several parts.

    Attributes:
        settings: Content of `config.json`.

    Raises:
        CheckpointError: the file is damaged, or lacks a value.
        UnsupportedConfigError: the architecture or a value is unsupported.
        MissingExtraError: the library gguf is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._container = read(path)
        self._metadata = Metadata(self._container)
        self._architecture = find(self._metadata, ARCHITECTURES)
        settings = self._architecture.settings(self._metadata)
        names = vocabulary.special_ids(self._metadata)
        self.settings: Settings = {**settings, **names, **self._metadata.unread()}

    def tensors(self) -> TensorFile:
        """Returns the tensors under their names in the checkpoint."""
        entries = self._container.tensors
        names = located(list(entries), self._architecture, self.settings)
        return GgufTensors(
            self._container.paths, {tensor: (entries[name], layout) for tensor, (name, layout) in names.items()}
        )

    def facts(self) -> JsonObject:
        """Returns what the file says about licence and origin, by the names of the front matter of a model card."""
        names = {"license": "license", "license_name": "license.name", "license_link": "license.link"}
        facts = {name: self._metadata.get(f"general.{key}", str, None) for name, key in names.items()}
        languages = "general.languages"
        facts["language"] = self._metadata.strings(languages) if languages in self._container.values else None
        return {name: value for name, value in facts.items() if value}

    @property
    def has_tokenizer(self) -> bool:
        """Whether the file contains a tokenizer."""
        return vocabulary.has_tokenizer(self._metadata)

    def files(self) -> JsonObject:
        """Returns the contents of the JSON files of the model by their names."""
        files = {"config.json": self.settings, "generation_config.json": vocabulary.generation_settings(self._metadata)}
        pooling = self._metadata.own("pooling_type", int, 0)
        return {**files, **(_sentence_files(_pooling(self._container.path, pooling)) if pooling else {})}

    def tokenizer_files(self) -> JsonObject:
        """Returns the contents of the files of the tokenizer by their names.

        Raises:
            TokenizerError: the tokenizer is unsupported or damaged.
        """
        return vocabulary.files(
            self._metadata,
            max_length=self._metadata.own("context_length", int, None),
            segments=bool(self.settings.get("type_vocab_size", 0)) and self.settings["model_type"] == "bert",
            sentinels=self._architecture.sentinels,
        )


def _pooling(path: Path, number: int) -> str:
    if number not in _POOLINGS:
        raise CheckpointError(
            f"pooling_type in {path} must be one of {', '.join(f'{n} ({x})' for n, x in _POOLINGS.items())}, or 0 for "
            f"none. Received: {number}"
        )
    return _POOLINGS[number]


def _sentence_files(pooling: str) -> JsonObject:
    """Returns the files of sentence-transformers for a pooling; llama.cpp divides embeddings by their length."""
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(types.items())
    ]
    return {"modules.json": modules, "1_Pooling/config.json": {"pooling_mode": pooling}}
