"""Vectors of the tokens of a text for retrieval (ColBERT), and all kinds of vectors in one pass (BGE-M3).

Reference: Khattab and Zaharia 2020, arXiv:2004.12832, and `MultiVectorEncoder` of sentence-transformers; Chen et al.
2024, arXiv:2402.03216, and `EncoderOnlyEmbedderM3Model` of FlagEmbedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import keras
from keras import ops

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import MULTI_VECTOR_SIMILARITY
from kerasformer.bundle import SENTENCE_EMBEDDING, TOKEN_EMBEDDINGS, TOKEN_WEIGHTS, ModelInfo, MultiVectorInfo
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import MultiVectorHead
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import Config
from kerasformer.models.contracts import EncoderModel
from kerasformer.models.multi_vector_settings import MultiVectorSettings
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.text_inputs import EXPANSION_MASK, TextInput
from kerasformer.models.weight_table import Row
from kerasformer.tokenization import Tokenizer

_OUTPUTS = (TOKEN_EMBEDDINGS, TOKEN_WEIGHTS, SENTENCE_EMBEDDING)


class MultiVectorSimilarity(EncoderModel):
    """Encoder that returns a vector of each token, and with the files of BGE-M3 all kinds of vectors.

    Args:
        config: Configuration of the encoder.
        vectors: Settings of the vectors, or their attributes; the defaults without any.
        kwargs: Arguments of `PretrainedModel`.

    Call arguments:
        inputs: Dictionary of int32 arrays `(B, T)` as for other encoders. `expansion_mask` is 1 for the tokens that
            extend a query, to which others do not attend; models whose tokens attend to them do not have it.

    Returns:
        By name: `token_embeddings` `(B, T, D)`, and for BGE-M3 `token_weights` `(B, T)` and `sentence_embedding`
        `(B, E)`.
    """

    task = MULTI_VECTOR_SIMILARITY
    class_suffix = "MultiVectorSimilarity"
    in_transformers = False
    bare = True
    output_name = TOKEN_EMBEDDINGS

    def __init__(
        self, config: Config, vectors: MultiVectorSettings | JsonMapping | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        if isinstance(vectors, Mapping):
            vectors = MultiVectorSettings.from_config(vectors)
        self.vectors = vectors or MultiVectorSettings()
        super().__init__(config, **kwargs)

    @classmethod
    def options(
        cls, task: str, config: Config, folder: Path | None = None, sentence: SentenceSettings | None = None
    ) -> Arguments:
        """Returns the settings of the vectors, if the folder has any."""
        options = super().options(task, config, folder, sentence)
        return {**options, "vectors": None if folder is None else MultiVectorSettings.read(folder, config.output_dim)}

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """Descriptions of the arrays of the encoder, and of the mask of tokens that extend a query."""
        hides = self.vectors.expansion is not None and not self.vectors.attends
        return (*super().text_inputs, EXPANSION_MASK) if hides else super().text_inputs

    def make_head(self) -> keras.layers.Layer:
        """Creates the head."""
        vectors = self.vectors
        return MultiVectorHead(vectors.projections, vectors.normalize, vectors.unified, name="head")

    def head_rows(self) -> list[Row]:
        """Returns the rows of the projections, and of the layer of weights."""
        return self.vectors.rows()

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """See `TextModel.backbone_arguments`; no token attends to those that extend a query."""
        hidden = arrays.get(EXPANSION_MASK.name)
        if hidden is not None:
            mask = arrays.get("attention_mask", ops.ones_like(hidden))
            arrays = {**arrays, "attention_mask": mask * (1 - hidden)}
        return super().backbone_arguments(arrays, every_token)

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> dict[str, Tensor]:  # type: ignore[override]
        """Returns the vectors by name."""
        results = self.head(states["output"], attention_mask=inputs.get("attention_mask"))
        return dict(zip(_OUTPUTS, results, strict=False))

    def named(self, output: dict[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        """Returns the dictionary unchanged."""
        return output

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens, that of the settings or of the tokenizer if shorter."""
        limit = self.vectors.max_length or (self.tokenizer and self.tokenizer.model_max_length)
        return min(filter(None, (super().max_length, limit)), default=None)

    def set_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Sets the tokenizer, which converts texts to lower case if the settings require it."""
        if tokenizer is not None and self.vectors.lower_case:
            tokenizer.convert_to_lower_case()
        super().set_tokenizer(tokenizer)

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        vectors = self.vectors
        described = MultiVectorInfo(
            vectors.projections[-1].dim if vectors.projections else self.config.output_dim,
            vectors.unified,
            vectors.similarity,  # type: ignore[arg-type]  # checked by `MultiVectorSettings`
            dict(vectors.prompts),
            vectors.default_prompt,
            vectors.prefix_tokens,
            vectors.query_length,
            vectors.document_length,
            vectors.expansion,  # type: ignore[arg-type]
            vectors.expansion_length,
            vectors.expansion_token,
            vectors.skiplist,
        )
        return replace(super().info(task), vectors=described)

    def extra_files(self) -> JsonObject:
        """Returns the files of sentence-transformers or PyLate."""
        return self.vectors.to_files(self.config.output_dim)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "vectors": self.vectors.to_config()}
