"""Model classes by task, from which architectures derive theirs."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from kerasformer.basics.arguments import Arguments
from kerasformer.basics.tasks import SENTENCE_SIMILARITY, task_of_model, tasks_of_class
from kerasformer.bundle import PROMPT_MASK, SENTENCE_EMBEDDING, EmbeddingInfo, ModelInfo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import ClassificationHead, Dense, MaskedLMHead, SentenceHead
from kerasformer.layers.core import Composite, Embedding, unpacked
from kerasformer.layers.layer_types import LayerArguments, LayerConfig, LayerOptions, Outputs
from kerasformer.layers.sentence import first_slots
from kerasformer.layers.tensor import Shape, Tensor, at_slots
from kerasformer.models.backbone import Backbone
from kerasformer.models.config import Config
from kerasformer.models.contracts import (
    CausalModel,
    DecoderProjectingModel,
    EncoderModel,
    TextModel,
    with_states,
)
from kerasformer.models.creation import check_config
from kerasformer.models.named_arrays import Inputs
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.weight_table import Row, dense, norm, output_matrix, output_rows
from kerasformer.tokenization import Tokenizer


class FeatureModel(TextModel):
    """Base of models that return the hidden states of the last layer, or with a head one embedding of each text.

    Args:
        config: Configuration of the architecture.
        sentence: Settings of the embeddings, with which the task is sentence-similarity; their files by name, as
            `get_config` returns them; or `None` for hidden states.
        kwargs: Arguments of `PretrainedModel`.

    Returns:
        Hidden states `(B, T, E)`, or embeddings `(B, D)`.
    """

    task = "feature-extraction"
    class_suffix = "Features"
    bare = True
    output_name = "last_hidden_state"

    def __init__(
        self, config: Config, sentence: SentenceSettings | JsonMapping | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        if isinstance(sentence, Mapping):
            sentence = SentenceSettings.from_files(sentence.get, config.output_dim)
        self.sentence = sentence
        if sentence is not None:
            self.task, self.output_name = SENTENCE_SIMILARITY, SENTENCE_EMBEDDING
        super().__init__(config, **kwargs)

    @classmethod
    def options(
        cls, task: str, config: Config, folder: Path | None = None, sentence: SentenceSettings | None = None
    ) -> Arguments:
        """Returns the settings of the embeddings, unless hidden states are requested.

        Raises:
            InputError: settings of embeddings for another task.
            UnsupportedConfigError: a setting of the folder is not implemented.
        """
        if task_of_model(task) != SENTENCE_SIMILARITY:
            return super().options(task, config, folder, sentence)
        if sentence is None and folder is not None:
            sentence = SentenceSettings.read(folder, config.output_dim)
        return {"sentence": sentence or SentenceSettings.default(folder)}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the input arrays, with `prompt_mask` if the tokens of a prompt are not pooled."""
        return (*super().input_names, *self._prompt_masks)

    def value_counts(self) -> dict[str, int | None]:
        """See `PretrainedModel.value_counts`."""
        return {**super().value_counts(), **dict.fromkeys(self._prompt_masks, 2)}

    @property
    def _prompt_masks(self) -> tuple[str, ...]:
        return () if self.sentence is None or self.sentence.include_prompt else (PROMPT_MASK,)

    def make_head(self) -> keras.layers.Layer | None:
        """Creates the head that computes embeddings, if they are requested."""
        if self.sentence is None:
            return None
        return SentenceHead(self.sentence.pooling, self.sentence.steps, name="head")

    def head_rows(self) -> list[Row]:
        """Returns the rows of the projections and norms of the head."""
        return [] if self.sentence is None else self.sentence.rows()

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the hidden states, or the embeddings."""
        hidden = super().answer(states, inputs, training)
        if self.head is None:
            return hidden
        masks = {"attention_mask": inputs.get("attention_mask"), "prompt_mask": inputs.get(PROMPT_MASK)}
        return self.head(hidden, **masks, training=training)

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens, for embeddings that of their settings or of the tokenizer if shorter."""
        longest = super().max_length
        if self.sentence is None:
            return longest
        limit = self.sentence.max_length or (self.tokenizer and self.tokenizer.model_max_length)
        return min(filter(None, (longest, limit)), default=None)

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information about the model that pipelines and bundles need."""
        info, sentence = super().info(task), self.sentence
        if sentence is None:
            return info
        embedding = EmbeddingInfo(
            sentence.dimension(self.config.output_dim),
            sentence.pooling,
            sentence.normalized,
            sentence.similarity,  # type: ignore[arg-type]  # checked by `SentenceSettings`
            dict(sentence.prompts),
            sentence.default_prompt,
            sentence.truncate_dim,
        )
        return replace(info, embedding=embedding)

    def set_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Sets the tokenizer, which converts texts to lower case if the settings of the embeddings require it."""
        if tokenizer is not None and self.sentence is not None and self.sentence.lower_case:
            tokenizer.convert_to_lower_case()
        super().set_tokenizer(tokenizer)

    def extra_files(self) -> JsonObject:
        """Returns the files of sentence-transformers, for a model that computes embeddings."""
        return {} if self.sentence is None else self.sentence.to_files(self.config.output_dim)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        sentence = None if self.sentence is None else self.sentence.to_files(self.config.output_dim)
        return {**super().get_config(), "sentence": sentence}


