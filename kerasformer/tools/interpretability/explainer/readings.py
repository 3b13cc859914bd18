"""Texts as a model reads them: sample texts of its task, pairs, prefixes and token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.basics.arguments import TEXT, Kind, check, sequence
from kerasformer.basics.tasks import entailment_class
from kerasformer.bundle import ModelInfo, sample_texts
from kerasformer.errors import CapacityError, InputError
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import Tokenizer, check_known

MAX_TOKENS = 96
"""Largest number of tokens of a text, since a page shows each of them."""

Text = str | tuple[str, str]
"""A text, or a pair: question and context, premise and hypothesis, query and document."""


def _text(value: object) -> Text:
    if isinstance(value, str):
        return TEXT.convert(value)
    first, second = sequence(TEXT, least=2).convert(value)
    return first, second


TEXTS = sequence(Kind("a text or a pair of texts", _text), least=1)


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it.

    Attributes:
        text: The text, or the first of a pair.
        pair: The second text of a pair; optional.
        prefix: Text that the model's task puts before it.
        inputs: int32 arrays `(1, T)` by the names of the model's inputs.
        special: Whether each token is a special one, boolean `(T,)`.
        segments: 0 for tokens of the first text of a pair and 1 for those of the second, `(T,)`, where a special token
            belongs to the text before it; `None` without a pair.
    """

    text: str
    pair: str | None
    prefix: str
    inputs: dict[str, np.ndarray]
    special: np.ndarray
    segments: np.ndarray | None = None

    @property
    def ids(self) -> np.ndarray:
        """Token ids, int32 `(T,)`."""
        ids: np.ndarray = self.inputs["input_ids"][0]
        return ids


def samples(info: ModelInfo, tokenizer: Tokenizer, count: int = 3) -> list[Text]:
    """Returns sample texts of a model's task, at most `count`."""
    task = _sample_task(info)
    rows = sample_texts.examples(task)["inputs"] or sample_texts.examples("text-classification")["inputs"]
    return [text for row in rows for text in _texts_of(row, tokenizer)][:count]


def _sample_task(info: ModelInfo) -> str:
    """Returns the task whose sample texts suit a model."""
    if info.task == "text-classification" and entailment_class(info.labels) is not None:
        return "zero-shot-classification"
    if info.task == "text-classification" and len(info.labels) == 1:
        return "text-ranking"
    if info.languages is not None or any(task.startswith("translation") for task in info.task_prefixes):
        return "translation"
    return info.task


def _texts_of(row: JsonObject, tokenizer: Tokenizer) -> list[Text]:
    if "question" in row:
        return [(row["question"], row["context"])]
    if "documents" in row:
        return [row["query"], row["documents"][0]]
    if "hypothesis_template" in row:
        return [(row["text"], row["hypothesis_template"].format(row["candidate_labels"].split(",")[0]))]
    mask = tokenizer.special_tokens.get("mask_token", "")
    return [row["text"].replace("{gap}", mask), *([row["other"]] if "other" in row else [])]


def read(text: Text, info: ModelInfo, tokenizer: Tokenizer) -> Reading:
    """Tokenizes a text or a pair.

    Raises:
        CapacityError: it has more tokens than the model reads, or than a page shows.
        InputError: it has no token besides special ones.
    """
    first, second = (text, None) if isinstance(text, str) else text
    prefix = info.sample_prefix if second is None else ""
    encoded = tokenizer([prefix + first], None if second is None else [second], padding_side="right")
    check_known(encoded.input_ids, tokenizer, info.vocab_size)
    limit = min(MAX_TOKENS, info.max_length or MAX_TOKENS)
    if encoded.input_ids.shape[1] > limit:
        raise CapacityError(
            f"A text is too long to be shown token by token. Expected: at most {limit} tokens. "
            f"Received: {encoded.input_ids.shape[1]}, {first[:60]!r}…"
        )
    special = encoded.special_tokens_mask[0] > 0
    if not np.any(~special | (encoded.input_ids[0] == tokenizer.mask_token_id)):
        raise InputError(f"A text with at least one token was expected. Received: {first!r}")
    inputs = {name: array for name, array in encoded.inputs.items() if name in info.input_names or name == "input_ids"}
    inputs.setdefault("attention_mask", encoded.attention_mask)
    # Special tokens have the index -1.
    segments = None if second is None else np.maximum(np.maximum.accumulate(encoded.sequence_ids[0]), 0)
    return Reading(first, second, prefix, inputs, special, segments)


def readings(texts: Sequence[Text] | None, info: ModelInfo, tokenizer: Tokenizer) -> list[Reading]:
    """Tokenizes the given texts, or the sample texts of the model's task that fit."""
    if texts is not None:
        return [read(text, info, tokenizer) for text in check("texts", texts, TEXTS)]
    fitting = []
    for text in samples(info, tokenizer):
        shorter: Text | None = text
        while shorter is not None:
            try:
                fitting.append(read(shorter, info, tokenizer))
                break
            except CapacityError:
                shorter = _without_last_sentence(shorter)
    if not fitting:
        raise CapacityError("No sample text is short enough for this model. Pass texts of your own")
    return fitting


def _without_last_sentence(text: Text) -> Text | None:
    """Returns a sample text, or the second one of a pair, without its last sentence; `None` if it has but one."""
    last = text if isinstance(text, str) else text[1]
    rest, separator, _ = last.rpartition(". ")
    if not separator:
        return None
    return f"{rest}." if isinstance(text, str) else (text[0], f"{rest}.")
