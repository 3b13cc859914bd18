"""Settings of models that compute a vector of each token of a text, in the files of four libraries.

They are folders of sentence-transformers (`MultiVectorEncoder`) and of PyLate (`ColBERT`), those of ColBERT itself
(`HF_ColBERT`), which have `artifact.metadata`, and those of BGE-M3, which have `sparse_linear.pt` and
`colbert_linear.pt` beside an encoder. Every key is mapped, ignored because it does not affect the vectors, or refused.

Reference: `MultiVectorEncoder`, `MultiVectorMask` and `Transformer` of sentence-transformers, which also reads folders
of PyLate; `EncoderOnlyEmbedderM3Model` of FlagEmbedding.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from kerasformer.basics.arguments import BOOLEAN, STRING, check, integer, one_of, optional, sequence
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.files.tensors import open_tensors
from kerasformer.layers.sentence import NORMALIZE, Projection
from kerasformer.models.sentence_settings import (
    ACTIVATIONS,
    MODULES,
    SETTINGS,
    TRANSFORMER,
    SentenceSettings,
    TextSettings,
    check_keys,
    check_paths,
    expect,
    file_content,
    json_object,
    module_entries,
    module_entry,
    module_names,
    projection,
    text_settings,
    use_settings,
)
from kerasformer.models.weight_table import Row, dense

_MODEL, _PYLATE, _COLBERT = "MultiVectorEncoder", "ColBERT", "HF_ColBERT"
_METADATA = "artifact.metadata"
_VECTORS, _WEIGHTS = "colbert_linear.pt", "sparse_linear.pt"
_TOKENS = {"module_input_name": ("token_embeddings",), "module_output_name": ("token_embeddings", None)}
_EXPANSION = {
    "strategy": one_of("fixed", "min"),
    "length": integer(1),
    "attend": BOOLEAN,
    "token": optional(STRING),
}
_PYLATE_KEYS = """query_prefix document_prefix query_length document_length attend_to_expansion_tokens
    do_query_expansion skiplist_words""".split()


@dataclass(frozen=True)
class MultiVectorSettings(TextSettings):
    """How a model computes the vectors of tokens, and how to use them.

    Attributes:
        projections: Dense layers over the hidden states.
        normalize: Whether each vector has length 1.
        unified: Whether there are also a vector of the text and weights of its tokens, and the first token has no
            vector (BGE-M3).
        similarity: `"maxsim"`, or `"meanmaxsim"`, divided by the number of vectors of the query.
        prefix_tokens: Whether a prompt that is a token of the vocabulary is read as this token, as by PyLate.
        query_length: Maximum length of a query in tokens; `None` for that of the model.
        document_length: Maximum length of a document, likewise.
        expansion: How queries are extended by tokens: `"fixed"`, to a fixed length; `"min"`, if they are shorter;
            `None` for no extension.
        expansion_length: Number of tokens of an extended query.
        expansion_token: Token that extends queries; the mask token of the tokenizer by default.
        attends: Whether the tokens of a query attend to those that extend it.
        skiplist: Tokens of documents that have no vector, such as punctuation.

    Raises:
        UnsupportedConfigError: a value is unsupported.
    """

    projections: tuple[Projection, ...] = (Projection(128, None, False),)
    normalize: bool = True
    unified: bool = False
    similarity: str = "maxsim"
    prefix_tokens: bool = False
    query_length: int | None = None
    document_length: int | None = None
    expansion: str | None = None
    expansion_length: int = 32
    expansion_token: str | None = None
    attends: bool = False
    skiplist: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the values."""
        length = optional(integer(2))
        self._check(
            {
                "similarity_fn_name": (self.similarity, one_of("maxsim", "meanmaxsim")),
                "query_length": (self.query_length, length),
                "document_length": (self.document_length, length),
                "query_expansion: strategy": (self.expansion, one_of("fixed", "min", None)),
                "query_expansion: length": (self.expansion_length, integer(1)),
                "query_expansion: token": (self.expansion_token, optional(STRING)),
                "query_expansion: attend": (self.attends, BOOLEAN),
                "skiplist_words": (self.skiplist, sequence(STRING)),
            }
        )

    @classmethod
    def read(cls, folder: Path, hidden_dim: int) -> Self | None:
        """Reads the settings of a checkpoint; `None` for a folder without any.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
            CheckpointError: a file of BGE-M3 cannot be read as weights.
            SourceError: a file cannot be read, or is outside the folder.
        """
        if is_unified_model(folder):
            return cls._of_unified(folder, hidden_dim)
        if not is_multi_vector_model(folder):
            return None
        if _is_colbert(folder):
            return cls._of_colbert(json_object(_METADATA, file_content(folder, _METADATA) or {}))
        return cls.from_files(partial(file_content, folder), hidden_dim)

    @classmethod
    def _of_unified(cls, folder: Path, hidden_dim: int) -> Self:
        """Returns the settings of a folder of BGE-M3, whose dense vectors sentence-transformers also computes."""
        dense_settings = SentenceSettings.read(folder, hidden_dim) or SentenceSettings(("cls",), (NORMALIZE,))
        received = dense_settings.pooling, dense_settings.steps
        if received != (("cls",), (NORMALIZE,)):
            raise UnsupportedConfigError(
                f"The modules of a folder with {_WEIGHTS} must be those of BGE-M3, pooling 'cls' and Normalize. "
                f"Received: {received}"
            )
        file = open_tensors(folder / _VECTORS)
        size = file.shape("weight")[0] if "weight" in file else hidden_dim
        return cls(
            (Projection(size, None),),
            unified=True,
            similarity="meanmaxsim",
            **dense_settings.texts(),
        )

    @classmethod
    def _of_colbert(cls, metadata: JsonMapping) -> Self:
        """Returns the settings of a folder of ColBERT, of whose training this file tells, too; they become PyLate's."""
        expect(_METADATA, "similarity", metadata.get("similarity"), ("cosine", None))
        marks = [
            check(f"{_METADATA}: {key}", metadata.get(key) or token, STRING, error=UnsupportedConfigError)
            for key, token in (("query_token_id", "[unused0]"), ("doc_token_id", "[unused1]"))
        ]
        masked = metadata.get("mask_punctuation", True)
        check(f"{_METADATA}: mask_punctuation", masked, BOOLEAN, error=UnsupportedConfigError)
        size = check(f"{_METADATA}: dim", metadata.get("dim") or 128, integer(1), error=UnsupportedConfigError)
        return cls(
            (Projection(size, None, False),),
            prefix_tokens=True,
            prompts={"query": f"{marks[0]} ", "document": f"{marks[1]} "},
            document_length=metadata.get("doc_maxlen"),
            expansion="fixed",
            expansion_length=metadata.get("query_maxlen") or 32,
            attends=metadata.get("attend_to_mask_tokens") or False,
            skiplist=tuple(string.punctuation) if masked else (),
        )

    @classmethod
    def from_files(cls, content: Callable[[str], object], hidden_dim: int) -> Self:
        """Creates the settings from the contents of the JSON files of sentence-transformers or PyLate.

        Args:
            content: Returns the content of a file by its path; `None` for a missing one.
            hidden_dim: Size of the hidden states.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
        """
        entries = module_entries(content(MODULES))
        names = [name.removeprefix("pylate.models.Dense.") for name in module_names(entries)]
        others = [name for name in names[1:] if name != "Dense"]
        if names[:1] != ["Transformer"] or sorted(others) not in (
            [],
            ["Normalize"],
            sorted(_LAST),
            ["MultiVectorMask"],
        ):
            raise UnsupportedConfigError(
                f"{MODULES} has unsupported modules for vectors of tokens. Expected: Transformer, Dense and then "
                f"MultiVectorMask and Normalize of sentence-transformers, or Dense of PyLate. Received: "
                f"{', '.join(names) or 'none'}"
            )
        paths = [entry["path"] for entry in entries]
        check_paths(names, paths)
        size, projections, skiplist = hidden_dim, list[Projection](), list[str]()
        for name, path in list(zip(names, paths, strict=True))[1:]:
            config = json_object(path, content(f"{path}/config.json"))
            if name == "Dense":
                projections.append(projection(path, config, size, _TOKENS))
                size = projections[-1].dim
            elif name == "Normalize":
                expect(path, "module_input_name", config.get("module_input_name"), ("token_embeddings",))
                check_keys(path, config, required=_TOKENS)
            else:
                tasks = {"skiplist_tasks": (["document"], "document"), "keep_only_token_ids": (None, [])}
                check_keys(path, config, required=tasks, known=("skiplist_words",))
                skiplist = config.get("skiplist_words") or []
        settings = json_object(SETTINGS, content(SETTINGS))
        common: JsonObject = {"projections": tuple(projections), "skiplist": tuple(skiplist)}
        if settings.get("model_type") == _PYLATE:
            return cls(**common | _of_pylate(content, names))
        known = ("query_length", "document_length", "query_expansion")
        text, use = text_settings(content, known=known), use_settings(content, _MODEL)
        common["similarity"] = use.pop("similarity_fn_name", None) or "maxsim"
        common["normalize"] = "Normalize" in names
        expansion = _expansion(text.pop("query_expansion", None))
        return cls(**common, **use, **text, **expansion)

    @classmethod
    def from_config(cls, config: JsonMapping) -> Self:
        """Creates the settings from `to_config`."""
        projections = tuple(Projection(**each) for each in config["projections"])
        return cls(**{**config, "projections": projections, "skiplist": tuple(config["skiplist"])})

    def to_config(self) -> JsonObject:
        """Returns the attributes as JSON."""
        return asdict(replace(self, prompts=dict(self.prompts)))

    def rows(self) -> list[Row]:
        """Returns the weight table of the head, whose tensors are in files of their own."""
        if self.unified:
            pairs = (("projection_0", _VECTORS), ("weight", _WEIGHTS))
            parts = (("kernel", "weight", True), ("bias", "bias", False))
            return [
                Row((f"{layer}/{variable}",), f"{file}/{tensor}", transpose)
                for layer, file in pairs
                for variable, tensor, transpose in parts
            ]
        rows = [
            row
            for index, step in enumerate(self.projections)
            for row in dense(f"projection_{index}", f"{index + 1}_Dense/linear", bias=step.use_bias)
        ]
        # The tensor of ColBERT lies beside those of the encoder.
        return (
            [replace(row, preferred="linear.weight") for row in rows] if self.prefix_tokens and len(rows) == 1 else rows
        )

    def to_files(self, hidden_dim: int) -> JsonObject:
        """Returns the contents of the JSON files, in the form of the library that the settings are from."""
        if self.unified:
            return SentenceSettings(("cls",), (NORMALIZE,), **self.texts()).to_files(hidden_dim)
        names = ["Transformer", *["Dense"] * len(self.projections)]
        if not self.prefix_tokens:
            names += ["MultiVectorMask", "Normalize"] if self.normalize else ["MultiVectorMask"]
        dense_type = "pylate.models.Dense.Dense" if self.prefix_tokens else f"sentence_transformers.{_CLASSES['Dense']}"
        modules = [
            module_entry(index, f"{index}_{name}" if index else "", _CLASSES[name]) for index, name in enumerate(names)
        ]
        files: JsonObject = {MODULES: modules}
        names_of_activations, size = {value: name for name, value in ACTIVATIONS.items()}, hidden_dim
        for entry, name in zip(modules, names, strict=True):
            path = f"{entry['path']}/config.json"
            if name == "Dense":
                step = self.projections[entry["idx"] - 1]
                entry["type"] = dense_type
                files[path] = {"in_features": size, "out_features": step.dim, "bias": step.use_bias}
                files[path] |= {"activation_function": names_of_activations[step.activation]}
                files[path] |= {} if self.prefix_tokens else {key: values[0] for key, values in _TOKENS.items()}
                size = step.dim
            elif name == "MultiVectorMask":
                files[path] = {"skiplist_words": list(self.skiplist), "skiplist_tasks": ["document"]}
            elif name == "Normalize":
                files[path] = {key: values[0] for key, values in _TOKENS.items()}
        lengths = {"query_length": self.query_length, "document_length": self.document_length}
        if self.prefix_tokens:
            of_pylate = {
                "query_prefix": self.prompts.get("query", ""),
                "document_prefix": self.prompts.get("document", ""),
                **lengths,
                "query_length": self.query_length if self.expansion is None else self.expansion_length,
                "do_query_expansion": self.expansion is not None,
                "attend_to_expansion_tokens": self.attends,
                "skiplist_words": list(self.skiplist),
            }
            return files | self._text_files(model_type=_PYLATE, similarity_fn_name="MaxSim", **of_pylate)
        files |= self._text_files(model_type=_MODEL, similarity_fn_name=self.similarity)
        files[TRANSFORMER] |= lengths
        if self.expansion is not None:
            files[TRANSFORMER]["query_expansion"] = {
                "strategy": self.expansion,
                "attend": self.attends,
                "token": self.expansion_token,
                "length": self.expansion_length,
            }
        return files


