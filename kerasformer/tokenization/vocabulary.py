"""The tokens of a tokenizer and their ids."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import tokenizers
from tokenizers import AddedToken

from kerasformer.basics.arguments import STRING, check, integer, shown
from kerasformer.errors import InputError
from kerasformer.files.reading import JsonMapping
from kerasformer.tokenization.settings import NAMED_TOKENS

_MAX_ID = 2**32 - 1


def _token(name: str) -> property:
    def read(self: Vocabulary) -> str | None:
        return self._special_tokens.get(name)

    read.__doc__ = f"The {name.replace('_', ' ')}; `None` if there is none."
    return property(read)


def _token_id(name: str) -> property:
    def read(self: Vocabulary) -> int | None:
        token = self._special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    read.__doc__ = f"Id of the {name.replace('_', ' ')}; `None` if there is none."
    return property(read)


class Vocabulary:
    """Tokens of a tokenizer of the `tokenizers` library, and their ids.

    Args:
        backend: The tokenizer.
        special_tokens: Mapping from names such as `"pad_token"` to tokens; missing tokens are added.

    Attributes:
        portable: Whether `tokenizer.json` describes the tokenizer.
        target: Vocabulary of the texts that the model writes, if it is another one.
    """

    portable: ClassVar[bool] = True
    target: Vocabulary | None = None

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str] | None = None) -> None:
        self.backend = backend
        self._special_tokens = dict(special_tokens or {})
        known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        backend.add_special_tokens(
            [AddedToken(token, normalized=False) for token in self._special_tokens.values() if token not in known]
        )

    pad_token, pad_token_id = _token("pad_token"), _token_id("pad_token")
    eos_token, eos_token_id = _token("eos_token"), _token_id("eos_token")
    bos_token, bos_token_id = _token("bos_token"), _token_id("bos_token")
    unk_token, unk_token_id = _token("unk_token"), _token_id("unk_token")
    cls_token, cls_token_id = _token("cls_token"), _token_id("cls_token")
    sep_token, sep_token_id = _token("sep_token"), _token_id("sep_token")
    mask_token, mask_token_id = _token("mask_token"), _token_id("mask_token")

    @property
    def vocab_size(self) -> int:
        """Number of tokens, including added tokens; the embedding of a model may have more rows."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of the special tokens in ascending order, which decoding skips with `skip_special_tokens=True`."""
        return sorted(index for index, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @property
    def special_tokens(self) -> dict[str, str]:
        """Mapping from names such as `"pad_token"` to tokens; contains only tokens that exist."""
        return dict(self._special_tokens)

    def get_vocab(self) -> dict[str, int]:
        """Returns a mapping from tokens to ids, including added tokens."""
        return self.backend.get_vocab(with_added_tokens=True)

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, or `None` if it is not in the vocabulary."""
        try:
            return self.backend.token_to_id(check("token", token, STRING))
        except UnicodeEncodeError:  # no vocabulary contains lone surrogates
            return None

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the token of an id as it appears in the vocabulary, or `None` if there is none."""
        index = check("token_id", token_id, integer())
        return self.backend.id_to_token(index) if 0 <= index <= _MAX_ID else None

    def num_special_tokens(self, pair: bool = False) -> int:
        """Returns the number of special tokens that are added to a text or to a pair of texts."""
        return self.backend.num_special_tokens_to_add(pair)

    def convert_ids_to_tokens(
        self, ids: int | Sequence[int] | np.ndarray, skip_special_tokens: bool = False
    ) -> str | None | list[str | None]:
        """Returns the tokens of ids as they appear in the vocabulary; `None` for unknown ids.

        Args:
            ids: An id or a flat sequence of ids.
            skip_special_tokens: Whether to omit the special tokens of a sequence.

        Raises:
            InputError: not a flat sequence of ids, or a negative id.
        """
        if isinstance(ids, Integral):
            return self.id_to_token(int(ids))
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return [self.id_to_token(token_id) for token_id in flat_ids(ids) if token_id not in skipped]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | None | list[int | None]:
        """Returns the ids of tokens.

        Tokens that are not in the vocabulary get the id of the unknown token, or `None` if there is no unknown token.

        Raises:
            InputError: values that are not strings.
        """
        if isinstance(tokens, str):
            token_id = self.token_to_id(tokens)
            return self.unk_token_id if token_id is None else token_id
        if isinstance(tokens, bytes) or not isinstance(tokens, Iterable):
            raise InputError(f"tokens must be a token or a list of tokens. Received: {shown(tokens)}")
        return [self.convert_tokens_to_ids(check("a token", token, STRING)) for token in tokens]  # type: ignore[misc]

    @property
    def _padding_id(self) -> int:
        """Id of the padding token, or of the end token (GPT-2) or the unknown token (GPT, CTRL).

        Raises:
            InputError: there is none of them.
        """
        ids = (self.pad_token_id, self.eos_token_id, self.unk_token_id)
        token_id = next((index for index in ids if index is not None), None)
        if token_id is None:
            raise InputError(
                "texts of different lengths require a padding token, but this tokenizer has neither a padding, nor "
                "an end, nor an unknown token. Pass one text at a time, or add pad_token to tokenizer_config.json"
            )
        return token_id

    def _unnamed_special_tokens(self) -> list[str]:
        named, added = set(self._special_tokens.values()), self.backend.get_added_tokens_decoder()
        return [added[index].content for index in self.all_special_ids if added[index].content not in named]

    @cached_property
    def _added_tokens(self) -> dict[int, AddedToken]:
        return self.backend.get_added_tokens_decoder()

    def with_tokens(self, tokens: Sequence[str] = (), **named: str) -> Self:
        """Returns a tokenizer with further special tokens, which have the next ids.

        Args:
            tokens: The tokens; those of the vocabulary keep their ids and become special.
            named: Tokens by their name, such as `mask_token`.

        Raises:
            InputError: a name is unknown, or the tokenizer is of a kind that `tokenizer.json` does not describe or has
                a vocabulary for each side.
        """
        if unknown := set(named) - set(NAMED_TOKENS):
            raise InputError(f"Special tokens are {', '.join(NAMED_TOKENS)}. Received: {', '.join(sorted(unknown))}")
        if not self.portable or self.target is not None:
            raise InputError(
                "Tokens are added to a tokenizer with one vocabulary, which tokenizer.json describes. "
                f"Received: {type(self).__name__}" + ("" if self.target is None else " with a vocabulary for each side")
            )
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = self.backend.encode_special_tokens  # the Rust library does not copy it
        backend.add_special_tokens([AddedToken(token, normalized=False) for token in [*named.values(), *tokens]])
        other = self._replace(backend=backend, _special_tokens={**self._special_tokens, **named})
        members = [member for kind in type(self).__mro__ for member in vars(kind).items()]
        for name in (name for name, value in members if isinstance(value, cached_property)):
            vars(other).pop(name, None)
        return other

    def _replace(self, **attributes: Any) -> Self:
        """Returns a tokenizer with other attributes, which shares all others."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other

    @property
    def languages(self) -> dict[str, int]:
        """Ids of the languages of a multilingual model by their codes; empty for other models."""
        return {}

    def for_languages(self, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Returns a tokenizer for other languages.

        Args:
            src_lang: Code of the language of the input; unchanged by default.
            tgt_lang: Code of the language of the output; unchanged by default.

        Raises:
            InputError: the model does not know the language, or has no languages.
        """
        if src_lang is None and tgt_lang is None:
            return self
        raise InputError(
            "The texts of this model are not marked with a language. Expected: neither src_lang nor tgt_lang. "
            f"Received: src_lang={src_lang!r}, tgt_lang={tgt_lang!r}"
        )

    def target_settings(self, given: JsonMapping) -> dict[str, int]:
        """Returns the generation settings for the language of the output.

        Args:
            given: Other generation settings, which may name a language by the id of its token.

        Raises:
            InputError: the language of the output is missing.
        """
        return {}


def flat_ids(ids: object) -> list[int]:
    """Converts a flat sequence of ids to a list.

    Raises:
        InputError: another shape, or a negative or too large id.
    """
    try:
        array = np.atleast_1d(np.asarray(ids))
    except (TypeError, ValueError, OverflowError):  # rows of unequal length
        array = np.zeros((0, 0))
    flat = array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu")
    if not flat or (array.size and not 0 <= array.min() <= array.max() <= _MAX_ID):
        raise InputError(
            "ids must be a flat sequence of non-negative 32-bit integers (use batch_decode for several sequences). "
            f"Received: shape {array.shape}, dtype {array.dtype}"
            + (f", values {array.min()} to {array.max()}" if flat else "")
        )
    return [int(token_id) for token_id in array.tolist()]
