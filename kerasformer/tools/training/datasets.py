"""Data for `fit`: texts and labels of a task as batches of the model's inputs and targets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import keras
import numpy as np

from kerasformer.basics.tasks import SENTENCE_SIMILARITY
from kerasformer.errors import InputError
from kerasformer.layers import MaskedAccuracy
from kerasformer.models import PretrainedModel
from kerasformer.pipelines import Example, examples
from kerasformer.tokenization import Encoding, TruncationWarning, first_tokens
from kerasformer.tools.evaluation.classes import Classes
from kerasformer.tools.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy
from kerasformer.tools.training.class_weights import class_weights as weights_of
from kerasformer.tools.training.losses import SpanCrossentropy
from kerasformer.tools.training.multiple_choice import MultipleChoice
from kerasformer.tools.training.shapes import with_different_first

IGNORED = -100
"""Label of tokens that do not count."""

_AT_ONCE = 10_000
"""Number of texts that are tokenized together."""

_SORTED = 50
"""Number of neighbouring batches whose texts are sorted by length."""


@dataclass(frozen=True)
class Row:
    """A text as the model reads it, with its target.

    Attributes:
        inputs: Model inputs by name, `(T,)` each; those of a decoder have a length of their own.
        target: A label `()`, a vector, or labels of tokens `(T,)`.
    """

    inputs: Mapping[str, np.ndarray]
    target: np.ndarray

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of the text, and of what the decoder reads."""
        return tuple(len(self.inputs[name]) for name in ("input_ids", "decoder_input_ids") if name in self.inputs)


@dataclass(frozen=True)
class Format:
    """How the rows of a task become batches, and how its model is trained.

    Attributes:
        loss: Creates the loss.
        metrics: Creates the metrics.
        labels_of: Input whose tokens have labels, which are padded with it; `None` for one target of each text.
        fills: Value of padding by the name of an input; 0 for others.
    """

    loss: Callable[[], keras.losses.Loss]
    metrics: Callable[[], list[keras.metrics.Metric]] = list
    labels_of: str | None = None
    fills: Mapping[str, int] = field(default_factory=dict)


