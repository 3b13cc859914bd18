"""What reads the models of other libraries, found by name: readers of files, and converters of Keras models."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from kerasformer.extras import tool
from kerasformer.files.gliner import GlinerCheckpoint, is_gliner
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.files.sources import READERS, is_foreign, resolve
from kerasformer.files.static_embeddings import StaticEmbeddings, is_static
from kerasformer.files.tensors import TensorFile, open_tensors

CONVERTERS = dict.fromkeys(("keras_hub", "keras_nlp"), "kerasformer.tools.interop.keras_hub.conversion")
"""Modules that convert models of other libraries by `from_model` and `from_folder`, by the package of their classes."""


class ForeignCheckpoint(Protocol):
    """A model in a file, or a folder of static embeddings or of GLiNER, in another library's format."""

    @property
    def has_tokenizer(self) -> bool:
        """Whether the file contains a tokenizer."""

    def files(self) -> JsonObject:
        """Returns the contents of the JSON files of the checkpoint by their names."""

    def tokenizer_files(self) -> JsonObject:
        """Returns the contents of the files of the tokenizer by their names; those of vocabularies may be bytes."""

    def tensors(self) -> TensorFile:
        """Returns the tensors under their names in the checkpoint."""

    def facts(self) -> JsonObject:
        """Returns what the file says about licence and origin, by the names of the front matter of a model card."""


def foreign(path: Path) -> ForeignCheckpoint | None:
    """Opens a file or folder in another library's format; returns `None` for a checkpoint of Hugging Face."""
    if is_foreign(path):
        return read_foreign(path)
    if is_gliner(path):
        return GlinerCheckpoint(path)
    return StaticEmbeddings(path) if is_static(path) else None


def read_foreign(path: Path) -> ForeignCheckpoint:
    """Opens a file for which `sources.is_foreign` is true."""
    module, name = READERS[path.suffix.lower()]
    return getattr(tool(module), name)(path)


def is_quantized(source: str | Path) -> bool:
    """Whether a source of `resolve` is a file in another library's format with weights in integers."""
    path = resolve(source)
    return is_foreign(path) and read_foreign(path).tensors().quantized


def converter_of(model: object) -> ModuleType | None:
    """Returns the module that converts a model of another library; `None` for other objects."""
    packages = (base.__module__.partition(".")[0] for base in type(model).__mro__)
    return next((tool(CONVERTERS[package]) for package in packages if package in CONVERTERS), None)


def converter_of_config(content: JsonMapping) -> ModuleType | None:
    """Returns the module that converts a folder with this `config.json`; `None` for a checkpoint of Hugging Face."""
    package = str(content.get("registered_name", "")).split(">")[0]
    return tool(CONVERTERS[package]) if "class_name" in content and package in CONVERTERS else None


@contextmanager
def checkpoint_files(source: Path) -> Iterator[Path]:
    """Context with a folder that has the JSON files of a checkpoint, without its tokenizer.

    Args:
        source: Folder, which is returned; or one in another format, as `foreign` opens it, for which a temporary folder
            is created.
    """
    if (other := foreign(source)) is None:
        yield source
        return
    with _folder(other.files()) as folder:
        yield folder


@contextmanager
def tokenizer_files(source: Path) -> Iterator[Path]:
    """Context with a folder that has the files of a tokenizer; see `checkpoint_files`."""
    if (other := foreign(source)) is None:
        yield source
        return
    with _folder(other.tokenizer_files()) as folder:
        yield folder


def checkpoint_tensors(source: Path) -> TensorFile:
    """Opens the tensors of a checkpoint, a folder or a file in another format."""
    other = foreign(source)
    return open_tensors(source) if other is None else other.tensors()


@contextmanager
def _folder(files: JsonMapping) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            text = content if isinstance(content, str | bytes) else json.dumps(content, ensure_ascii=False)
            (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        yield folder
