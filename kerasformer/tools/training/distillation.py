"""Distillation: a small model, the student, learns from the answers and states of a large one, the teacher.

    student = kf.training.prune(teacher, layers=6)
    distiller = kf.training.Distiller(teacher, student, [SoftTargets(weight=5.0), HiddenCosine()], hard_weight=2.0)
    distiller.compile("adamw", loss)
    distiller.fit(batch, labels)
    student.save_pretrained("small")

`keras.distillation.Distiller` passes its losses neither the padding of a text nor the states of models that are not
functional. This one passes both; it is a `keras.Model` likewise, whose `fit` is that of Keras.

Shape letters: `B` batch, `T` tokens, `E` hidden, `H` heads, `R` relation heads, `D` size of a head, `V` classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, cast

import keras
from keras import ops

from kerasformer.basics.arguments import check, number, one_of
from kerasformer.bundle import ENCODER_STATES
from kerasformer.errors import InputError
from kerasformer.export import QuantizationAware, with_callback
from kerasformer.layers import (
    PACKAGE,
    AttentionCall,
    AttentionSpec,
    LayerArguments,
    LayerCache,
    LayerConfig,
    Outputs,
    Primitives,
    Tensor,
    Visibility,
    lowering,
    split_heads,
    unpacked,
)
from kerasformer.models import PretrainedModel

Relation = Literal["query-key", "query-query", "key-key", "value-value"]

IGNORED = -100
"""Label of positions that do not count."""


class AttentionStates(NamedTuple):
    """What the self attention of a layer computes with.

    Attributes:
        query: `(B, T, H * D)`.
        key: `(B, T, G * D)` for `G` heads of keys and values.
        value: `(B, T, G * D)`.
        spec: Description of the attention.
        visibility: Which tokens see each other.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    spec: AttentionSpec
    visibility: Visibility


@dataclass
class Answers:
    """What a model computes for a batch.

    Attributes:
        output: Its output: logits `(B, V)` or `(B, T, V)`, hidden states, or embeddings `(B, E)`.
        hidden_states: The hidden states of each stack, from the embeddings to the last layer, `(B, T, E)` each.
        attentions: The states of the self attention of each layer, by the name of the stack.
    """

    output: Tensor
    hidden_states: dict[str, Sequence[Tensor]] = field(default_factory=dict)
    attentions: dict[str, list[AttentionStates]] = field(default_factory=dict)


class DistillationLoss:
    """Base of the losses of a `Distiller`.

    Attributes:
        name: Name of the metric.
        weight: Factor of the loss in the sum.
        hidden_states: Whether it needs those of the answers.
        attentions: Whether it needs those of the answers.
    """

    name: ClassVar[str]
    weight: float
    hidden_states: ClassVar[bool] = False
    attentions: ClassVar[bool] = False

    def check(self, teacher: PretrainedModel, student: PretrainedModel) -> None:
        """Checks that the answers of two models can be compared.

        Raises:
            InputError: they cannot; the message says which sizes differ.
        """

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """Returns the loss, a scalar, of the student's answers to a batch."""
        raise NotImplementedError


class Masks(NamedTuple):
    """Which tokens of a batch count.

    Attributes:
        inputs: 1 for real tokens of the text, `(B, T)`; `None` if all are.
        outputs: 1 for positions of the output that count, `(B, T)`; `None` if all do.
    """

    inputs: Tensor | None = None
    outputs: Tensor | None = None