_LAST = ("MultiVectorMask", "Normalize")
_CLASSES = {
    "Transformer": "models.Transformer",
    "Dense": "base.modules.dense.Dense",
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "Normalize": "base.modules.normalize.Normalize",
}
"""Classes of the modules, below `sentence_transformers`."""


def is_unified_model(folder: Path) -> bool:
    """Whether a folder contains a model with the files of BGE-M3."""
    return all((folder / name).is_file() for name in (_VECTORS, _WEIGHTS))


def is_multi_vector_model(folder: Path) -> bool:
    """Whether a folder contains a model of sentence-transformers, PyLate or ColBERT for vectors of tokens."""
    if _is_colbert(folder):
        return True
    settings = file_content(folder, SETTINGS) if (folder / MODULES).is_file() else None
    return isinstance(settings, dict) and settings.get("model_type") in (_MODEL, _PYLATE)


def _is_colbert(folder: Path) -> bool:
    config = file_content(folder, "config.json")
    saved = config.get("architectures") if isinstance(config, dict) else None
    return isinstance(saved, list) and _COLBERT in saved


def _expansion(content: object) -> JsonObject:
    """Returns the settings of the expansion of queries, from those of sentence-transformers."""
    if content is None:
        return {}
    name = f"query_expansion in {TRANSFORMER}"
    given: dict[str, Any] = {"attend": False, "token": None, **json_object(name, content)}
    if unknown := sorted(set(given) ^ set(_EXPANSION)):
        raise UnsupportedConfigError(
            f"{name} must have strategy and length, and may have attend and token. Received: {content!r:.200}, which "
            f"has or lacks {', '.join(unknown)}"
        )
    names = {"strategy": "expansion", "length": "expansion_length", "attend": "attends", "token": "expansion_token"}
    return {
        names[key]: check(f"{name}: {key}", given[key], kind, error=UnsupportedConfigError)
        for key, kind in _EXPANSION.items()
    }


