"""The tasks: what each makes of a backbone's output. An architecture's file names the tensors and overrides little."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import ClassificationHead, Dense, MaskedLMHead
from kerasformer.layers.core import Composite, unpacked
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalModel, EncoderModel, with_states
from kerasformer.models.pretrained import Inputs
from kerasformer.models.weight_table import Row, dense, norm


class FeatureExtraction(EncoderModel):
    """Hidden states `(B, T, E)` of the last layer."""

    task = "feature-extraction"
    bare = True
    output_name = "last_hidden_state"


class EncoderFeatures(FeatureExtraction):
    """Hidden states `(B, T, E)` of the encoder of an encoder-decoder; tensors of a decoder are ignored."""

    def make_backbone(self) -> keras.layers.Layer:
        """The backbone without its decoder."""
        return self.backbone_type(self.config, encoder_only=True, name="backbone")


class PooledFeatures(FeatureExtraction):
    """Hidden states of an encoder that may have a pooler: it is kept, and saved again."""

    def __init__(self, config: Any, pooled: bool = True, **kwargs: Any) -> None:
        self.pooled = pooled
        super().__init__(config, **kwargs)

    @classmethod
    def parts(cls, tensors: Collection[str]) -> dict[str, Any]:
        """Whether there is a pooler."""
        return {"pooled": any("pooler." in name for name in tensors)}

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "pooled": self.pooled}


class FillMask(EncoderModel):
    """Scores of the vocabulary at every place, `(B, T, V)`.

    Args:
        config: Of the architecture.
        activation: Of the head; the configuration's by default, as in Hugging Face's format.
        epsilon: Of the head's norm, likewise.
        kwargs: Of `PretrainedModel`.

    Attributes:
        head_activation: Activation of the head whatever that of the layers is, in the format of Hugging Face (RoBERTa).
    """

    task = "fill-mask"
    head_activation: ClassVar[str | None] = None

    def __init__(self, config: Any, activation: str | None = None, epsilon: float | None = None, **kwargs: Any) -> None:
        self.activation = activation or self.head_activation or config.hidden_act
        self.epsilon = config.epsilon if epsilon is None else epsilon
        super().__init__(config, **kwargs)

    def make_head(self) -> keras.layers.Layer:
        """Dense, norm and the tied embedding table."""
        config = self.config
        size = self.backbone.embeddings.embedding_dim
        return MaskedLMHead(
            config.vocab_size,
            size,
            self.activation,
            self.epsilon,
            name="predictions" if self.task == "pretraining" else "head",
        )

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores."""
        return self.head(states["output"], embedding=self.backbone.embeddings.tokens)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "activation": self.activation, "epsilon": self.epsilon}

    def save_pretrained(self, folder: str | Path, *, dtype: str | None = None) -> Path:
        """Writes the model in Hugging Face's format, see `PretrainedModel.save_pretrained`.

        Raises:
            UnsupportedConfigError: the head is of another activation or epsilon than the backbone, as in KerasHub.
        """
        own = self.activation, self.epsilon
        usual = self.head_activation or self.config.hidden_act, self.config.epsilon
        if own != usual:
            raise UnsupportedConfigError(
                "Hugging Face's format has one activation and one epsilon for the layers and the head. "
                f"Received: {own[0]} and {own[1]} in the head, {usual[0]} and {usual[1]} in the layers"
            )
        return super().save_pretrained(folder, dtype=dtype)


def prediction_rows(transform: str, normalization: str, bias: str) -> list[Row]:
    """Rows of a `MaskedLMHead`: names of the tensors of its dense layer, its norm and its bias."""
    return [*dense("dense", transform), *norm("norm", normalization), Row(("bias",), bias)]


