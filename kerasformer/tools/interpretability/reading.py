"""Texts as the tokens that a model reads, with their place in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.basics.arguments import TEXT, check, optional
from kerasformer.engines import Forward, Step
from kerasformer.errors import CapacityError, InputError
from kerasformer.generation import readable_token
from kerasformer.pipelines import Opened, open_source
from kerasformer.tokenization import Tokenizer, check_known

if TYPE_CHECKING:
    from kerasformer.models import PretrainedModel


@dataclass(frozen=True)
class ReadText:
    """Tokens of a text, or of a pair of texts.

    Attributes:
        text: The text.
        pair: The second text, or `None`.
        inputs: The arrays that the model reads, `(1, T)` int32, by name.
        tokens: Tokens in readable form, of length `T`.
        offsets: Start and end of each token in its text, in characters, `(T, 2)`; 0, 0 for special tokens.
        sequence_ids: 0 for tokens of the text, 1 for those of the second text, -1 for special tokens, `(T,)`.
        word_ids: Index of the word of each token in its text, -1 for special tokens, `(T,)`.
    """

    text: str
    pair: str | None
    inputs: dict[str, np.ndarray]
    tokens: tuple[str, ...]
    offsets: np.ndarray
    sequence_ids: np.ndarray
    word_ids: np.ndarray

    @property
    def ids(self) -> np.ndarray:
        """Token ids, `(T,)` int32."""
        ids: np.ndarray = self.inputs["input_ids"][0]
        return ids

    def source_of(self, position: int) -> str:
        """Returns the part of the text that belongs to a token; empty for a special token."""
        if self.sequence_ids[position] < 0:
            return ""
        start, end = self.offsets[position].tolist()
        return (self.pair or "")[start:end] if self.sequence_ids[position] else self.text[start:end]

    def tokens_of(self, part: str, sequences: Sequence[int] = (0, 1)) -> np.ndarray:
        """Returns the positions of the tokens that overlap with the first occurrence of a part of the text.

        Args:
            part: The part.
            sequences: Which texts to search: 0 for the text, 1 for the second text.

        Raises:
            InputError: the texts do not contain the part.
        """
        for sequence in sequences:
            start = (self.pair or "" if sequence else self.text).find(part)
            if part and start >= 0:
                positions = self.overlapping(sequence, start, start + len(part))
                if len(positions):
                    return positions
        raise InputError(f"A part of the text was expected. Received: {part!r}, which it does not contain")

    def overlapping(self, sequence: int, start: int, end: int) -> np.ndarray:
        """Returns the positions of the tokens that overlap with the characters from `start` to `end` of a text."""
        inside = (self.offsets[:, 0] < end) & (self.offsets[:, 1] > start)
        return np.flatnonzero(inside & (self.sequence_ids == sequence))


def opened(source: Any) -> Opened:
    """Opens a Keras model, a pipeline, or what `kerasformer.pipeline` opens, for the task that it was saved for."""
    return source if isinstance(getattr(source, "model", None), Forward | Step) else open_source(None, source)


def keras_model(source: Opened, purpose: str) -> PretrainedModel:
    """Returns the Keras model of a source.

    Args:
        source: The source.
        purpose: What needs it, for the error message.

    Raises:
        InputError: the source is a bundle.
    """
    model: PretrainedModel | None = getattr(source.model, "model", None) if source.engine == "keras" else None
    if model is None:
        raise InputError(
            f"{purpose} needs a Keras model: a checkpoint, a preset, a hub id, or what kerasformer.load returns. "
            f"Received: a bundle for {source.engine}"
        )
    return model


def read(source: Opened, text: object, pair: object = None) -> ReadText:
    """Tokenizes a text, or a pair of texts, as the model reads it.

    If the task of the source has a prefix, such as `"summarize: "`, the text that is returned starts with it, as in a
    pipeline.

    Raises:
        CapacityError: the text is longer than the model.
        InputError: the text is empty or no text.
    """
    first, second = check("text", text, TEXT), check("pair", pair, optional(TEXT))
    tokenizer, prefix = source.tokenizer, source.info.default_prefix(source.task) or ""
    if isinstance(source.model, Step):
        if not source.model.is_encoder_decoder:
            tokenizer = tokenizer.writer
        elif first and not first.startswith(prefix):
            first = prefix + first
    encoded = tokenizer([first], None if second is None else [second], padding_side="right")
    check_known(encoded.input_ids, tokenizer, source.info.vocab_size)
    length, limit = encoded.input_ids.shape[1], source.info.max_length
    if not length or (encoded.sequence_ids[0] < 0).all():
        raise InputError(f"A text with at least one token was expected. Received: {first!r}")
    if limit is not None and length > limit:
        raise CapacityError(
            f"The text is longer than the model. Expected at most {limit} tokens. Received: {length}. Shorten it."
        )
    names = [*source.info.input_names, *(["attention_mask"] if isinstance(source.model, Step) else [])]
    inputs = {name: array for name, array in encoded.inputs.items() if name in names}
    ids = encoded.input_ids[0].tolist()
    tokens = tuple(readable_token(tokenizer, token) for token in ids)
    return ReadText(first, second, inputs, tokens, encoded.offsets[0], encoded.sequence_ids[0], encoded.word_ids[0])


def token_id(tokenizer: Tokenizer, token: object, name: str = "target") -> int:
    """Returns the id of a token: an id, an entry of the vocabulary, or a text of one token, such as `" Paris"`.

    Raises:
        InputError: it is not one token.
    """
    if isinstance(token, str):
        if (known := tokenizer.token_to_id(token)) is not None:
            return int(known)
        ids = tokenizer.encode(token, add_special_tokens=False)
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
        received = f"{token!r}, tokens: {', '.join(readable_token(tokenizer, each) for each in ids)}"
        raise InputError(f"{name} must be one token of the vocabulary, or its id. Received: {received}")
    if isinstance(token, int | np.integer) and not isinstance(token, bool):
        if tokenizer.id_to_token(int(token)) is not None:
            return int(token)
    raise InputError(f"{name} must be one token of the vocabulary, or its id. Received: {token!r}")
