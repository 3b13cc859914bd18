"""Model2Vec: a table of token vectors without any layer, whose mean is the embedding of a text.

Derived from: the Transformer, of which only the table of tokens is left.
Paper: Tulkens and van Dongen 2024, "Model2Vec: Fast State-of-the-Art Static Embeddings",
github.com/MinishLab/model2vec.
Reference: `StaticModel` of model2vec, and `StaticEmbedding` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from keras import ops

from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import TransformerEmbeddings
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.sentence_settings import MODULES, SETTINGS, SentenceSettings
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS
from kerasformer.models.weight_table import Names, Row


@dataclass(frozen=True, kw_only=True)
class Model2VecConfig(Config):
    """Configuration of static embeddings; the defaults are those of `minishlab/potion-base-8M`.

    Attributes:
        vocab_size: Number of tokens.
        hidden_dim: Size of their vectors.
        skipped_token_ids: Ids of tokens that have no part in the mean, such as the unknown token.
        normalize: Whether embeddings of texts have length 1.
        initializer_range: Standard deviation of random vectors.
    """

    model_type = "model2vec"
    # How the table was made. The length to which the references truncate texts is no limit of a mean.
    ignored = frozenset(
        """tokenizer_name apply_pca apply_zipf sif_coefficient seq_length pooling embedding_dtype
        vocabulary_quantization""".split()
    )

    vocab_size: Size = hf("vocab_size", 29528)
    hidden_dim: Size = hf("hidden_dim", 256)
    skipped_token_ids: list[TokenId] | None = hf("skipped_token_ids", None)
    normalize: bool = hf("normalize", False)
    initializer_range: Deviation = hf("initializer_range", 0.02)


class Model2Vec(BidirectionalEncoder):
    """The vectors of the tokens, without head."""

    config_type = Model2VecConfig
    architecture_prefix = "Static"
    is_table = True
    names = Names(tokens="embeddings")
    input_arrays = (INPUT_IDS, ATTENTION_MASK)

    @property
    def schedule(self) -> list[int]:
        """No layer."""
        return []

    @property
    def computes_single_tokens(self) -> bool:
        """There is no last layer to compute anything."""
        return False

    def make_embeddings(self, **options: Any) -> TransformerEmbeddings:
        """Creates the table, without positions and norm."""
        config = self.config
        arguments = {"epsilon": None, "initializer": self.initializer, "name": "embeddings", **options}
        return TransformerEmbeddings(config.vocab_size, None, config.hidden_dim, **arguments)

    def rows(self) -> list[Row]:
        """Returns the weight table, in the names of model2vec."""
        return [Row(("embeddings/tokens/embeddings",), "embeddings")]


class Model2VecFeatures(task_models.FeatureExtraction, backbone=Model2Vec):
    """Static embeddings, which returns the vectors of the tokens `(B, T, E)`, or embeddings of texts `(B, E)`.

    The mean is that of the tokens that are not skipped; it is 0 for a text without any.
    """

    in_transformers = False

    def __init__(
        self, config: Model2VecConfig, sentence: SentenceSettings | JsonMapping | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, sentence, **kwargs)
        if self.sentence is not None:
            self.config = replace(config, normalize=self.sentence.normalized)

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the vectors of the tokens, or the embeddings."""
        ids = inputs["input_ids"]
        real = inputs.get("attention_mask")
        real = ops.ones_like(ids) if real is None else real
        for skipped in self.config.skipped_token_ids or ():
            real = real * ops.cast(ids != skipped, real.dtype)
        return super().answer(states, {**inputs, "attention_mask": real}, training)

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Sets the tokenizer, which adds no special tokens: they would have a part in the mean."""
        super().set_tokenizer(tokenizer)
        if tokenizer is not None:
            tokenizer.add_no_special_tokens()

    def extra_files(self) -> JsonObject:
        """Returns the files by which sentence-transformers reads the table."""
        if self.sentence is None:
            return {}
        types = ["StaticEmbedding", *(["Normalize"] if self.sentence.normalized else [])]
        files = self.sentence.to_files(self.config.output_dim)
        modules = [
            {
                "idx": index,
                "name": str(index),
                "path": f"{index}_{name}" if index else "",
                "type": f"sentence_transformers.models.{name}",
            }
            for index, name in enumerate(types)
        ]
        return {MODULES: modules, SETTINGS: files[SETTINGS]}


MODELS = task_models.heads(Model2Vec, Model2VecFeatures)
