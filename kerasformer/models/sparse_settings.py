"""Settings of models that compute a sparse vector of a text, in the files of sentence-transformers (SPLADE).

Every key is mapped, ignored because it does not affect the vectors, or refused.

Reference: `SparseEncoder`, `MLMTransformer` and `SpladePooling` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from kerasformer.basics.arguments import integer, optional
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonObject
from kerasformer.layers.sentence import SPARSE_ACTIVATIONS, SPARSE_POOLINGS
from kerasformer.models.sentence_settings import (
    MODULES,
    SETTINGS,
    TRANSFORMER,
    TextSettings,
    check_keys,
    check_paths,
    expect,
    file_content,
    json_object,
    module_entries,
    module_entry,
    module_names,
    text_settings,
    use_settings,
)

_MODEL, _TASK, _POOLING = "SparseEncoder", "fill-mask", "1_SpladePooling"


@dataclass(frozen=True)
class SparseSettings(TextSettings):
    """How a masked language model computes the weights of tokens, and how to use them.

    Attributes:
        pooling: How the weights of a text are pooled over its tokens, one of `layers.sentence.SPARSE_POOLINGS`.
        activation: One of `layers.sentence.SPARSE_ACTIVATIONS`: `log(1 + relu(score))`, or the same once more.
        max_active_dims: Number of largest weights to keep by default; `None` for all.

    Raises:
        UnsupportedConfigError: a value is unsupported.

    Reference: Formal et al. 2021, arXiv:2107.05720 (sum) and arXiv:2109.10086 (max); Geng et al. 2025,
    arXiv:2504.14839 (`log1p_relu`).
    """

    pooling: str = "max"
    activation: str = "relu"
    max_active_dims: int | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        expect("SpladePooling", "pooling_strategy", self.pooling, SPARSE_POOLINGS)
        expect("SpladePooling", "activation_function", self.activation, SPARSE_ACTIVATIONS)
        self._check({"max_active_dims": (self.max_active_dims, optional(integer(1)))})

    @classmethod
    def read(cls, folder: Path, vocab_size: int) -> Self | None:
        """Reads the settings of a checkpoint; `None` for a folder without `modules.json`.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
            SourceError: a file cannot be read, or is outside the folder.
        """
        content = partial(file_content, folder)
        return None if content(MODULES) is None else cls.from_files(content, vocab_size)

    @classmethod
    def from_files(cls, content: Callable[[str], object], vocab_size: int) -> Self:
        """Creates the settings from the contents of JSON files.

        Args:
            content: Returns the content of a file by its path; `None` for a missing one.
            vocab_size: Size of the vocabulary.

        Raises:
            UnsupportedConfigError: a module or a setting is not implemented.
        """
        entries = module_entries(content(MODULES))
        names = module_names(entries)
        if names not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
            raise UnsupportedConfigError(
                f"{MODULES} has unsupported modules for sparse vectors. Expected: MLMTransformer (or Transformer) and "
                f"SpladePooling of sentence-transformers. Received: {', '.join(names) or 'none'}"
            )
        check_paths(names, [entry["path"] for entry in entries])
        text = text_settings(content, _TASK)
        if names[0] == "Transformer" and "transformer_task" not in json_object(TRANSFORMER, content(TRANSFORMER)):
            raise UnsupportedConfigError(
                f"{TRANSFORMER} must have transformer_task={_TASK!r}, as the weights are scores of a masked language "
                "model. Received: none"
            )
        config = json_object(_POOLING, content(f"{_POOLING}/config.json"))
        sizes = dict.fromkeys(("word_embedding_dimension", "embedding_dimension"), (vocab_size, None))
        check_keys(
            _POOLING, config, required=sizes, known=("pooling_strategy", "activation_function"), ignored=("chunk_size",)
        )
        use = use_settings(content, _MODEL, ("max_active_dims",))
        expect(SETTINGS, "similarity_fn_name", use.pop("similarity_fn_name", None), ("dot", None))
        chosen = {"pooling": config.get("pooling_strategy"), "activation": config.get("activation_function")}
        return cls(**{name: value for name, value in chosen.items() if value is not None}, **use, **text)

    def to_files(self, vocab_size: int) -> JsonObject:
        """Returns the contents of the JSON files, which sentence-transformers and `from_files` read."""
        limit = {} if self.max_active_dims is None else {"max_active_dims": self.max_active_dims}
        return {
            MODULES: [
                module_entry(0, "", "sparse_encoder.models.MLMTransformer"),
                module_entry(1, _POOLING, "sparse_encoder.models.SpladePooling"),
            ],
            f"{_POOLING}/config.json": {
                "pooling_strategy": self.pooling,
                "activation_function": self.activation,
                "word_embedding_dimension": vocab_size,
            },
            **self._text_files(model_type=_MODEL, similarity_fn_name="dot", **limit),
        }


def is_sparse_model(folder: Path) -> bool:
    """Whether a folder contains a model of sentence-transformers for sparse vectors."""
    if not (folder / MODULES).is_file():
        return False
    settings = file_content(folder, SETTINGS)
    named = isinstance(settings, dict) and settings.get("model_type") == _MODEL
    return named or "SpladePooling" in module_names(file_content(folder, MODULES))