class Pretraining(FillMask):
    """Masked words, and a relation of two texts, as an encoder was trained.

    Returns:
        Dictionary of `prediction_logits` `(B, T, V)` and of scores `(B, 2)` under the architecture's own name.
    """

    task = "pretraining"
    pooled = True
    relation: ClassVar[str]

    def named(self, output: dict[str, Tensor]) -> dict[str, Tensor]:
        """The dictionary itself."""
        return output

    def make_head(self) -> keras.layers.Layer:
        """Both heads."""
        return PretrainingHead(super().make_head(), self.make_relation(), name="head")

    def make_relation(self) -> ClassificationHead:
        """The second head."""
        return ClassificationHead(2, name="relation")

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> dict[str, Tensor]:
        """Both scores."""
        words, relation = self.head(
            states["output"], pooled=states["pooled"], embedding=self.backbone.embeddings.tokens, training=training
        )
        return {"prediction_logits": words, self.relation: relation}


@keras.saving.register_keras_serializable("kerasformer")
class PretrainingHead(Composite):
    """A head for masked words, and one for the relation of two texts.

    Args:
        predictions: `MaskedLMHead`.
        relation: `ClassificationHead`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        pooled: `(B, E)`.
        embedding: The token `Embedding`.

    Returns:
        `(scores of words (B, T, V), scores of the relation (B, 2))`.
    """

    def __init__(self, predictions: MaskedLMHead, relation: ClassificationHead, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.predictions, self.relation = predictions, relation

    def build(self, input_shape: Any) -> None:
        """Creates the weights of both."""
        self.predictions.build(input_shape)
        self.relation.build((input_shape[0], input_shape[-1]))

    def call(self, x: Tensor, pooled: Tensor, embedding: Any, training: bool = False) -> tuple[Tensor, Tensor]:
        """Applies both."""
        return self.predictions(x, embedding=embedding), self.relation(pooled, training=training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Of both."""
        relation = self.relation.compute_output_shape((input_shape[0], input_shape[-1]))
        return self.predictions.compute_output_shape(input_shape), relation


class TextClassification(EncoderModel):
    """Scores of the classes of a text, `(B, C)`, from its pooled or first vector."""

    task = "text-classification"
    has_labels = True
    count: ClassVar[int | None] = 1
    head_table: ClassVar[Sequence[Row]] = dense("output", "classifier")

    def head_shape(self) -> tuple[int | None, ...]:
        """One vector a text."""
        return None, self.config.hidden_dim

    def make_head(self) -> keras.layers.Layer:
        """Dropout and one dense layer."""
        config = self.config
        return ClassificationHead(config.num_labels, dropout=config.head_dropout, name="head")

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores."""
        vector = states["pooled"] if self.pooled else states["output"][:, 0]
        return self.head(vector, training=training)


class DenseTextClassification(TextClassification):
    """Scores of the classes of a text from its first vector, by a head of two dense layers (RoBERTa)."""

    head_table = (*dense("dense", "classifier.dense"), *dense("output", "classifier.out_proj"))

    def make_head(self) -> keras.layers.Layer:
        """Dropout and a dense layer with tanh, dropout and the output."""
        rate, size = self.config.head_dropout, self.config.hidden_dim
        return ClassificationHead(self.config.num_labels, size, input_dropout=rate, dropout=rate, name="head")


class TokenClassification(EncoderModel):
    """Scores of the classes of every token, `(B, T, C)`."""

    task = "token-classification"
    has_labels = True
    head_table: ClassVar[Sequence[Row]] = dense("output", "classifier")

    def make_head(self) -> keras.layers.Layer:
        """Dropout and one dense layer."""
        config = self.config
        return ClassificationHead(config.num_labels, dropout=config.head_dropout, name="head")

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores."""
        return self.head(states["output"], training=training)


class QuestionAnswering(EncoderModel):
    """Scores of every token as first and as last of the answer, `(B, T, 2)`."""

    task = "question-answering"
    head_table: ClassVar[Sequence[Row]] = dense("output", "qa_outputs")

    def named(self, output: Tensor) -> dict[str, Tensor]:
        """Both scores of a token apart, `(B, T)` each."""
        return {"start_logits": output[..., 0], "end_logits": output[..., 1]}

    def make_head(self) -> keras.layers.Layer:
        """One dense layer with two outputs."""
        return ClassificationHead(2, name="head")

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores."""
        return self.head(states["output"], training=training)


class CausalFeatures(CausalModel):
    """Hidden states `(B, T, E)` of a decoder."""

    task = "feature-extraction"
    bare = True
    output_name = "last_hidden_state"


class CausalClassification(CausalModel):
    """Scores of the classes of a text, `(B, C)`, from a decoder's last real token."""

    task = "text-classification"
    has_labels = True

    def make_head(self) -> keras.layers.Layer:
        """One dense layer without bias."""
        return Dense(self.config.num_labels, use_bias=False, name="head")

    def head_shape(self) -> tuple[int | None, ...]:
        """One vector a text."""
        return None, self.config.hidden_dim

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores at the last real token of each row."""
        ids = inputs["input_ids"]
        real = inputs.get("attention_mask")
        if real is None:
            pad = self.config.pad_token_id
            real = ops.ones_like(ids) if pad is None else ops.cast(ids != pad, "int32")
        slots = ops.arange(ops.shape(ids)[1], dtype="int32") * ops.cast(real > 0, "int32")
        return self.head(at_slots(states["output"], ops.max(slots, axis=1)))


class DecoderReads(EncoderModel):
    """Reads a text with both stacks of an encoder-decoder: the decoder reads it too, after its start token.

    The output is that of the decoder; `return_hidden_states` and `return_attention` also return the encoder's.
    """

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, return_attention: bool = False
    ) -> Any:
        """Applies backbone and head."""
        arrays = self.checked(inputs)
        ids, mask = arrays["input_ids"], arrays.get("attention_mask")
        flags = {"return_hidden_states": return_hidden_states, "return_attention": return_attention}
        encoded = unpacked(self.backbone.encode(ids, attention_mask=mask, training=training, **flags))
        start = self.config.generation_settings()["decoder_start_token_id"]
        shifted = ops.concatenate([ops.full_like(ids[:, :1], start), ids[:, :-1]], axis=1)
        memory = {"memory": encoded["output"], "memory_mask": mask}
        states = unpacked(self.backbone.decode(shifted, training=training, **memory, **flags))
        return with_states(self.answer(states, arrays, training), states, encoded)


class Seq2SeqFeatures(DecoderReads, FeatureExtraction):
    """Hidden states `(B, T, E)` of the decoder of an encoder-decoder that reads a text with both stacks."""


class Seq2SeqQuestionAnswering(DecoderReads, QuestionAnswering):
    """Scores of every token as first and as last of the answer, `(B, T, 2)`, by a decoder that reads the text too."""


class Seq2SeqClassification(DecoderReads, TextClassification):
    """Scores of the classes of a text, `(B, C)`, by a decoder that reads the text too, at the last end token.

    A text without end token is judged at its last token.
    """

    count = None

    def make_head(self) -> keras.layers.Layer:
        """A dense layer with tanh, and the output."""
        config = self.config
        dropout = {"dropout": config.head_dropout, "input_dropout": config.head_dropout}
        return ClassificationHead(config.num_labels, config.hidden_dim, "tanh", name="head", **dropout)

    def answer(self, states: Any, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Scores at the last end token of each row."""
        ids = inputs["input_ids"]
        length = ops.shape(ids)[1]
        ends = np.atleast_1d(self.config.eos_token_id).tolist()
        is_end = functools.reduce(ops.logical_or, [ids == end for end in ends])
        # An end token outranks every other slot, and a later slot an earlier one.
        ranks = ops.arange(length, dtype="int32") + length * ops.cast(is_end, "int32")
        if "attention_mask" in inputs:
            ranks = ranks * ops.cast(inputs["attention_mask"] > 0, "int32")
        return self.head(at_slots(states["output"], ops.max(ranks, axis=1) % length), training=training)


def at_slots(states: Tensor, slots: Tensor) -> Tensor:
    """The vectors `(B, E)` of states `(B, T, E)` at one slot of each row, int32 `(B,)`."""
    return ops.take_along_axis(states, ops.reshape(slots, (-1, 1, 1)), axis=1)[:, 0]