class FeatureExtraction(FeatureModel, EncoderModel):
    """Encoder that returns the hidden states `(B, T, E)` of the last layer, or embeddings of texts `(B, D)`.

    The last layer computes only the first token of each text if no other token is part of its embedding.
    """

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """See `TextModel.backbone_arguments`."""
        arguments = super().backbone_arguments(arrays, every_token)
        if self._reads_first_token and not every_token and "attention_mask" in arrays:
            arguments["slots"] = first_slots(arrays["attention_mask"])
        elif self._reads_first_token and not every_token:
            arguments["count"] = 1
        return arguments

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the hidden states, or the embeddings."""
        hidden = states["output"]
        if self._reads_first_token and hidden.shape[1] == 1:
            return self.head(hidden, training=training)
        return super().answer(states, inputs, training)

    @property
    def _reads_first_token(self) -> bool:
        """Whether the embedding is computed from the first token, and the backbone can compute that one alone."""
        if self.sentence is None or self.sentence.pooling != ("cls",) or self._prompt_masks:
            return False
        return bool(getattr(self.backbone, "computes_single_tokens", False))


class EncoderOnly(EncoderModel):
    """Base of models with the encoder of an encoder-decoder; tensors of the decoder are ignored."""

    def make_backbone(self) -> keras.layers.Layer:
        """Creates the backbone without its decoder."""
        return self.backbone_type(self.config, encoder_only=True, name="backbone")

    @classmethod
    def ties(cls, config: Any) -> dict[str, str]:
        """See `PretrainedModel.ties`; the table of the decoder is not used."""
        decoder = f"{cls.backbone_type.names.prefix}decoder."
        return {name: original for name, original in super().ties(config).items() if not name.startswith(decoder)}


class EncoderFeatures(EncoderOnly, FeatureExtraction):
    """Encoder of an encoder-decoder, which returns hidden states `(B, T, E)`."""

    architecture_suffix = "EncoderModel"


class PooledFeatures(FeatureExtraction):
    """Encoder that returns hidden states and keeps the pooler of a checkpoint, if there is one.

    Args:
        config: Configuration of the architecture.
        pooled: Whether the backbone has a pooler.
        kwargs: Arguments of `PretrainedModel`.
    """

    def __init__(self, config: Config, pooled: bool = True, **kwargs: Unpack[LayerOptions]) -> None:
        self.pooled = pooled
        super().__init__(config, **kwargs)

    @classmethod
    def parts(cls, tensors: Collection[str]) -> Arguments:
        """Returns whether the checkpoint has a pooler."""
        return {"pooled": any("pooler." in name for name in tensors)}

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "pooled": self.pooled}


class FillMask(EncoderModel):
    """Masked language model, which returns scores of the vocabulary for each token, `(B, T, V)`.

    Args:
        config: Configuration of the architecture.
        activation: Activation of the head; by default that of Hugging Face's format.
        epsilon: Epsilon of the norm of the head; that of the layers by default.
        kwargs: Arguments of `PretrainedModel`.

    The configuration may have `head_act`, the activation of the head (that of the layers by default), and
    `output_bias`, whether there is a bias of the scores (true by default).

    Attributes:
        head_activation: Default activation of the head, if it is not that of the configuration (RoBERTa).
    """

    task = "fill-mask"
    architecture_suffix = "ForMaskedLM"
    class_suffix = "FillMask"
    head_activation: ClassVar[str | None] = None

    def __init__(
        self, config: Any, activation: str | None = None, epsilon: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        check_config(type(self), config)
        self.activation = activation or self.default_activation(config)
        self.epsilon = config.epsilon if epsilon is None else epsilon
        super().__init__(config, **kwargs)

    @classmethod
    def default_activation(cls, config: Any) -> str:
        """Returns the activation that the head has in Hugging Face's format."""
        return cls.head_activation or str(getattr(config, "head_act", config.hidden_act))

    def make_head(self) -> keras.layers.Layer:
        """Creates a masked language modelling head."""
        config = self.config
        size = self.backbone.embeddings.embedding_dim
        return MaskedLMHead(
            config.vocab_size,
            size,
            self.activation,
            self.epsilon,
            use_bias=getattr(config, "output_bias", True),
            embedding_dim=self.backbone.embeddings.tokens.output_dim,
            tied=self.tied,
            name="predictions" if self.task == "pretraining" else "head",
            **self.head_options(),
        )

    @property
    def tied(self) -> bool:
        """Whether the matrix of the scores is the table of token embeddings."""
        return bool(getattr(self.config, "tied", True))

    @property
    def shared_table(self) -> Embedding | None:
        """The table of token embeddings if it is also the matrix of the scores."""
        table: Embedding | None = self.backbone.embeddings.tokens if self.tied else None
        return table

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without the matrices that its `MaskedLMHead` does not have."""
        embeddings = self.backbone.embeddings
        extended = embeddings.tokens.output_dim < embeddings.embedding_dim
        rows = output_rows(super().head_rows(), self.tied)
        return [row for row in rows if extended or "extension/" not in row.variables[0]]

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.head(states["output"], embedding=self.backbone.embeddings.tokens)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "activation": self.activation, "epsilon": self.epsilon}

    def save_pretrained(self, folder: str | Path, *, dtype: str | None = None, overwrite: bool = False) -> Path:
        """Saves the model in Hugging Face's format, see `PretrainedModel.save_pretrained`.

        Raises:
            UnsupportedConfigError: activation or epsilon of head and layers differ, as they may in models of KerasHub.
        """
        received = self.activation, self.epsilon
        expected = self.default_activation(self.config), self.config.epsilon
        if received != expected:
            raise UnsupportedConfigError(
                "Hugging Face's format has no separate activation and epsilon of the head. "
                f"Expected: {expected[0]} and {expected[1]}. Received: {received[0]} and {received[1]}"
            )
        return super().save_pretrained(folder, dtype=dtype, overwrite=overwrite)


def prediction_rows(prefix: str, dense_name: str = "dense", norm_name: str = "LayerNorm") -> list[Row]:
    """Returns the rows of a `MaskedLMHead` from the tensor names of its dense layer and its norm below a prefix."""
    rows = [*dense("dense", f"{prefix}.{dense_name}"), *norm("norm", f"{prefix}.{norm_name}")]
    rows.append(Row(("bias",), f"{prefix}.bias", preferred=f"{prefix}.decoder.bias"))
    return [*rows, output_matrix(f"{prefix}.decoder.weight", "projection/kernel")]


BERT_PREDICTIONS = prediction_rows("cls.predictions", "transform.dense", "transform.LayerNorm")
"""Rows of the `MaskedLMHead` of BERT and of models that use its names."""


class GeluFillMask(FillMask):
    """Masked language model whose head has GELU and the tensors `lm_head` (RoBERTa, Longformer, MPNet)."""

    head_activation = "gelu"
    head_table = prediction_rows("lm_head", norm_name="layer_norm")


class Pretraining(FillMask):
    """Encoder with both heads of its pretraining: masked language modelling and classification of a pair of texts.

    Attributes:
        relation: Name of the second output in the architecture.

    Returns:
        Dictionary of `prediction_logits` `(B, T, V)` and, as named by `relation`, scores of the pair `(B, 2)`.
    """

    task = "pretraining"
    architecture_suffix = "ForPreTraining"
    class_suffix = "Pretraining"
    pooled = True
    relation: ClassVar[str]

    def named(self, output: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the dictionary unchanged."""
        return output

    def make_head(self) -> keras.layers.Layer:
        """Creates both heads."""
        return PretrainingHead(super().make_head(), self.make_relation(), name="head")

    def make_relation(self) -> ClassificationHead:
        """Creates the head for pairs of texts."""
        return ClassificationHead(2, name="relation")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> dict[str, Tensor]:
        """Returns the scores of both heads."""
        words, relation = self.head(
            states["output"], pooled=states["pooled"], embedding=self.backbone.embeddings.tokens, training=training
        )
        return {"prediction_logits": words, self.relation: relation}