@dataclass(frozen=True)
class SoftTargets(DistillationLoss):
    """Kullback-Leibler divergence of the student's distributions from the teacher's, softened by a temperature.

    It is `T^2 * KL(softmax(teacher / T) || softmax(student / T))`, averaged over the texts, or over the positions that
    count: those of real tokens, and with labels that are tokens those without -100. It serves classifiers, masked
    language models, decoders and encoder-decoders alike.

    Attributes:
        temperature: `T`; 2 in DistilBERT.
        weight: Factor of the loss.

    Reference: Hinton et al. 2015, arXiv:1503.02531; `examples/research_projects/distillation` of `transformers`.
    """

    temperature: float = 2.0
    weight: float = 1.0
    name: ClassVar[str] = "soft_targets"

    def __post_init__(self) -> None:
        check("temperature", self.temperature, number(above=0))

    def check(self, teacher: PretrainedModel, student: PretrainedModel) -> None:
        """See `DistillationLoss`."""
        _check_classes(teacher, student)

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """See `DistillationLoss`."""
        expected = ops.log_softmax(_float(teacher.output) / self.temperature)
        received = ops.log_softmax(_float(student.output) / self.temperature)
        divergence = ops.sum(ops.exp(expected) * (expected - received), axis=-1) * self.temperature**2
        return _mean(divergence, masks.outputs)


@dataclass(frozen=True)
class LogitDistance(DistillationLoss):
    """Mean squared difference of the logits, for outputs that are not one distribution for each text or token.

    These are regression, several labels for each text, and the scores of answers in question answering.

    Attributes:
        weight: Factor of the loss.

    Reference: Ba and Caruana 2014, arXiv:1312.6184.
    """

    weight: float = 1.0
    name: ClassVar[str] = "logit_distance"

    def check(self, teacher: PretrainedModel, student: PretrainedModel) -> None:
        """See `DistillationLoss`."""
        _check_classes(teacher, student)

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """See `DistillationLoss`."""
        return _mean(ops.mean(ops.square(_float(teacher.output) - _float(student.output)), axis=-1), masks.outputs)


@dataclass(frozen=True)
class HiddenCosine(DistillationLoss):
    """One minus the cosine of the student's and the teacher's last hidden states, averaged over the real tokens.

    Attributes:
        weight: Factor of the loss.

    Reference: Sanh et al. 2019, arXiv:1910.01108, section 3.
    """

    weight: float = 1.0
    name: ClassVar[str] = "hidden_cosine"
    hidden_states: ClassVar[bool] = True

    def check(self, teacher: PretrainedModel, student: PretrainedModel) -> None:
        """See `DistillationLoss`."""
        sizes = (model.config.output_dim for model in (teacher, student))
        _check_same("hidden states", sizes, "Use AttentionRelations, which compares other widths")

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """See `DistillationLoss`."""
        losses = []
        for stack, states in student.hidden_states.items():
            expected, received = _float(teacher.hidden_states[stack][-1]), _float(states[-1])
            cosine = ops.sum(_normalized(expected) * _normalized(received), axis=-1)
            losses.append(_mean(1.0 - cosine, masks.outputs if stack == "decoder" else masks.inputs))
        return sum(losses[1:], losses[0]) / len(losses)


