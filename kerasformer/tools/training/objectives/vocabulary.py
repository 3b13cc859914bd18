"""What the objectives know of a tokenizer: the ids of its special tokens, and which tokens start a word."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tokenization import Tokenizer

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel

Ids = tuple[int, ...]

_WORD = {"##": False, "▁": True, "Ġ": True}
"""Marks at the start of tokens, and whether a token with the mark starts a word: WordPiece, SentencePiece, bytes."""


@dataclass(frozen=True)
class Vocabulary:
    """The ids that an objective needs beside those of the texts.

    `Vocabulary.of` reads them from a model or a tokenizer.

    Attributes:
        size: Number of tokens.
        pad_id: Id of padding.
        mask_id: Id of the mask token; `None` if there is none.
        sentence_mask_id: Id of the token in place of a whole sentence (PEGASUS); `mask_id` by default.
        end_id: Id that ends the text of a decoder-only model; `None` for no end.
        special_ids: Ids that are never masked and never drawn at random.
        sentinel_ids: Ids of the sentinels of T5, the first one first.
        single: Special tokens before and after a text.
        pair: Special tokens before, between and after two texts.
        target: Special tokens before and after a text that a decoder writes.
        start_id: Id that a decoder reads first; `None` if it is the last token of the target (mBART).
        segments: Whether the model reads `token_type_ids`.
        encoder_decoder: Whether the model has an encoder and a decoder.
        word_starts: Whether a token starts a word, boolean `(size,)`; `None` if tokens do not show it.
    """

    size: int
    pad_id: int = 0
    mask_id: int | None = None
    sentence_mask_id: int | None = None
    end_id: int | None = None
    special_ids: Ids = ()
    sentinel_ids: Ids = ()
    single: tuple[Ids, Ids] = ((), ())
    pair: tuple[Ids, Ids, Ids] = ((), (), ())
    target: tuple[Ids, Ids] = ((), ())
    start_id: int | None = None
    segments: bool = False
    encoder_decoder: bool = False
    word_starts: np.ndarray | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, source: PretrainedModel | Tokenizer) -> Vocabulary:
        """Reads the ids from a model with a tokenizer, or from a tokenizer.

        A tokenizer alone does not know the start token of a decoder.

        Raises:
            InputError: the model has no tokenizer.
        """
        model, tokenizer = (None, source) if isinstance(source, Tokenizer) else (source, source.tokenizer)
        if not isinstance(tokenizer, Tokenizer):
            raise InputError(
                "An objective needs the special tokens of a tokenizer. Expected: a kf.Tokenizer, or a model with one. "
                f"Received: {type(source).__name__} with tokenizer={tokenizer!r}. Set model.tokenizer, or pass "
                "Vocabulary(size, …) with the ids"
            )
        tokens = tokenizer.get_vocab()
        sentinels = sorted(
            (int(found[1]), index) for token, index in tokens.items() if (found := _SENTINEL.fullmatch(token))
        )
        pad, segments, start = tokenizer.pad_token_id, "token_type_ids" in tokenizer("a"), -1
        if model is not None:
            segments = "token_type_ids" in model.input_names
        if model is not None and model.is_encoder_decoder:
            probe = np.array([[-2, -1]], "int32")  # no ids: the model shows whether it starts with the last token
            start = int(model.backbone.shift_right(probe, np.ones_like(probe))[0, 0])
        return cls(
            size=max(tokens.values()) + 1,
            pad_id=0 if pad is None else pad,
            mask_id=tokenizer.mask_token_id,
            sentence_mask_id=tokens.get("<mask_1>", tokenizer.mask_token_id),
            end_id=tokenizer.eos_token_id,
            special_ids=tuple(tokenizer.all_special_ids),
            sentinel_ids=tuple(index for _, index in sentinels),
            single=_frame(tokenizer),
            pair=_pair_frame(tokenizer),
            target=_frame(tokenizer.writer),
            start_id=None if start == -1 else start,
            segments=segments,
            encoder_decoder=model is not None and model.is_encoder_decoder,
            word_starts=_word_starts(tokens),
        )

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids of all tokens that are not special, from which random tokens are drawn."""
        return np.setdiff1d(np.arange(self.size), self.special_ids)

    def framed(self, first: np.ndarray, second: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Adds the special tokens to a text or to a pair of texts.

        Returns:
            `(ids, segments)`: the second text and the tokens after it have the segment 1.
        """
        if second is None:
            ids = np.concatenate([self.single[0], first, self.single[1]]).astype("int32")
            return ids, np.zeros_like(ids)
        before, between, after = self.pair
        ids = np.concatenate([before, first, between, second, after]).astype("int32")
        lengths = len(before) + len(first) + len(between), len(second) + len(after)
        return ids, np.repeat([0, 1], lengths).astype("int32")

    def starts_word(self, ids: np.ndarray) -> np.ndarray:
        """Returns which tokens start a word, boolean.

        Raises:
            InputError: the tokens do not show it.
        """
        if self.word_starts is None:
            raise InputError(
                "Whole words need tokens that show where a word starts. Expected: tokens with '##', '▁' or 'Ġ'. "
                "Received: a vocabulary without them. Pass Vocabulary(…, word_starts=…), or mask single tokens"
            )
        return self.word_starts[ids]

    def required(self, name: str, purpose: str) -> int:
        """Returns one of the ids.

        Args:
            name: Name of the attribute.
            purpose: What needs it, for the error message.

        Raises:
            InputError: the vocabulary does not have it.
        """
        value: int | None = getattr(self, name)
        if value is None:
            raise InputError(
                f"{purpose} needs the id of a token that the tokenizer does not have. "
                f"Expected: Vocabulary(…, {name}=…), or a token that kf.zoo.add_tokens adds to the model. "
                f"Received: {name}=None"
            )
        return value


_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def _frame(tokenizer: Tokenizer) -> tuple[Ids, Ids]:
    """Returns the special tokens before and after a text."""
    encoded = tokenizer("a")
    ids, words = encoded["input_ids"][0], np.flatnonzero(encoded.sequence_ids[0] == 0)
    return tuple(ids[: words[0]].tolist()), tuple(ids[words[-1] + 1 :].tolist())


def _pair_frame(tokenizer: Tokenizer) -> tuple[Ids, Ids, Ids]:
    """Returns the special tokens before, between and after two texts."""
    encoded = tokenizer("a", "a")
    ids, texts = encoded["input_ids"][0], encoded.sequence_ids[0]
    first, second = np.flatnonzero(texts == 0), np.flatnonzero(texts == 1)
    parts = ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :]
    before, between, after = (tuple(part.tolist()) for part in parts)
    return before, between, after


def _word_starts(tokens: dict[str, int]) -> np.ndarray | None:
    """Returns whether each token starts a word, from the mark that the tokens have; `None` if they have none."""
    for mark, starts in _WORD.items():
        marked = [index for token, index in tokens.items() if token.startswith(mark)]
        # Of a tokenizer of bytes, a single token may look like a mark.
        if len(marked) > 1:
            result = np.full(max(tokens.values()) + 1, not starts)
            result[marked] = starts
            return result
    return None