@keras.saving.register_keras_serializable("kerasformer")
class PretrainingHead(Composite):
    """Both heads of an encoder's pretraining.

    Args:
        predictions: Head for masked language modelling.
        relation: Head for classification of a pair of texts.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states `(B, T, E)`.
        pooled: Output of the pooler `(B, E)`.
        embedding: The token `Embedding`.

    Returns:
        `(scores of the vocabulary (B, T, V), scores of the pair (B, 2))`.
    """

    def __init__(self, predictions: MaskedLMHead, relation: ClassificationHead, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.predictions, self.relation = predictions, relation

    def build(self, input_shape: Shape) -> None:
        """Creates the weights of both heads."""
        self.predictions.build(input_shape)
        self.relation.build((input_shape[0], input_shape[-1]))

    def call(self, x: Tensor, pooled: Tensor, embedding: Embedding, training: bool = False) -> tuple[Tensor, Tensor]:
        """Applies both heads."""
        return self.predictions(x, embedding=embedding), self.relation(pooled, training=training)

    def compute_output_shape(self, input_shape: Shape) -> tuple[Shape, Shape]:
        """Returns the shapes of both outputs."""
        relation = self.relation.compute_output_shape((input_shape[0], input_shape[-1]))
        return self.predictions.compute_output_shape(input_shape), relation


class ReplacedTokenDetection(EncoderModel):
    """Discriminator that detects replaced tokens: returns a score of each token, positive if it is not the original.

    Returns:
        `(B, T)`; the sigmoid of a score is the probability that the token was replaced.

    Reference: Clark et al. 2020, arXiv:2003.10555, section 2.
    """

    task = "replaced-token-detection"
    architecture_suffix = "ForPreTraining"
    class_suffix = "ReplacedTokenDetection"

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of two dense layers."""
        config = self.config
        return ReplacedTokenHead(1, config.hidden_dim, config.hidden_act, name="head")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.head(states["output"], training=training)


@keras.saving.register_keras_serializable("kerasformer")
class ReplacedTokenHead(ClassificationHead):
    """A `ClassificationHead` with one class, whose output has no axis of classes.

    Args:
        args: Arguments of `ClassificationHead`.
        kwargs: Arguments of `ClassificationHead`.

    Call arguments:
        x: `(B, T, E)`; the result is `(B, T)`.
    """

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the head."""
        return ops.squeeze(super().call(x, training=training), axis=-1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(B, T, E)` to `(B, T)`."""
        return input_shape[:-1]


class TextClassification(EncoderModel):
    """Text classifier, which returns scores `(B, C)` from the pooler, the first token or the mean of all real tokens.

    The mean is used if the configuration has `pooling` "mean" (ModernBERT); `count` must then be `None`.
    """

    task = "text-classification"
    architecture_suffix = "ForSequenceClassification"
    class_suffix = "TextClassification"
    has_labels = True
    count: ClassVar[int | None] = 1
    head_table: ClassVar[Sequence[Row]] = dense("output", "classifier")

    def head_shape(self) -> tuple[int | None, ...]:
        """Returns the shape of one vector for each text."""
        return None, self.config.output_dim

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of dropout and a dense layer."""
        config = self.config
        return ClassificationHead(config.num_labels, dropout=config.head_dropout, name="head")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.head(self.vector(states, inputs), training=training)

    def vector(self, states: Outputs, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns one vector for each text, `(B, E)`."""
        if getattr(self.config, "pooling", None) == "mean":
            return mean_of_tokens(states["output"], inputs.get("attention_mask"))
        pooled: Tensor = states["pooled"] if self.pooled else states["output"][:, 0]
        return pooled


class PooledTextClassification(TextClassification):
    """Text classifier with the pooler (BERT)."""

    pooled = True


class NextSentencePrediction(TextClassification):
    """Classifier of pairs of texts: returns scores `(B, 2)`, the first one for a second text that follows the first."""

    task = "next-sentence-prediction"
    architecture_suffix = "ForNextSentencePrediction"
    class_suffix = "NextSentencePrediction"
    has_labels = False
    pooled = True

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of a dense layer with two outputs."""
        return ClassificationHead(2, name="head")


class DenseTextClassification(TextClassification):
    """Text classifier with a head of two dense layers for the first token (RoBERTa, DeBERTa).

    The configuration may have the activation between them, `pooler_act` (tanh by default), and the dropout rates before
    them, `pooler_dropout` and `classifier_dropout` (`head_dropout` by default).
    """

    head_table = (*dense("dense", "classifier.dense"), *dense("output", "classifier.out_proj"))

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of two dense layers, each after dropout."""
        config = self.config
        rates = (getattr(config, name, None) for name in ("pooler_dropout", "classifier_dropout"))
        first, second = (config.head_dropout if rate is None else rate for rate in rates)
        return ClassificationHead(
            config.num_labels,
            config.hidden_dim,
            getattr(config, "pooler_act", "tanh"),
            dropout=second,
            input_dropout=first,
            name="head",
        )


class TokenClassification(EncoderModel):
    """Token classifier, which returns scores `(B, T, C)`."""

    task = "token-classification"
    architecture_suffix = "ForTokenClassification"
    class_suffix = "TokenClassification"
    has_labels = True
    head_table: ClassVar[Sequence[Row]] = dense("output", "classifier")

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of dropout and a dense layer."""
        config = self.config
        return ClassificationHead(config.num_labels, dropout=config.head_dropout, name="head")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.head(states["output"], training=training)


class EncoderTokenClassification(EncoderOnly, TokenClassification):
    """Token classifier with the encoder of an encoder-decoder (T5)."""


class QuestionAnswering(EncoderModel):
    """Extractive question answering: returns scores of each token as first and as last of the answer, `(B, T, 2)`."""

    task = "question-answering"
    architecture_suffix = "ForQuestionAnswering"
    class_suffix = "QuestionAnswering"
    head_table: ClassVar[Sequence[Row]] = dense("output", "qa_outputs")

    def named(self, output: Tensor) -> dict[str, Tensor]:
        """Splits the scores into those of the first and of the last token, `(B, T)` each."""
        return {"start_logits": output[..., 0], "end_logits": output[..., 1]}

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of a dense layer with two outputs."""
        return ClassificationHead(2, name="head")

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.head(states["output"], training=training)


NORMED_DENSE = (
    *dense("dense", "head.dense", bias=False),
    *norm("norm", "head.norm", bias=False),
    Row(("dense/bias",), "head.dense.bias", optional=True),
    Row(("norm/bias",), "head.norm.bias", optional=True),
)
"""Rows of the first layers of a `NormedHead`."""


class NormedHead(EncoderModel):
    """Model whose head starts with a dense layer, an activation and a norm (ModernBERT).

    The configuration has the activation `head_act`, the dropout rate before the output `head_dropout`, and whether
    there are biases in the dense layer (`head_bias`), the norm (`norm_bias`) and the output for the vocabulary
    (`output_bias`).
    """

    head_table: ClassVar[Sequence[Row]] = (*NORMED_DENSE, *dense("output", "classifier"))

    def make_head(self) -> keras.layers.Layer:
        """Creates a classification head."""
        config, outputs = self.config, self.config.num_labels if self.has_labels else 2
        options = {"dropout": config.head_dropout, "epsilon": config.epsilon, **self.head_options()}
        return ClassificationHead(outputs, config.hidden_dim, config.head_act, name="head", **options)

    def head_options(self) -> LayerArguments:
        """Returns the biases that are arguments of all heads."""
        return {"dense_bias": self.config.head_bias, "norm_bias": self.config.norm_bias}

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without the biases that it does not have."""
        return present_biases(self.head_table, self.config)


def present_biases(rows: Iterable[Row], config: Any) -> list[Row]:
    """Returns rows of a head like `NormedHead` without those of biases that the configuration does not have."""
    biases = {"dense/bias": config.head_bias, "norm/bias": config.norm_bias, "bias": config.output_bias}
    return [replace(row, optional=False) for row in rows if biases.get(row.variables[0], True)]


class CausalFeatures(FeatureModel, CausalModel):
    """Decoder-only model that returns hidden states `(B, T, E)`, or embeddings of texts `(B, D)`."""

    class_suffix = "CausalFeatures"


class CausalClassification(CausalModel):
    """Decoder-only text classifier, which returns scores `(B, C)` from the last real token.

    Attributes:
        pair_template: Chat template with the roles `query` and `document`, for rerankers of the architecture that are
            language models and have none; optional.
    """

    pair_template: ClassVar[str | None] = None

    task = "text-classification"
    architecture_suffix = "ForSequenceClassification"
    class_suffix = "CausalClassification"
    has_labels = True
    head_table: ClassVar[Sequence[Row]] = (Row(("kernel",), "score.weight", transpose=True),)

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of a dense layer without bias."""
        return Dense(self.config.num_labels, use_bias=False, name="head")

    def head_shape(self) -> tuple[int | None, ...]:
        """Returns the shape of one vector for each text."""
        return None, self.config.output_dim

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores from the last real token of each row."""
        return self.head(last_states(states["output"], inputs, self.config.pad_token_id))


class CausalTokenClassification(CausalModel, TokenClassification):
    """Decoder-only token classifier, which returns scores `(B, T, C)`; each token sees only the tokens before it.

    The dropout rate before the head is `classifier_dropout` or `hidden_dropout` of the configuration, or 0.1.
    """

    class_suffix = "CausalTokenClassification"

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of dropout and a dense layer."""
        rates = (getattr(self.config, name, None) for name in ("classifier_dropout", "hidden_dropout"))
        dropout = next((rate for rate in rates if rate is not None), 0.1)
        return ClassificationHead(self.config.num_labels, dropout=dropout, name="head")


class CausalQuestionAnswering(CausalModel, QuestionAnswering):
    """Extractive question answering with a decoder-only model, as in `QuestionAnswering`."""

    class_suffix = "CausalQuestionAnswering"


class EncoderDecoderModel(EncoderModel):
    """Encoder-decoder that does not generate: the decoder gets the same text as the encoder, after its start token.

    The output is that of the decoder; `return_hidden_states` and `return_attention` also return the encoder's states.
    """

    @property
    def shared_table(self) -> Embedding | None:
        """The table of token embeddings if both stacks have it."""
        table: Embedding | None = self.backbone.tokens if self.backbone.decoder_tokens is None else None
        return table

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens, which both stacks read; `None` if it is unlimited."""
        limits = (super().max_length, self.max_answer_length)
        return min((limit for limit in limits if limit is not None), default=None)

    def info(self, task: str | None = None) -> ModelInfo:
        """Returns the information that pipelines and bundles need, with the first token that the decoder reads."""
        return replace(super().info(task), decoder_start_token_id=self.backbone.start_token_id)

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Tensor | Outputs:
        """Applies the backbone and the head."""
        arrays = self.checked(inputs)
        ids, mask = arrays["input_ids"], arrays.get("attention_mask")
        flags = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        encoded = unpacked(self.backbone.encode(ids, attention_mask=mask, training=training, **flags))
        shifted = self.backbone.shift_right(ids, mask)
        memory = {"memory": encoded["output"], "memory_mask": mask}
        states = unpacked(self.backbone.decode(shifted, training=training, **memory, **flags))
        return with_states(self.answer(states, arrays, training), states, encoded)


class Seq2SeqFeatures(EncoderDecoderModel, FeatureExtraction):
    """Encoder-decoder that returns the hidden states `(B, T, E)` of the decoder."""


class Seq2SeqFillMask(DecoderProjectingModel, EncoderDecoderModel):
    """Encoder-decoder that restores masked words (BART), with the head of text-to-text generation.

    The encoder reads the text, and the decoder the same text after its start token.

    Returns:
        Scores of the vocabulary for each token, `(B, T, V)`.

    Reference: Lewis et al. 2019, arXiv:1910.13461, section 2.2.
    """

    task = "fill-mask"
    architecture_suffix = "ForConditionalGeneration"
    class_suffix = "FillMask"

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores."""
        return self.project(states["output"])


class Seq2SeqQuestionAnswering(EncoderDecoderModel, QuestionAnswering):
    """Extractive question answering with an encoder-decoder, as in `QuestionAnswering`."""


class Seq2SeqClassification(EncoderDecoderModel, TextClassification):
    """Encoder-decoder text classifier, which returns scores `(B, C)` from the last end token.

    The last token is used for a text without end token.
    """

    count = None
    head_table = (*dense("dense", "classification_head.dense"), *dense("output", "classification_head.out_proj"))

    def make_head(self) -> keras.layers.Layer:
        """Creates a head of two dense layers with tanh between them, each after dropout."""
        config = self.config
        dropout = {"dropout": config.head_dropout, "input_dropout": config.head_dropout}
        return ClassificationHead(config.num_labels, config.hidden_dim, "tanh", name="head", **dropout)

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the scores from the last end token of each row."""
        ids = inputs["input_ids"]
        length = ops.shape(ids)[1]
        ends = np.atleast_1d(self.config.eos_token_id).tolist()
        is_end = functools.reduce(ops.logical_or, [ids == end for end in ends])
        # End tokens rank above all other tokens, and later slots above earlier ones.
        ranks = ops.arange(length, dtype="int32") + length * ops.cast(is_end, "int32")
        if "attention_mask" in inputs:
            ranks = ranks * ops.cast(inputs["attention_mask"] > 0, "int32")
        return self.head(at_slots(states["output"], ops.max(ranks, axis=1) % length), training=training)


class Seq2SeqLastClassification(EncoderDecoderModel, TextClassification):
    """Encoder-decoder text classifier, which returns scores `(B, C)` from the decoder's state of the last token."""

    count = None
    head_table = dense("output", "score.out_proj")

    def vector(self, states: Outputs, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns the state for the last real token that the decoder reads, `(B, E)`."""
        read = {"input_ids": self.backbone.shift_right(inputs["input_ids"])}
        if "attention_mask" in inputs:
            mask = inputs["attention_mask"]
            read["attention_mask"] = ops.concatenate([ops.ones_like(mask[:, :1]), mask[:, :-1]], axis=1)
        return last_states(states["output"], read, self.config.pad_token_id)


class Seq2SeqTokenClassification(EncoderDecoderModel, TokenClassification):
    """Encoder-decoder token classifier, which returns scores `(B, T, C)` from the states of the decoder."""

    head_table = dense("output", "score.out_proj")


def mean_of_tokens(states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Averages the states `(B, T, E)` of real tokens: `(B, E)`; 0 for a text without any."""
    if attention_mask is None:
        return ops.mean(states, axis=1)
    real = ops.expand_dims(ops.cast(attention_mask, states.dtype), -1)
    return ops.sum(states * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)


def last_states(states: Tensor, inputs: Mapping[str, Tensor], pad_token_id: int | None) -> Tensor:
    """Selects the state of the last real token of each text: `(B, T, E)` to `(B, E)`.

    Args:
        states: `(B, T, E)`.
        inputs: `input_ids` `(B, T)` and optionally `attention_mask`.
        pad_token_id: Token that is padding without an `attention_mask`; optional.
    """
    ids, real = inputs["input_ids"], inputs.get("attention_mask")
    if real is None:
        real = ops.ones_like(ids) if pad_token_id is None else ops.cast(ids != pad_token_id, "int32")
    slots = ops.arange(ops.shape(ids)[1], dtype="int32") * ops.cast(real > 0, "int32")
    return at_slots(states, ops.max(slots, axis=1))


ModelClass = type[PretrainedModel]


def heads(backbone: type[Backbone], *models: ModelClass | tuple[ModelClass, ...]) -> dict[str, ModelClass]:
    """Returns the model classes of an architecture by task.

    Args:
        backbone: The backbone of all classes.
        models: Classes with this backbone, which are used as they are, and base classes of those to create. A tuple has
            the base classes of one. For the backbone `Bert`, `TokenClassification` creates what `class
            BertTokenClassification(TokenClassification, backbone=Bert)` would define in the module of `Bert`.
    """
    classes = []
    for model in models:
        bases = model if isinstance(model, tuple) else (model,)
        classes.append(bases[0] if _backbone_of(bases[0]) is backbone else _derived(backbone, bases))
    return by_task(*classes)


def heads_like(
    parents: Mapping[str, ModelClass], backbone: type[Backbone], *others: ModelClass
) -> dict[str, ModelClass]:
    """Returns model classes for the same tasks as those of another architecture, from which they are derived.

    Args:
        parents: The model classes of the other architecture by task.
        backbone: The backbone.
        others: Classes for the tasks in which the architecture differs, see `heads`.
    """
    return heads(backbone, *dict.fromkeys({**parents, **by_task(*others)}.values()))


def by_task(*models: ModelClass) -> dict[str, ModelClass]:
    """Returns model classes by task."""
    return {task: model for model in models for task in tasks_of_class(model.task)}


def _derived(backbone: type[Backbone], bases: tuple[ModelClass, ...]) -> ModelClass:
    """Creates a model class in the module of its backbone."""
    base = bases[-1]
    parent = _backbone_of(base)
    usual = base.__name__.removeprefix(parent.__name__) if parent else base.class_suffix
    suffix = vars(bases[0]).get("class_suffix", usual)
    described = " and ".join(f"`{base_class.__name__}`" for base_class in bases)
    attributes = {
        "__module__": backbone.__module__,
        "__doc__": f"`{backbone.__name__}` for {base.task}, see {described}.",
    }
    name = backbone.__name__ + suffix
    created = types.new_class(name, bases, {"backbone": backbone}, lambda body: body.update(attributes))
    setattr(sys.modules[backbone.__module__], name, created)
    return created


def _backbone_of(model: ModelClass) -> type[Backbone] | None:
    return getattr(model, "backbone_type", None)