@dataclass(frozen=True)
class AttentionRelations(DistillationLoss):
    """Divergence of the relations between tokens in the self attention of one layer, as in MiniLM.

    A relation is the softmax of the scaled products of two of queries, keys and values: `"query-key"` is the attention
    itself. The losses are the Kullback-Leibler divergences from the teacher's relations, averaged over heads and real
    tokens, and summed over the relations. With `heads`, queries, keys and values are divided into this many relation
    heads (MiniLMv2), so that teacher and student may differ in width and in number of heads.

    Attributes:
        relations: `("query-key", "value-value")` in MiniLM, `("query-query", "key-key", "value-value")` in MiniLMv2.
        heads: Number of relation heads, 48 in MiniLMv2 for large teachers; by default the attention heads, which must
            be as many in the student.
        teacher_layer: Index of the teacher's layer; MiniLMv2 takes one before the last from large teachers.
        student_layer: Index of the student's layer.
        weight: Factor of the loss.

    Reference: Wang et al. 2020, arXiv:2002.10957, section 3; Wang et al. 2021, arXiv:2012.15828, section 3.
    """

    relations: tuple[Relation, ...] = ("query-key", "value-value")
    heads: int | None = None
    teacher_layer: int = -1
    student_layer: int = -1
    weight: float = 1.0
    name: ClassVar[str] = "attention_relations"
    hidden_states: ClassVar[bool] = True  # so that the last layer computes all tokens
    attentions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for relation in self.relations:
            check("relations", relation, one_of("query-key", "query-query", "key-key", "value-value"))

    def check(self, teacher: PretrainedModel, student: PretrainedModel) -> None:
        """See `DistillationLoss`."""
        specs = [spec for model in (teacher, student) for spec in model.attention_specs().values()]
        if self.heads is None:
            _check_same("heads", (specs[0].num_heads, specs[-1].num_heads), "Or use AttentionRelations(heads=…)")
            return
        sizes = {count * spec.head_dim for spec in specs for count in (spec.num_heads, spec.num_key_value_heads)}
        if any(size % self.heads for size in sizes):
            raise InputError(
                "heads must divide the sizes of queries, keys and values of teacher and student. Expected: a divisor "
                f"of {', '.join(map(str, sorted(sizes)))}. Received: heads={self.heads}"
            )

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """See `DistillationLoss`."""
        losses = []
        for stack, layers in student.attentions.items():
            expected, received = teacher.attentions[stack][self.teacher_layer], layers[self.student_layer]
            for relation in self.relations:
                pair = self._relation(expected, relation), self._relation(received, relation)
                divergence = ops.sum(ops.exp(pair[0]) * (pair[0] - pair[1]), axis=-1)
                losses.append(_mean(ops.mean(divergence, axis=1), received.visibility.key_mask))
        if not losses:
            raise InputError(
                "The self attention of these models computes no queries, keys and values that could be compared. "
                "Expected: full attention. Received: attention in blocks or windows, or quantization-aware models"
            )
        return sum(losses[1:], losses[0])

    def _relation(self, states: AttentionStates, relation: Relation) -> Tensor:
        """Returns logarithms of the relations `(B, R, T, T)`."""
        left, right = (self._heads(states, name) for name in relation.split("-"))
        if left.shape[1] != right.shape[1]:  # several heads share their keys
            right = ops.repeat(right, left.shape[1] // right.shape[1], axis=1)
        scores = ops.matmul(left, ops.transpose(right, (0, 1, 3, 2))) * left.shape[-1] ** -0.5
        visibility, length = states.visibility, ops.shape(scores)[-1]
        hidden = ops.zeros((1, 1, 1, 1), bool)
        if visibility.key_mask is not None:
            hidden = ops.equal(visibility.key_mask[:, None, None, :], 0)
        if visibility.causal:
            index = ops.arange(length)
            hidden = ops.logical_or(hidden, index[None, :] > index[:, None])
        return ops.log_softmax(ops.where(hidden, -1e9, scores), axis=-1)

    def _heads(self, states: AttentionStates, name: str) -> Tensor:
        """Splits queries, keys or values into relation heads: `(B, R, T, D)`."""
        x = _float(getattr(states, name))
        return split_heads(x, states.spec.head_dim if self.heads is None else x.shape[-1] // self.heads)


@dataclass(frozen=True)
class EmbeddingTargets(DistillationLoss):
    """Squared distance of the student's embeddings from the teacher's, both normalized to length 1.

    Hidden states are averaged over the real tokens first. `EmbeddingDistance` is the same loss for vectors that a
    teacher has computed before, such as one with another tokenizer.

    Attributes:
        weight: Factor of the loss.

    Reference: Reimers and Gurevych 2020, arXiv:2004.09813.
    """

    weight: float = 1.0
    name: ClassVar[str] = "embedding_targets"

    def __call__(self, teacher: Answers, student: Answers, masks: Masks) -> Tensor:
        """See `DistillationLoss`."""
        expected, received = (_pooled(_float(each.output), masks.inputs) for each in (teacher, student))
        sizes = expected.shape[-1], received.shape[-1]
        _check_same("embeddings", sizes, "Keep the width of the teacher, or the size of its last layer")
        return ops.mean(EmbeddingDistance(reduction=None)(expected, received))


@keras.saving.register_keras_serializable(PACKAGE)
class EmbeddingDistance(keras.losses.Loss):
    """Squared distance of two embeddings that are normalized to length 1: `2 - 2 * cosine`.

        model.compile("adamw", EmbeddingDistance())
        model.fit(batch, teacher_vectors)

    Call arguments:
        y_true: Vectors `(B, E)`.
        y_pred: Embeddings `(B, E)`.
    """

    def __init__(self, name: str = "embedding_distance", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the distance of each pair, `(B,)`."""
        difference = _normalized(ops.cast(y_true, y_pred.dtype)) - _normalized(y_pred)
        return ops.sum(ops.square(difference), axis=-1)


class Distiller(keras.Model):
    """A student that is trained on the answers of a teacher.

    The loss is the sum of the distillation losses, each with its weight, and of `hard_weight` times the loss of
    `compile` on the labels, if there are any. Only the student is trained: the teacher becomes untrainable.

    Args:
        teacher: The teacher; it computes without dropout.
        student: The student, with the same inputs and tokens; also one of `quantization_aware`.
        losses: The distillation losses.
        hard_weight: Factor of the loss of `compile`.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: As for the models. The result is the output of the student.

    Raises:
        InputError: no loss, a negative weight, or sizes that a loss cannot compare.
    """

    def __init__(
        self,
        teacher: PretrainedModel,
        student: PretrainedModel | QuantizationAware,
        losses: DistillationLoss | Sequence[DistillationLoss],
        *,
        hard_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.losses_of_answers = (losses,) if isinstance(losses, DistillationLoss) else tuple(losses)
        if not self.losses_of_answers:
            raise InputError("A distillation loss was expected, such as SoftTargets(). Received: none")
        for each in self.losses_of_answers:
            check("weight", each.weight, number(0))
            each.check(teacher, student.model if isinstance(student, QuantizationAware) else student)
        self.hard_weight = check("hard_weight", hard_weight, number(0))
        self.teacher, self.student = teacher, student
        self.teacher.trainable = False
        self.trackers = [keras.metrics.Mean(name=each.name) for each in self.losses_of_answers]
        self._student_answers: Answers | None = None

    def compile(self, optimizer: Any = "adamw", loss: Any = None, **kwargs: Any) -> None:
        """As in Keras; the loss is that on the labels.

        Raises:
            InputError: `hard_weight` is not 0, and there is no loss.
        """
        if self.hard_weight and loss is None:
            raise InputError(
                f"The labels need a loss. Expected: loss=…, or hard_weight=0. Received: hard_weight={self.hard_weight}"
            )
        super().compile(optimizer, loss if self.hard_weight else None, **kwargs)

    def fit(self, *args: Any, callbacks: Any = None, **kwargs: Any) -> keras.callbacks.History:
        """As in Keras; the scales of a `QuantizationAware` student follow its weights."""
        if isinstance(self.student, QuantizationAware):
            callbacks = with_callback(callbacks, self.student.update)
        return super().fit(*args, callbacks=callbacks, **kwargs)

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        """Applies the student."""
        self._student_answers = self._answers(self.student, inputs, training)
        return self._student_answers.output

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the sum of the losses."""
        student = cast(Answers, self._student_answers)
        self._student_answers = None
        teacher = self._answers(self.teacher, x, training=False)
        masks = self._masks(x, y, y_pred)
        total = 0.0
        for each, tracker in zip(self.losses_of_answers, self.trackers, strict=True):
            loss = each(teacher, student, masks)
            tracker.update_state(loss)
            total = total + each.weight * loss
        if self.hard_weight and y is not None:
            total = total + self.hard_weight * super().compute_loss(x, y, y_pred, sample_weight, training)
        return total

    def _answers(self, model: keras.Model, inputs: Any, training: bool) -> Answers:
        """Applies a model and returns what the losses need."""
        needs_states = any(each.hidden_states for each in self.losses_of_answers)
        recorder = _Recorder() if any(each.attentions for each in self.losses_of_answers) else None
        with nullcontext() if recorder is None else lowering(recorder):
            flags = {"return_hidden_states": True} if needs_states else {}
            states = unpacked(model(inputs, training=training, **flags))
        stacks = {"encoder": states.get(ENCODER_STATES), "decoder": states.get("hidden_states")}
        if stacks["encoder"] is None and stacks["decoder"] is not None:
            stacks = {"text": stacks["decoder"]}
        hidden = {name: each for name, each in stacks.items() if each is not None}
        return Answers(states["output"], hidden, {} if recorder is None else recorder.attentions)

    def _masks(self, x: Mapping[str, Tensor], y: Any, y_pred: Tensor) -> Masks:
        """Returns which tokens count."""
        inputs = x.get("attention_mask")
        outputs = x.get("decoder_attention_mask") if "decoder_input_ids" in x else inputs
        if len(y_pred.shape) < 3:
            return Masks(inputs)
        if y is not None and len(y.shape) == 2 and y.shape[1] == y_pred.shape[1]:
            counts = ops.cast(ops.not_equal(y, IGNORED), "int32")
            outputs = counts if outputs is None else ops.cast(outputs, "int32") * counts
        return Masks(inputs, outputs)

    def get_config(self) -> LayerConfig:
        """Raises an error: the student is saved, not the distiller."""
        raise NotImplementedError("Save the student: distiller.student.save_pretrained(folder)")


class _Recorder(Primitives):
    """Plain primitives that record the queries, keys and values of the self attention of each layer.

    Attributes:
        attentions: Those of each layer, by the name of the stack.
    """

    def __init__(self) -> None:
        self.attentions: dict[str, list[AttentionStates]] = {}
        self._of_layer: list[AttentionStates] = []

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Applies a layer and records its first attention, which is the self attention."""
        self._of_layer = []
        result = super().layer(layer, x, arguments)
        if self._of_layer:
            self.attentions.setdefault(str(layer.path).split("/")[-2], []).append(self._of_layer[0])
        return result

    def multi_head_attention(self, call: AttentionCall) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        """Attends and records."""
        self._of_layer.append(AttentionStates(call.query, call.key, call.value, call.spec, call.visibility))
        return super().multi_head_attention(call)


def _float(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")


def _normalized(x: Tensor) -> Tensor:
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-12))


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the mean over the positions of a mask that count."""
    if mask is None or len(values.shape) != len(mask.shape):
        return ops.mean(values)
    counts = ops.cast(mask, values.dtype)
    return ops.sum(values * counts) / ops.maximum(ops.sum(counts), 1.0)


def _pooled(x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns one vector of each text, `(B, E)`."""
    if len(x.shape) == 2:
        return x
    counts = ops.ones(ops.shape(x)[:2], x.dtype) if mask is None else ops.cast(mask, x.dtype)
    return ops.sum(x * counts[..., None], axis=1) / ops.maximum(ops.sum(counts, axis=1, keepdims=True), 1.0)


def _check_same(what: str, sizes: Iterable[int], advice: str) -> None:
    expected, received = sizes
    if expected != received:
        raise InputError(
            f"The {what} of teacher and student must be the same in number or size. Expected: {expected}. "
            f"Received: {received}. {advice}"
        )


def _check_classes(teacher: PretrainedModel, student: PretrainedModel) -> None:
    sizes = (model.config.num_labels if model.has_labels else model.config.vocab_size for model in (teacher, student))
    _check_same("classes or tokens", sizes, "Distil from a teacher that chooses among the same")
