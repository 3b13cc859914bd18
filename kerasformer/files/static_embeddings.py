"""Folders of static embeddings: a table of token vectors, as model2vec and sentence-transformers publish it.

The vector of a text is the mean of its tokens' vectors. Such a folder is read as if it were a checkpoint of a
Transformer with no layers, whose files `StaticEmbeddings` states.

Reference: `StaticModel` of model2vec; `StaticEmbedding` of sentence-transformers.
Called by `readers`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from kerasformer.errors import CheckpointError, SourceError, TokenizerError, UnsupportedConfigError
from kerasformer.files.publishing import MANIFEST
from kerasformer.files.reading import JsonObject, parse_json, read_bytes, read_json
from kerasformer.files.sources import inside
from kerasformer.files.tensors import RenamedTensors, ReplacedTensors, TensorFile, open_tensors

MODEL_TYPE = "model2vec"
"""What the `config.json` of model2vec names, and the architecture that these folders have here."""
TABLE = "embeddings"
"""Name of the table in files of model2vec."""
_MODULE, _MODULES, _SETTINGS = "StaticEmbedding", "modules.json", "config_sentence_transformers.json"
_TABLES = (TABLE, "embedding.weight")
_WEIGHTS, _MAPPING = "weights", "mapping"
_PADDING = ("[PAD]", "<pad>", "<|padding|>")
"""Names of padding tokens. Any token can pad texts, since a mask hides it."""
_ENCODER = "sentence_transformers.models."


def is_static(folder: Path) -> bool:
    """Whether a folder has static embeddings: the `config.json` of model2vec, or `StaticEmbedding` as first module."""
    if (folder / MANIFEST).exists():
        return False
    try:
        return _is_model2vec(folder) or _module_types(folder)[:1] == [_MODULE]
    except SourceError:  # whatever reads the folder says what is wrong
        return False


class StaticEmbeddings:
    """A folder of static embeddings as a `readers.ForeignCheckpoint`.

    Args:
        folder: Folder for which `is_static` is true.

    Raises:
        UnsupportedConfigError: other modules than `Normalize` follow the table.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "config.json"  # sentence-transformers writes none
        self._config = read_json(inside(folder, path.name)) if path.is_file() else None
        modules = _module_types(folder)[1:]
        if self._config is None and modules not in ([], ["Normalize"]):
            raise UnsupportedConfigError(
                f"{_MODULES}: after {_MODULE}, only Normalize is supported. Received: {', '.join(modules)}"
            )
        self._normalize = bool(modules) if self._config is None else bool(self._config.get("normalize", False))

    @property
    def _part(self) -> Path:
        """Folder of table and tokenizer: in older files of sentence-transformers a subfolder."""
        path = "" if self._config is not None else str(_modules(self._folder)[0].get("path", ""))
        return self._folder if path in ("", ".") else inside(self._folder, path)

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer, without which a table has no meaning."""
        return (self._part / "tokenizer.json").is_file()

    def files(self) -> JsonObject:
        """Returns configuration and modules: the mean of the token vectors, and what follows it.

        Raises:
            CheckpointError: the table does not fit to the tokenizer.
        """
        rows, size = self._shape
        if rows != (count := self._vocabulary_size):
            raise CheckpointError(
                f"{self._table} must have a row for each token of tokenizer.json. Expected: {count} rows. Received: "
                f"{rows}. Is this the tokenizer that the table was made for?"
            )
        config: JsonObject = {"skipped_token_ids": self._skipped, **(self._config or {})}
        config |= {"model_type": MODEL_TYPE, "vocab_size": rows, "hidden_dim": size, "normalize": self._normalize}
        types = ["Transformer", "Pooling", *(["Normalize"] if self._normalize else [])]
        paths = ["", *(f"{index}_{name}" for index, name in enumerate(types) if index)]
        modules = [{"path": path, "type": f"{_ENCODER}{name}"} for path, name in zip(paths, types, strict=True)]
        files: JsonObject = {"config.json": config, _MODULES: modules}
        if (self._folder / _SETTINGS).is_file():
            files[_SETTINGS] = read_json(inside(self._folder, _SETTINGS))
        return files

    def tokenizer_files(self) -> JsonObject:
        """Returns the tokenizer without what adds special tokens, pads and truncates."""
        added = {token["content"] for token in self._tokenizer.get("added_tokens") or []}
        unknown = self._unknown_token
        padding = next((token for token in _PADDING if token in self._vocabulary or token in added), unknown)
        named = {"pad_token": padding, "unk_token": unknown}
        # A class without defaults, so that the rules of tokenizer.json apply as they are.
        settings: JsonObject = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids"]}
        settings |= {name: token for name, token in named.items() if token is not None}
        plain = dict.fromkeys(("post_processor", "padding", "truncation"))
        return {"tokenizer.json": {**self._tokenizer, **plain}, "tokenizer_config.json": settings}

    def tensors(self) -> TensorFile:
        """Returns the table, with the vector of each token times its weight as its row.

        Raises:
            CheckpointError: a tensor has a wrong shape, or a mapping names a row that the table does not have.
        """
        file, table = self._file, self._table
        if _MAPPING not in file and _WEIGHTS not in file and file.problem(table) is None:
            return RenamedTensors(file, {TABLE: table})
        rows = file.read_any(table).astype("float32")
        if _MAPPING in file:
            rows = rows[self._mapping(len(rows))]
        if _WEIGHTS in file:
            if file.shape(_WEIGHTS) != (len(rows),):
                raise CheckpointError(
                    f"{_WEIGHTS} must have a number for each token. Expected: shape ({len(rows)},). "
                    f"Received: {file.shape(_WEIGHTS)} in {file}"
                )
            rows = rows * file.read(_WEIGHTS).astype("float32")[:, None]
        return ReplacedTensors(RenamedTensors(file, {}), {TABLE: rows})

    def facts(self) -> JsonObject:
        """Returns nothing: licence and origin are in the card of the folder."""
        return {}

    def _mapping(self, count: int) -> np.ndarray:
        """Returns the row of each token in a table of `count` rows, of which several tokens may share one."""
        mapping = self._file.read_any(_MAPPING)
        low, high = mapping.min(initial=0), mapping.max(initial=0)
        if mapping.dtype.kind not in "iu" or mapping.ndim != 1 or low < 0 or high >= count:
            raise CheckpointError(
                f"{_MAPPING} must be integers that name rows of {self._table}, from 0 to {count - 1}. Received: "
                f"{mapping.dtype} of shape {mapping.shape}, from {low} to {high}, in {self._file}"
            )
        return mapping

    @cached_property
    def _file(self) -> TensorFile:
        return open_tensors(self._part)

    @property
    def _table(self) -> str:
        """Name of the tensor with the vectors."""
        found = [name for name in _TABLES if name in self._file]
        if not found:
            raise CheckpointError(
                f"{self._file} must have the tensor {' or '.join(_TABLES)}, a vector for each token. "
                f"Received: {', '.join(self._file) or 'no tensor'}"
            )
        return found[0]

    @property
    def _shape(self) -> tuple[int, int]:
        """Number of tokens and size of their vectors."""
        shape = self._file.shape(self._table)
        if len(shape) != 2:
            raise CheckpointError(f"{self._table} must be a matrix. Received: shape {shape} in {self._file}")
        return self._file.shape(_MAPPING)[0] if _MAPPING in self._file else shape[0], shape[1]

    @cached_property
    def _tokenizer(self) -> JsonObject:
        path = inside(self._part, "tokenizer.json")
        content = read_json(path)
        if not isinstance(content.get("model"), dict) or not content["model"].get("vocab"):
            raise TokenizerError(
                f"{path} must have a model with a vocabulary. Received: {', '.join(content) or 'none'}"
            )
        return content

    @property
    def _vocabulary(self) -> dict[str, int]:
        vocabulary = self._tokenizer["model"]["vocab"]
        if isinstance(vocabulary, dict):
            return vocabulary
        return {piece: index for index, (piece, _) in enumerate(vocabulary)}

    @property
    def _vocabulary_size(self) -> int:
        added = [token["id"] for token in self._tokenizer.get("added_tokens") or []]
        return max((*self._vocabulary.values(), *added)) + 1

    @property
    def _unknown_token(self) -> str | None:
        """The token of what the vocabulary lacks; a Unigram model has its id instead."""
        model = self._tokenizer["model"]
        if model.get("unk_token") is not None:
            return str(model["unk_token"])
        return None if model.get("unk_id") is None else list(self._vocabulary)[model["unk_id"]]

    @property
    def _skipped(self) -> list[int]:
        """Ids of tokens without a part in the mean: for model2vec, the unknown token."""
        index = self._vocabulary.get(self._unknown_token or "")
        return [index] if self._config is not None and index is not None else []


def _is_model2vec(folder: Path) -> bool:
    path = folder / "config.json"
    return path.is_file() and read_json(inside(folder, "config.json")).get("model_type") == MODEL_TYPE


def _modules(folder: Path) -> list[JsonObject]:
    """Returns the entries of `modules.json`, if there is one."""
    path = inside(folder, _MODULES)
    content = parse_json(read_bytes(path), str(path)) if path.is_file() else []
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _module_types(folder: Path) -> list[str]:
    """Returns the names of the classes in `modules.json`, without the modules that different versions have them in."""
    types = [str(entry.get("type")) for entry in _modules(folder)]
    return [name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name for name in types]