def _of_pylate(content: Callable[[str], object], names: list[str]) -> JsonObject:
    """Returns the settings that PyLate has in `config_sentence_transformers.json`; its defaults where they are missing.

    Vectors always have length 1, and documents have no vectors of punctuation unless the file says otherwise.
    """
    if set(names) - {"Transformer", "Dense"}:
        raise UnsupportedConfigError(f"{MODULES} of PyLate must be Transformer and Dense. Received: {', '.join(names)}")
    use = use_settings(content, _PYLATE, _PYLATE_KEYS)
    expect(SETTINGS, "similarity_fn_name", use.pop("similarity_fn_name", None), ("MaxSim", "maxsim", "cosine", None))
    expands = use.pop("do_query_expansion", True)
    length = use.pop("query_length", None) or 32
    for key, name in (("query_prefix", "query"), ("document_prefix", "document")):
        prefix = use.pop(key, None) or ""
        check(f"{SETTINGS}: {key}", prefix, STRING, error=UnsupportedConfigError)
        use["prompts"][name] = prefix + use["prompts"].get(name, "").removeprefix(prefix)
    skiplist, attends = use.pop("skiplist_words", None), use.pop("attend_to_expansion_tokens", None)
    return {
        **use,
        **text_settings(content),
        "prefix_tokens": True,
        "expansion": "fixed" if check("do_query_expansion", expands, BOOLEAN, error=UnsupportedConfigError) else None,
        "expansion_length": length,
        "query_length": None if expands else length,
        "attends": attends or False,
        "skiplist": tuple(string.punctuation if skiplist is None else skiplist),
    }
