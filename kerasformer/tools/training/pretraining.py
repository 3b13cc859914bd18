"""The table `[objective]` of a recipe: a model that learns from texts without labels."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import keras
import numpy as np

from kerasformer.basics.arguments import number, one_of
from kerasformer.basics.options import Option
from kerasformer.errors import InputError
from kerasformer.layers import MaskedAccuracy
from kerasformer.models import PretrainedModel, Pretraining, add_tokens
from kerasformer.pipelines import Example
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.training.objectives.batches import IGNORED
from kerasformer.tools.training.objectives.boundary import SpanBoundary
from kerasformer.tools.training.objectives.dataset import Objective, ObjectiveDataset
from kerasformer.tools.training.objectives.denoising import (
    denoising,
    deshuffling,
    document_rotation,
    gap_sentences,
    sentence_permutation,
    span_corruption,
    text_infilling,
    token_deletion,
)
from kerasformer.tools.training.objectives.documents import documents
from kerasformer.tools.training.objectives.language_models import causal, prefix_lm, translation
from kerasformer.tools.training.objectives.masked_tokens import (
    Masking,
    masked,
    replaced_tokens,
    span_boundary,
    translation_lm,
)
from kerasformer.tools.training.objectives.packing import PackedModel
from kerasformer.tools.training.objectives.replaced import ReplacedTokens
from kerasformer.tools.training.objectives.sentence_pairs import next_sentence, sentence_order
from kerasformer.tools.training.objectives.vocabulary import Vocabulary

SENTINELS = 100
"""Number of sentinels that a vocabulary gets, that of T5."""


@dataclass(frozen=True)
class _Kind:
    """What an objective needs.

    Attributes:
        objective: The function.
        tasks: Tasks whose models learn it, the usual one first.
        unit: What it reads: texts, documents of sentences, or a text with its label.
        least: Number of tokens that each text needs, or of sentences that each document needs.
        mask: Whether it needs a mask token.
        sentinels: Whether it needs sentinels.
    """

    objective: Objective
    tasks: tuple[str, ...]
    unit: Literal["texts", "documents", "pairs"] = "texts"
    least: int = 1
    mask: bool = False
    sentinels: bool = False


_WRITES = ("text2text-generation",)
_FILLS = ("fill-mask",)
OBJECTIVES: Mapping[str, _Kind] = {
    "causal": _Kind(causal, ("text-generation",)),
    "denoising": _Kind(denoising, _WRITES, "documents", mask=True),
    "deshuffling": _Kind(deshuffling, _WRITES),
    "document_rotation": _Kind(document_rotation, _WRITES, "documents"),
    "gap_sentences": _Kind(gap_sentences, _WRITES, "documents", least=2, mask=True),
    "masked": _Kind(masked, _FILLS, mask=True),
    "next_sentence": _Kind(next_sentence, ("pretraining", "next-sentence-prediction"), "documents", least=2, mask=True),
    "prefix_lm": _Kind(prefix_lm, (*_WRITES, "text-generation"), least=2),
    "replaced_tokens": _Kind(replaced_tokens, ("replaced-token-detection",), mask=True),
    "sentence_order": _Kind(sentence_order, ("pretraining",), "documents", least=2, mask=True),
    "sentence_permutation": _Kind(sentence_permutation, _WRITES, "documents"),
    "span_boundary": _Kind(span_boundary, _FILLS, mask=True),
    "span_corruption": _Kind(span_corruption, _WRITES, least=2, sentinels=True),
    "text_infilling": _Kind(text_infilling, _WRITES, "documents", mask=True),
    "token_deletion": _Kind(token_deletion, _WRITES, "documents"),
    "translation": _Kind(translation, _WRITES, "pairs"),
    "translation_lm": _Kind(translation_lm, _FILLS, "pairs", mask=True),
}
"""The objectives, by the names of their functions."""


class ObjectiveOptions(TypedDict, total=False):
    """Table `[objective]` of a recipe: the texts have no labels, and the model is pretrained.

    Attributes:
        name: Name of a function of `kerasformer.tools.training`, which makes other batches of the texts in each epoch.
        rate: Share of the tokens, or of the sentences for gap sentences, that are predicted.
        unit: What is masked at once: `token`, `word`, `ngram` or `span`, see `kerasformer.tools.training.Masking`.
        mean_length: Mean number of tokens of a span.
        generator_size: Width of ELECTRA's generator, as a share of that of the model.
    """

    name: Annotated[str, Option(one_of(*OBJECTIVES))]
    rate: Annotated[float, Option(number(0, 1))]
    unit: Annotated[str, Option(one_of("token", "word", "ngram", "span"))]
    mean_length: Annotated[float, Option(number(1))]
    generator_size: Annotated[float, Option(number(0, 1), 0.25)]


def usual_task(name: str, tasks: Sequence[str]) -> str:
    """Returns the task for which a model learns an objective.

    Args:
        name: The objective.
        tasks: Tasks of the architecture.

    Raises:
        InputError: no model of the architecture learns it.
    """
    for task in OBJECTIVES[name].tasks:
        if task in tasks:
            return task
    raise InputError(
        f"A model for {' or '.join(OBJECTIVES[name].tasks)} learns {name}. Expected: an architecture with such a task. "
        f"Received: one with {', '.join(tasks)}"
    )


def needed_tokens(name: str) -> dict[str, Any]:
    """Returns the arguments of `train_tokenizer` for a vocabulary with the tokens that an objective needs."""
    kind = OBJECTIVES[name]
    return {"mask": kind.mask, "sentinels": SENTINELS if kind.sentinels else 0}


def with_needed_tokens(name: str, model: PretrainedModel) -> PretrainedModel:
    """Returns a model with the tokens that an objective needs, those that it lacks being new."""
    kind, tokenizer = OBJECTIVES[name], model.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        return model  # `Vocabulary.of` raises the error
    vocabulary = Vocabulary.of(model)
    if (
        kind.mask
        and vocabulary.mask_id is None
        and not (kind.objective is gap_sentences and vocabulary.sentence_mask_id)
    ):
        model = add_tokens(model, mask_token="<mask>")
    if kind.sentinels and not vocabulary.sentinel_ids:
        model = add_tokens(model, [f"<extra_id_{index}>" for index in range(SENTINELS)])
    return model


def batches(
    options: ObjectiveOptions,
    model: PretrainedModel,
    texts: Sequence[Example],
    *,
    batch_size: int,
    max_length: int | None,
    seed: int,
    shuffle: bool,
) -> ObjectiveDataset:
    """Returns the batches of texts.

    Args:
        options: The objective.
        model: The model, with its tokenizer.
        texts: The texts; for documents, with their sentences in lines of their own or in running text.
        batch_size: Number of texts of a batch.
        max_length: Maximum number of tokens of a text; that of the model by default.
        seed: Seed of the order and of the objective.
        shuffle: Whether the order is random and each epoch has batches of its own.

    Raises:
        InputError: the model is for another task, an option does not belong to the objective, or no text is long
            enough.
    """
    name = options["name"]
    kind, vocabulary = OBJECTIVES[name], Vocabulary.of(model)
    if model.task not in kind.tasks:
        raise InputError(f"A model for {' or '.join(kind.tasks)} learns {name}. Received: a model for {model.task}")
    if name == "sentence_order" and model.relation != "sop_logits":
        raise InputError(
            f"A model such as ALBERT learns {name}. Received: {type(model).__name__}, whose second head is for the "
            "next sentence. Use next_sentence"
        )
    longest = min(filter(None, (max_length, model.max_length)), default=None)
    special = (
        sum(map(len, vocabulary.single))
        if kind.unit == "texts"
        else max(sum(map(len, frame)) for frame in (vocabulary.single, vocabulary.target))
    )
    limit = None if longest is None else max(longest - special, kind.least)
    if kind.unit == "documents":
        read: list[Any] = list(documents((example.text for example in texts), model.tokenizer, limit, kind.least))
        long_enough = [document for document in read if len(document) >= kind.least]
        unit = "sentences"
    elif kind.unit == "pairs":
        both = (
            _encoded([e.text for e in texts], model.tokenizer, limit),
            _encoded(_second(texts), model.tokenizer, limit),
        )
        read = list(zip(*both, strict=True))
        long_enough, unit = [pair for pair in read if all(len(side) >= kind.least for side in pair)], "tokens"
    else:
        read = _encoded([example.text for example in texts], model.tokenizer, limit)
        long_enough, unit = [row for row in read if len(row) >= kind.least], "tokens"
    if not long_enough:
        raise InputError(f"{name} needs texts of at least {kind.least} {unit}. Received: {len(texts)} shorter texts")
    if missing := len(read) - len(long_enough):
        warnings.warn(
            f"{missing} of {len(read)} texts were left out, since {name} needs at least {kind.least} {unit} of each",
            stacklevel=5,
        )
    objective = partial(kind.objective, **_arguments(options, kind, model, longest))
    return ObjectiveDataset(long_enough, objective, vocabulary, batch_size, seed=seed, shuffle=shuffle, fresh=shuffle)  # type: ignore[arg-type]


def _encoded(texts: Sequence[str], tokenizer: Tokenizer, limit: int | None) -> list[np.ndarray]:
    """Returns the ids of texts without special tokens."""
    options: dict[str, Any] = {} if limit is None else {"truncation": True, "max_length": limit}
    encoding = tokenizer(list(texts), add_special_tokens=False, padding_side="right", **options)
    return [row[real == 1] for row, real in zip(encoding.input_ids, encoding.attention_mask, strict=True)]


def _second(texts: Sequence[Example]) -> list[str]:
    """Returns the second text of each pair: its label, or the first of several ones.

    Raises:
        InputError: a text has none.
    """
    labels = [example.label[0] if isinstance(example.label, list) and example.label else example.label
              for example in texts]  # fmt: skip
    for example, label in zip(texts, labels, strict=True):
        if not isinstance(label, str) or not label:
            raise InputError(
                "A text with its translation in the second column was expected, such as in a .tsv file. "
                f"Received: {label!r:.80} ({example.location})"
            )
    return labels


def _arguments(options: ObjectiveOptions, kind: _Kind, model: PretrainedModel, longest: int | None) -> dict[str, Any]:
    """Returns the arguments of the function of an objective.

    Raises:
        InputError: it does not have one of the options.
    """
    known = inspect.signature(kind.objective).parameters
    given = {key: options[key] for key in ("rate", "unit", "mean_length") if key in options}  # type: ignore[literal-required]
    arguments: dict[str, Any] = {}
    if "max_length" in known and longest is not None:
        arguments["max_length"] = longest
    if "masking" in known and (known["masking"].default is not None or isinstance(model, Pretraining)):
        usual = known["masking"].default or Masking()
        arguments["masking"] = replace(usual, **{key: given.pop(key) for key in ("rate", "unit") if key in given})
    arguments |= {key: given.pop(key) for key in list(given) if key in known}
    if given:
        raise InputError(f"{options['name']} does not have {', '.join(given)}. Remove it from [objective]")
    return arguments


def trained(options: ObjectiveOptions, model: PretrainedModel) -> tuple[keras.Model, Any, Any]:
    """Returns what is compiled and fitted to train a model, with its loss and its metrics."""
    name = options["name"]
    if name == "replaced_tokens":
        return ReplacedTokens(_generator(model, options["generator_size"]), model), None, None
    if name == "span_boundary":
        return SpanBoundary(model), {output: _loss() for output in ("prediction_logits", "boundary_logits")}, None
    if isinstance(model, Pretraining):
        outputs = "prediction_logits", model.relation
        return model, {output: _loss() for output in outputs}, {output: [MaskedAccuracy()] for output in outputs}
    if name == "prefix_lm" and not model.is_encoder_decoder:
        return PackedModel(model, prefix_lm=True), _loss(), [MaskedAccuracy()]
    return model, _loss(), [MaskedAccuracy()]


def _loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=IGNORED)


def _generator(model: PretrainedModel, size: float) -> PretrainedModel:
    """Returns ELECTRA's generator, a model with a share of the width, the heads and the neurons of another one."""
    from kerasformer.models import architecture, create

    config = model.config
    heads = max(1, round(size * config.num_heads))
    width = config.hidden_dim // config.num_heads * heads
    neurons = max(1, round(size * config.intermediate_dim))
    smaller = replace(config, num_heads=heads, hidden_dim=width, intermediate_dim=neurons)
    return create(architecture(config.model_type).MODELS["fill-mask"], smaller, model.dtype_policy)
