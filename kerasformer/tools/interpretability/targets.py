"""The score that an attribution explains: that of a class, of an entity's class, of an answer, or of a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.basics.arguments import check, instance, integer
from kerasformer.bundle import ModelInfo
from kerasformer.errors import InputError
from kerasformer.generation import readable_token
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.interpretability.reading import ReadText, token_id

Outputs = Mapping[str, Any]
"""Outputs of a model by name: arrays, or tensors of a backend."""

_LONGEST_ANSWER = 64
"""Maximum number of tokens of the answer that is explained by default."""


@dataclass(frozen=True)
class Target:
    """What is explained: the sum of entries of the model's outputs.

    Attributes:
        name: The class, the answer or the token, in readable form.
        entries: Name of the output and index of the entry in the outputs of one text.
        position: Position of the token whose output is explained; `None` for the whole text or an answer.
    """

    name: str
    entries: tuple[tuple[str, tuple[int, ...]], ...]
    position: int | None = None

    def score(self, outputs: Outputs) -> Any:
        """Returns the score of each text, `(B,)`, an array or a tensor like the outputs."""
        parts = [outputs[output][(slice(None), *index)] for output, index in self.entries]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def find_target(
    info: ModelInfo,
    tokenizer: Tokenizer,
    read: ReadText,
    outputs: Mapping[str, np.ndarray],
    target: object,
    at: object,
    generates: bool,
) -> Target:
    """Finds what to explain in the outputs of a text.

    Args:
        info: Properties of the model.
        tokenizer: Tokenizer of the vocabulary that is scored.
        read: The text.
        outputs: The model's outputs for it, with a batch of 1.
        target: Class, answer or token; `None` for the best one.
        at: Part of the text, or position, of the token whose output is explained; `None` for the one that is most of
            interest.
        generates: Whether the outputs are the scores of the next token.

    Raises:
        InputError: there is no such class, answer, token or position, or the outputs have no scores.
    """
    if "start_logits" in outputs:
        _refuse_position(at, "the tokens of an answer are its target")
        return _answer(read, outputs["start_logits"][0], outputs["end_logits"][0], target)
    name = "logits"
    scores = outputs[name][0] if name in outputs else None
    if scores is None or (scores.ndim == 1 and not info.labels and not generates):  # the latter of replaced tokens
        raise InputError(
            "An attribution explains a score: that of a class, an entity, an answer or a token. "
            f"Received: a model for {info.task} that returns {', '.join(outputs)}"
        )
    if scores.ndim == 1 and info.labels:
        _refuse_position(at, "the scores are those of the whole text")
        index = _label(info.labels, target, scores)
        return Target(info.labels[index], ((name, (index,)),))
    if scores.ndim == 1:  # the next token
        _refuse_position(at, "the score is that of the next token")
        token = int(scores.argmax()) if target is None else token_id(tokenizer, target)
        return Target(readable_token(tokenizer, token), ((name, (token,)),))
    if info.labels:
        position = _position(read, at) if at is not None else _best_entity(info.labels, read, scores)
        index = _label(info.labels, target, scores[position])
        return Target(info.labels[index], ((name, (position, index)),), position)
    position = _position(read, at) if at is not None else _mask_position(tokenizer, read)
    token = int(scores[position].argmax()) if target is None else token_id(tokenizer, target)
    return Target(readable_token(tokenizer, token), ((name, (position, token)),), position)


def _label(labels: tuple[str, ...], target: object, scores: np.ndarray) -> int:
    """Returns the index of a class; that of the best score by default."""
    if target is None:
        return int(scores.argmax())
    if isinstance(target, str) and target in labels:
        return labels.index(target)
    if isinstance(target, int | np.integer) and not isinstance(target, bool) and 0 <= target < len(labels):
        return int(target)
    raise InputError(
        f"target must be a class or its index. Expected one of: {', '.join(labels)}. Received: target={target!r}"
    )


def _position(read: ReadText, at: object) -> int:
    value = check("at", at, instance("a part of the text, or the position of a token", str, int))
    if isinstance(value, str):
        return int(read.tokens_of(value)[0])
    return int(check("at", value, integer(0, len(read.tokens) - 1)))


def _refuse_position(at: object, reason: str) -> None:
    if at is not None:
        raise InputError(f"at is for models with scores for each token; here, {reason}. Received: at={at!r}")


def _best_entity(labels: tuple[str, ...], read: ReadText, scores: np.ndarray) -> int:
    """Returns the position of the token that is most clearly an entity: the highest score above that of no entity."""
    others = [index for index, label in enumerate(labels) if label != "O"]
    margins = scores[:, others].max(axis=1)
    if len(others) < len(labels):
        margins = margins - scores[:, labels.index("O")]
    return int(np.where(read.sequence_ids >= 0, margins, -np.inf).argmax())


def _mask_position(tokenizer: Tokenizer, read: ReadText) -> int:
    masks = np.flatnonzero(read.ids == tokenizer.mask_token_id)  # none without such a token
    if not len(masks):
        raise InputError(
            f"The text has no {tokenizer.mask_token or 'mask token'}, whose filling could be explained. Pass at=, "
            f"the position or the part of the text whose token is explained. Received: {read.text!r}"
        )
    return int(masks[0])


def _answer(read: ReadText, starts: np.ndarray, ends: np.ndarray, target: object) -> Target:
    """Returns the answer: a part of the context, by default the one with the highest score."""
    if target is None:
        first, last = _best_span(starts, ends, read.sequence_ids == (0 if read.pair is None else 1))
    else:
        part = check("target", target, instance("a part of the context", str))
        positions = read.tokens_of(part, sequences=(0,) if read.pair is None else (1,))
        first, last = int(positions[0]), int(positions[-1])
    text = read.text if read.pair is None else read.pair
    name = text[int(read.offsets[first, 0]) : int(read.offsets[last, 1])].strip()
    return Target(name, (("start_logits", (first,)), ("end_logits", (last,))))


def _best_span(starts: np.ndarray, ends: np.ndarray, allowed: np.ndarray) -> tuple[int, int]:
    """Returns the first and the last token of the best answer, of at most `_LONGEST_ANSWER` tokens."""
    sums = np.where(allowed, starts, -np.inf)[:, None] + np.where(allowed, ends, -np.inf)[None]
    sums[~np.triu(np.ones(sums.shape, bool)) | np.triu(np.ones(sums.shape, bool), _LONGEST_ANSWER)] = -np.inf
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    return int(first), int(last)
