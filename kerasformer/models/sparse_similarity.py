"""Sparse vectors of texts from a masked language model: a weight for each token of the vocabulary (SPLADE).

Reference: Formal et al. 2021, "SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval",
arXiv:2109.10086; `SpladePooling` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import SPARSE_SIMILARITY
from kerasformer.bundle import SPARSE_EMBEDDING, ModelInfo, SparseInfo
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers.layer_types import LayerConfig, LayerOptions, Outputs
from kerasformer.layers.sentence import sparse_weights
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.sparse_settings import SparseSettings
from kerasformer.models.task_models import FillMask
from kerasformer.tokenization import Tokenizer


class SparseSimilarity(FillMask):
    """Masked language model whose scores become one sparse vector of each text.

    It is declared together with the masked language model of an architecture: `(SparseSimilarity, BertFillMask)`.

    Args:
        config: Configuration of the architecture.
        sparse: Settings of the vectors, or the contents of their files by name; the defaults without any.
        kwargs: Arguments of `FillMask`.

    Returns:
        `(B, V)`: the weight of each token of the vocabulary, at least 0.
    """

    task = SPARSE_SIMILARITY
    class_suffix = "SparseSimilarity"
    in_transformers = False
    output_name = SPARSE_EMBEDDING

    def __init__(
        self, config: Config, sparse: SparseSettings | JsonMapping | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        if isinstance(sparse, Mapping):
            sparse = SparseSettings.from_files(sparse.get, config.vocab_size)  # type: ignore[attr-defined]
        self.sparse = sparse or SparseSettings()
        super().__init__(config, **kwargs)

    @classmethod
    def options(
        cls, task: str, config: Any, folder: Path | None = None, sentence: SentenceSettings | None = None
    ) -> Arguments:
        """Returns the settings of the vectors, if the folder has any."""
        options = super().options(task, config, folder, sentence)
        return {**options, "sparse": None if folder is None else SparseSettings.read(folder, config.vocab_size)}

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the weights."""
        scores = super().answer(states, inputs, training)
        return sparse_weights(scores, inputs.get("attention_mask"), self.sparse.pooling, self.sparse.activation)

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens, that of the settings or of the tokenizer if shorter."""
        limit = self.sparse.max_length or (self.tokenizer and self.tokenizer.model_max_length)
        return min(filter(None, (super().max_length, limit)), default=None)

    def set_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Sets the tokenizer, which converts texts to lower case if the settings require it."""
        if tokenizer is not None and self.sparse.lower_case:
            tokenizer.convert_to_lower_case()
        super().set_tokenizer(tokenizer)

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        sparse = self.sparse
        described = SparseInfo(
            sparse.pooling,  # type: ignore[arg-type]  # checked by `SparseSettings`
            sparse.max_active_dims,
            dict(sparse.prompts),
            sparse.default_prompt,
        )
        return replace(super().info(task), sparse=described)

    def extra_files(self) -> JsonObject:
        """Returns the files of sentence-transformers."""
        return self.sparse.to_files(self.config.vocab_size)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "sparse": self.extra_files()}