class Dataset(keras.utils.PyDataset):
    """Batches of texts of similar length, padded on the right, in another random order in each epoch.

    The order depends on the seed and the number of the epoch alone. A batch of `B` texts is a pair of the inputs
    `(B, T)` by name and the targets `(B, ...)`.

    Args:
        rows: Tokenized texts.
        format: How they become batches.
        batch_size: Number of texts of a batch.
        shuffle: Whether the order is random; otherwise, texts are sorted by length.
        seed: Seed of the order.
        pad_to: Lengths in tokens to which batches are padded; by default the next multiple of 16, since Keras compiles
            a step for each length.
        kwargs: Arguments of `keras.utils.PyDataset`.

    Attributes:
        loss: Loss that suits the targets, for `compile`.
        metrics: Metrics that suit the targets, likewise.
        epoch: Number of the epoch, from 0, which `fit` counts.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        format: Format,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        pad_to: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rows, self.format = rows, format
        self.batch_size, self.shuffle, self.seed, self.pad_to = batch_size, shuffle, seed, sorted(pad_to)
        self.loss, self.metrics = format.loss(), format.metrics()
        self._lengths = np.array([row.lengths for row in rows])
        self.epoch = 0

    @property
    def epoch(self) -> int:
        """Number of the epoch, which determines the order."""
        return self._epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch = number
        batches = self._shuffled() if self.shuffle else self._parts(np.arange(len(self.rows)))
        longest = np.array([self._lengths[batch].max(axis=0) for batch in batches])
        self._batches = with_different_first(batches, np.vectorize(self._width)(longest))

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return self.collate([self.rows[row] for row in self._batches[index]])

    def on_epoch_end(self) -> None:
        """Goes on to the order of the next epoch."""
        self.epoch += 1

    def collate(self, rows: Sequence[Row]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns the inputs `(B, T)` and the targets `(B, ...)` of texts."""
        inputs = {
            name: self._padded([row.inputs[name] for row in rows], self.format.fills.get(name, 0))
            for name in rows[0].inputs
        }
        targets = [row.target for row in rows]
        return inputs, np.stack(targets) if self.format.labels_of is None else self._padded(targets, IGNORED)

    def _padded(self, values: Sequence[np.ndarray], fill: int) -> np.ndarray:
        width = self._width(max(map(len, values)))
        padded = np.full((len(values), width, *values[0].shape[1:]), fill, values[0].dtype)
        for row, value in zip(padded, values, strict=True):
            row[: len(value)] = value
        return padded

    def _width(self, longest: int) -> int:
        return next((length for length in self.pad_to if length >= longest), -(-longest // 16) * 16)

    def _parts(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns batches of some of the texts, sorted by length."""
        order = rows[np.argsort(self._lengths[rows, 0], kind="stable")]
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]

    def _shuffled(self) -> list[np.ndarray]:
        """Returns batches of texts of similar length: those of a random part of the texts, sorted by length."""
        random = np.random.default_rng((self.seed, self.epoch))
        order, size = self._order(random), _SORTED * self.batch_size
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        batches = [batch for pool in pools for batch in self._parts(pool)]
        return [batches[index] for index in random.permutation(len(batches))]

    def _order(self, random: np.random.Generator) -> np.ndarray:
        """Returns the indices of the texts of an epoch in random order."""
        return random.permutation(len(self.rows))


@dataclass(frozen=True)
class Choices:
    """A text with each of the texts that may follow it, and the number of the one that does.

    Attributes:
        rows: The pairs.
        target: The number, `()`.
    """

    rows: Sequence[Row]
    target: np.ndarray

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of the longest pair."""
        return max(row.lengths for row in self.rows)


class ChoiceDataset(Dataset):
    """As `Dataset`, for texts with `C` choices each: inputs `(B, C, T)` and targets `(B,)`."""

    def collate(self, rows: Sequence[Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns the inputs `(B, C, T)` and the targets `(B,)` of texts."""
        flat, _ = super().collate([row for text in rows for row in text.rows])
        inputs = {name: value.reshape(len(rows), -1, value.shape[1]) for name, value in flat.items()}
        return inputs, np.stack([text.target for text in rows])


def dataset(
    model: PretrainedModel | MultipleChoice,
    texts: Sequence[Any],
    labels: Sequence[Any] | None = None,
    *,
    max_length: int | None = None,
    stride: int = 128,
    prefix: str | None = None,
    pack: bool = False,
    class_weights: bool = False,
    **options: Any,
) -> Dataset:
    """Tokenizes texts with labels once, as the task of a model needs them.

        model = kf.load("sentiment-bert", labels=["bad", "good", "mixed"])
        data = kf.training.dataset(model, texts, labels)
        model.compile(kf.training.optimizer(model, 5e-5, steps=3 * len(data)), data.loss, metrics=data.metrics)
        with kf.training.keep_memory():
            model.fit(data, epochs=3)

    | task | text | label |
    |---|---|---|
    | text-classification | text, or a dictionary with `text` and `pair` | name or id of a class; a list of them for independent classes; a number for regression; the probability of each class, to learn from another model |
    | token-classification | list of words, which are read with spaces between them, as by `kf.evaluate` | list of names or ids, one for each word; the first token of a word gets it |
    | question-answering | dictionary with `question` and `context` | answer, `""` for none; its first place in the context is learnt, or the one that SQuAD's `{"text": ["Rome"], "answer_start": [12]}` names |
    | text-generation | text | none; or the text that follows, whose tokens alone then count |
    | text2text-generation | text | text |
    | sentence-similarity | text | vector `(D,)`, such as that of another model |
    | `MultipleChoice` | dictionary with `text` and `choices`, as many for each text | number of the choice, or its text |

    Args:
        model: Model with its tokenizer.
        texts: See the table; also `Example`s, which contain labels.
        labels: See the table.
        max_length: Maximum number of tokens; by default that of the model. Longer texts are truncated with a warning;
            the context of a question is divided into windows instead.
        stride: Number of tokens that neighbouring windows share.
        prefix: Text put before each text of a text2text-generation; by default that of the model's task, if it has one.
        pack: For text-generation: whether texts are put one after another and cut into rows of `max_length` tokens.
        class_weights: For classes of texts or words: whether rare classes have a higher weight in the loss, so that all
            have the same influence, see `kerasformer.tools.training.class_weights`.
        options: Options of `Dataset`, such as `batch_size`.

    Raises:
        InputError: the model has no tokenizer or is for a task without training data, or a label does not suit the
            task.
    """  # noqa: E501  # rows of a table
    inner = model.model if isinstance(model, MultipleChoice) else model
    if inner.tokenizer is None:
        raise InputError("A tokenizer is needed. Received: a model without. Set it with model.set_tokenizer(…)")
    limit = min(filter(None, (max_length, inner.max_length)), default=None)
    reader = _Reader(inner, limit, stride, prefix, pack)
    if isinstance(model, MultipleChoice):
        return ChoiceDataset(*_multiple_choice(reader, examples(texts, labels)), **options)
    if model.task not in _TASKS:
        raise InputError(f"A model for one of {', '.join(_TASKS)} was expected. Received: a model for {model.task}")
    rows, format = _TASKS[model.task](reader, examples(texts, labels))
    if not rows:
        raise InputError("Texts with at least two tokens were expected. Received: none")
    if class_weights:
        format = replace(format, loss=_weighted(model, [row.target for row in rows], format))
    return Dataset(rows, format, **options)


def _weighted(model: PretrainedModel, targets: list[np.ndarray], format: Format) -> Callable[[], keras.losses.Loss]:
    """Returns a loss in which all classes have the same influence.

    Raises:
        InputError: the targets are no classes.
    """
    if model.config.problem_type == "multi_label_classification":
        return partial(WeightedBinaryCrossentropy, weights_of(np.stack(targets), multi_label=True))
    if not model.has_labels or targets[0].dtype != np.int32:
        raise InputError(f"class_weights needs one class for each text or word. Received: a model for {model.task}")
    return partial(WeightedCrossentropy, weights_of([np.atleast_1d(target) for target in targets]))


@dataclass(frozen=True)
class _Text:
    """A tokenized text, or a part of one.

    Attributes:
        encoding: Encoding of many texts.
        row: Number of this one in it.
        length: Number of its tokens.
        sample: Number of the text that it belongs to.
    """

    encoding: Encoding
    row: int
    length: int
    sample: int

    def array(self, name: str) -> np.ndarray:
        """Returns an array of the encoding for this text, `(T, ...)`."""
        return np.asarray(getattr(self.encoding, name))[self.row, : self.length]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Model inputs `(T,)` by name."""
        return {name: np.asarray(value)[self.row, : self.length] for name, value in self.encoding.inputs.items()}


@dataclass(frozen=True)
class _Reader:
    """Arguments of `dataset`, and what the functions of the tasks share."""

    model: PretrainedModel
    max_length: int | None
    stride: int
    prefix: str | None
    pack: bool

    def format(
        self, loss: Callable[[], keras.losses.Loss], *metrics: Callable[[], Any], labels_of: str | None = None
    ) -> Format:
        """Returns a format with the padding of the model's inputs."""
        tokenizer = self.model.tokenizer
        fills = {"input_ids": tokenizer.pad_token_id or 0, "decoder_input_ids": tokenizer.writer.pad_token_id or 0}
        return Format(loss, lambda: [metric() for metric in metrics], labels_of, fills)

    def read(
        self,
        texts: Sequence[Any],
        pairs: Sequence[Any] | None = None,
        *,
        writes: bool = False,
        truncates: bool = True,
        **options: Any,
    ) -> Iterator[_Text]:
        """Tokenizes texts that the model reads, or writes."""
        tokenizer = self.model.tokenizer.writer if writes else self.model.tokenizer
        if pairs is not None and all(pair is None for pair in pairs):
            pairs = None
        limit = self.max_length if truncates else None
        if limit is not None:
            options = {"truncation": True, "max_length": limit, **options}
        for start in range(0, len(texts), _AT_ONCE):
            parts = [part and list(part[start : start + _AT_ONCE]) for part in (texts, pairs)]
            encoding = tokenizer(*parts, padding_side="right", **options)
            lengths = np.asarray(encoding.attention_mask).sum(axis=1)
            for row, sample in enumerate(np.asarray(encoding.overflow_to_sample)):
                yield _Text(encoding, row, int(lengths[row]), start + int(sample))

    @cached_property
    def classes(self) -> Classes:
        """The classes of the model."""
        return Classes(self.model.config.labels)


def _labelled(texts: Sequence[Example]) -> list[Any]:
    """Returns the labels of all texts.

    Raises:
        InputError: a text has none.
    """
    for number, example in enumerate(texts, 1):
        if example.label is None:
            raise InputError(f"A label for each text was expected. Received: none for text {number}")
    return [example.label for example in texts]


def _text_classification(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    labels, config = _labelled(texts), reader.model.config
    count, problem = config.num_labels, config.problem_type
    if problem == "regression":
        targets = [np.atleast_1d(np.asarray(label, "float32")) for label in labels]
        format = reader.format(keras.losses.MeanSquaredError)
    elif problem == "multi_label_classification":
        ids = [[reader.classes.find(name, text) for name in text.label] for text in texts]
        targets = [np.isin(np.arange(count), row).astype("float32") for row in ids]
        format = reader.format(_with_logits(keras.losses.BinaryCrossentropy), _multi_label_accuracy)
    elif all(isinstance(label, list | tuple) for label in labels):
        targets = [_probabilities(label, count) for label in labels]
        format = reader.format(_with_logits(keras.losses.CategoricalCrossentropy), _soft_accuracy)
    else:
        targets = [np.array(reader.classes.find(text.label, text), "int32") for text in texts]
        format = reader.format(_with_logits(keras.losses.SparseCategoricalCrossentropy), MaskedAccuracy)
    read = reader.read([example.text for example in texts], [example.pair for example in texts])
    return [Row(text.inputs, target) for text, target in zip(read, targets, strict=True)], format


def _probabilities(label: Sequence[float], count: int) -> np.ndarray:
    """Returns the probabilities of the classes `(C,)`.

    Raises:
        InputError: the probabilities are not those of the model's classes.
    """
    values = np.asarray(label, "float32")
    if values.shape != (count,) or (values < 0).any() or not np.isclose(values.sum(), 1, atol=1e-2):
        raise InputError(f"Probabilities of {count} classes were expected, whose sum is 1. Received: {label!r:.80}")
    return values


def _token_classification(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    for number, (example, labels) in enumerate(zip(texts, _labelled(texts), strict=True), 1):
        if not example.words or len(labels) != len(example.words):
            raise InputError(
                "A list of words with a label for each of them was expected. Received: "
                f"{len(example.words)} words and {len(labels)} labels in text {number}"
            )
    rows = []
    # The words are read as a text, since most byte-level tokenizers do not mark the spaces between words of a list.
    for text, example in zip(reader.read([example.text for example in texts]), texts, strict=True):
        tokens = np.flatnonzero(text.array("sequence_ids") == 0)
        labels = np.full(len(text.array("input_ids")), IGNORED, "int32")
        first = first_tokens(example.words, text.array("offsets")[tokens].tolist())
        ids = [reader.classes.find(label, example) for label in example.label]
        for token, index in reversed(list(zip(first, ids, strict=True))):
            if token is not None:  # of several words with one token, the first one counts
                labels[tokens[token]] = index
        rows.append(Row(text.inputs, labels))
    return rows, reader.format(_masked_crossentropy, MaskedAccuracy, labels_of="input_ids")


def _question_answering(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    spans = [_answer(example, label) for example, label in zip(texts, _labelled(texts), strict=True)]
    read = reader.read(
        [example.question or "" for example in texts],
        [example.text for example in texts],
        truncation="only_second",
        stride=reader.stride,
        return_overflowing_tokens=True,
    )
    rows = [Row(text.inputs, _tokens_of(text, *spans[text.sample])) for text in read]
    return rows, reader.format(SpanCrossentropy)


def _answer(example: Example, label: Any) -> tuple[int, int]:
    """Returns the first and the last position of an answer in characters, 0 and 0 if there is none.

    Raises:
        InputError: the context does not contain the answer, or another text at its position.
    """
    context, answer = example.text, label[0] if isinstance(label, list | tuple) and label else label or ""
    start = example.starts[0] if example.starts else context.find(answer)
    if start < 0 or not context.startswith(answer, start):
        context = context[max(start, 0) :]
        raise InputError(f"An answer from the context was expected. Received: {answer!r:.80}, context {context!r:.80}")
    return start, start + len(answer)


def _tokens_of(text: _Text, start: int, end: int) -> np.ndarray:
    """Returns the first and the last token of an answer; the first token of the text if it does not contain it."""
    in_context, (first, last) = text.array("sequence_ids") == 1, text.array("offsets").T
    starts, ends = np.flatnonzero(in_context & (first <= start)), np.flatnonzero(in_context & (last >= end))
    if start == end or not len(starts) or not len(ends):
        return np.zeros(2, "int32")
    return np.array([starts[-1], ends[0]], "int32")


def _text_generation(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    tokenizer = reader.model.tokenizer
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    prompts = [text.array("input_ids") for text in reader.read([example.text for example in texts], truncates=False)]
    answers = [str(example.label or "") for example in texts]
    written: list[Any] = [[]] * len(texts)
    if any(answers):
        whole = reader.read([text or " " for text in answers], truncates=False, add_special_tokens=False)
        written = [text.array("input_ids") if answer else [] for text, answer in zip(whole, answers, strict=True)]
    ids = [np.concatenate([*pair, end]).astype("int32") for pair in zip(prompts, written, strict=True)]
    starts = [len(prompt) if answer else 0 for prompt, answer in zip(prompts, answers, strict=True)]
    length = (reader.max_length or max(map(len, ids))) + 1  # the last token is a label alone
    if reader.pack:
        if any(answers):
            raise InputError("Texts without labels were expected, with pack=True. Received: labels. Set pack=False")
        joined = np.concatenate(ids)
        ids = [joined[start : start + length] for start in range(0, len(joined), length - 1)]
        starts = [0] * len(ids)
    if truncated := sum(len(row) > length for row in ids):
        message = (
            f"{truncated} of {len(ids)} texts were truncated to {length - 1} tokens. Divide them, or set pack=True"
        )
        warnings.warn(message, TruncationWarning, stacklevel=3)
    rows = []
    for row, start in zip(ids, starts, strict=True):
        inputs, labels = row[: length - 1], row[1:length]
        inputs = inputs[: len(labels)]
        if len(labels) and start <= len(labels):
            counted = np.arange(1, len(labels) + 1) >= start
            rows.append(Row(_with_mask(inputs), np.where(counted, labels, np.int32(IGNORED))))
    return rows, reader.format(_masked_crossentropy, MaskedAccuracy, labels_of="input_ids")


def _with_mask(ids: np.ndarray) -> dict[str, np.ndarray]:
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _text_to_text(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    model, prefixes = reader.model, reader.model.task_prefixes
    prefix = reader.prefix
    if prefix is None:
        only = next(iter(prefixes.values())) if len(prefixes) == 1 else ""
        prefix = prefixes.get(model.task, prefixes.get("", only))
    labels = [label[0] if isinstance(label, list | tuple) else label for label in _labelled(texts)]
    rows = []
    read = reader.read([prefix + example.text for example in texts])
    for text, target in zip(read, reader.read(labels, writes=True), strict=True):
        ids = target.array("input_ids")
        shifted = np.asarray(model.backbone.shift_right(ids[None], np.ones_like(ids)[None]))[0]
        rows.append(Row({**text.inputs, "decoder_input_ids": shifted}, ids))
    return rows, reader.format(_masked_crossentropy, MaskedAccuracy, labels_of="decoder_input_ids")


def _multiple_choice(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Choices], Format]:
    counts = {len(example.choices) for example in texts}
    if len(counts) > 1 or min(counts) < 2:
        raise InputError(f"Texts with the same number of choices were expected, at least two. Received: {counts}")
    targets = []
    for example, label in zip(texts, _labelled(texts), strict=True):
        index = example.choices.index(label) if label in example.choices else label
        if not isinstance(index, int) or not 0 <= index < len(example.choices):
            raise InputError(f"A choice or its number from 0 was expected. Received: {label!r:.80}")
        targets.append(np.array(index, "int32"))
    first = [example.text for example in texts for _ in example.choices]
    second = [choice for example in texts for choice in example.choices]
    pairs = [Row(text.inputs, np.zeros((), "int32")) for text in reader.read(first, second)]
    count = counts.pop()
    rows = [Choices(pairs[index * count : (index + 1) * count], target) for index, target in enumerate(targets)]
    return rows, reader.format(_with_logits(keras.losses.SparseCategoricalCrossentropy), MaskedAccuracy)


def _sentence_similarity(reader: _Reader, texts: Sequence[Example]) -> tuple[list[Row], Format]:
    size = reader.model.sentence.dimension(reader.model.config.output_dim)
    vectors = [np.asarray(label, "float32") for label in _labelled(texts)]
    if wrong := {vector.shape for vector in vectors} - {(size,)}:
        raise InputError(f"Vectors of {size} numbers were expected. Received: an array of the shape {wrong.pop()}")
    read = reader.read([example.text for example in texts])
    rows = [Row(text.inputs, vector) for text, vector in zip(read, vectors, strict=True)]
    return rows, reader.format(keras.losses.CosineSimilarity)


def _with_logits(loss: type[keras.losses.Loss]) -> Callable[[], keras.losses.Loss]:
    return lambda: loss(from_logits=True)


def _masked_crossentropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=IGNORED)


def _soft_accuracy() -> keras.metrics.Metric:
    return keras.metrics.CategoricalAccuracy("accuracy")


def _multi_label_accuracy() -> keras.metrics.Metric:
    return keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)  # of logits


_TASKS: dict[str, Callable[[_Reader, Sequence[Example]], tuple[list[Row], Format]]] = {
    "text-classification": _text_classification,
    "next-sentence-prediction": _text_classification,
    "token-classification": _token_classification,
    "question-answering": _question_answering,
    "text-generation": _text_generation,
    "text2text-generation": _text_to_text,
    SENTENCE_SIMILARITY: _sentence_similarity,
}
