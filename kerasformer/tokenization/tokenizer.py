"""The tokenizer that every model and bundle of this package uses: a Rust tokenizer with a NumPy face."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tokenizers
from tokenizers import AddedToken

from kerasformer.arguments import STRING, Kind, check, integer, one_of, optional, sequence, shown
from kerasformer.errors import InputError, TokenizerError
from kerasformer.tokenization.encoding import TENSORS, EncodedRow, Encoding, shorten
from kerasformer.tokenization.families import PLAIN_INPUTS
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.truncation import (
    Side,
    Strategy,
    TruncationSettings,
    TruncationWarning,
    check_windows,
    loss_message,
)

_LARGEST_ID = 2**32 - 1
Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation = bool | Strategy | Literal["do_not_truncate"]
Words = Sequence[str]
_ROWS = Kind("several sequences of ids", sequence(Kind("a sequence of ids", lambda row: row)).convert)
# What transformers cleans up after decoding where a tokenizer asks for it.
_CLEAN_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def _token(name: str) -> property:
    def read(self: Tokenizer) -> str | None:
        return self._special_tokens.get(name)

    read.__doc__ = f"The {name.replace('_', ' ')}, `None` when there is none."
    return property(read)


def _token_id(name: str) -> property:
    def read(self: Tokenizer) -> int | None:
        token = self._special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    read.__doc__ = f"Id of the {name.replace('_', ' ')}, `None` when there is none."
    return property(read)


class Tokenizer:
    """Text to ids and back.

    Calls change nothing in it, so that threads may share one. Settings (`padding_side`, `truncation_side`) are plain
    attributes.

    Args:
        backend: A tokenizer of the `tokenizers` library, with its normalizer, template and decoder.
        special_tokens: `"pad_token"`, `"eos_token"`, `"bos_token"`, `"unk_token"`, `"cls_token"`, `"sep_token"`,
            `"mask_token"` to tokens; those that the vocabulary lacks are added to it.
        model_inputs: Arrays that the model takes, of `input_ids`, `token_type_ids`, `attention_mask`.
        model_max_length: Tokens that the model takes, `None` when unknown.
        padding_side: `"right"`, or `"left"` as decoders want it to generate.
        truncation_side: The end that truncation cuts.
        clean_up_spaces: Decoding removes the space before punctuation.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        model_inputs: Sequence[str] = PLAIN_INPUTS,
        model_max_length: int | None = None,
        padding_side: Side = "right",
        truncation_side: Side = "right",
        clean_up_spaces: bool = False,
    ) -> None:
        self.backend = backend
        self.model_max_length = model_max_length
        self.padding_side: Side = _side("padding_side", padding_side)
        self.truncation_side: Side = _side("truncation_side", truncation_side)
        self._special_tokens = dict(special_tokens or {})
        self._model_inputs = tuple(model_inputs)
        # The patterns are English words' ends: in a BPE vocabulary they would eat spaces that are text.
        self._cleans_spaces = clean_up_spaces and not isinstance(backend.model, tokenizers.models.BPE)
        backend.no_truncation()
        backend.no_padding()
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
        """Tokens of the vocabulary, added ones included; a model's embedding may have more rows."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def all_special_ids(self) -> list[int]:
        """Ids, ascending, that decoding skips when asked to."""
        return sorted(index for index, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @property
    def special_tokens(self) -> dict[str, str]:
        """Names such as `"pad_token"` to tokens; only those that exist."""
        return dict(self._special_tokens)

    def get_vocab(self) -> dict[str, int]:
        """Tokens to ids, added ones included."""
        return self.backend.get_vocab(with_added_tokens=True)

    def token_to_id(self, token: str) -> int | None:
        """Id of a token, `None` when the vocabulary lacks it."""
        try:
            return self.backend.token_to_id(check("token", token, STRING))
        except UnicodeEncodeError:  # half of a surrogate pair is in no vocabulary
            return None

    def id_to_token(self, token_id: int) -> str | None:
        """Token of an id as the vocabulary spells it, `None` when there is none."""
        index = check("token_id", token_id, integer())
        return self.backend.id_to_token(index) if 0 <= index <= _LARGEST_ID else None

    def num_special_tokens(self, pair: bool = False) -> int:
        """Special tokens that are put around one text, or around a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    def __repr__(self) -> str:
        special = ", ".join(f"{name}={token!r}" for name, token in self._special_tokens.items())
        return (
            f"Tokenizer({type(self.backend.model).__name__}, vocab_size={self.vocab_size}, "
            f"model_max_length={self.model_max_length}, {special})"
        )

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[Words],
        text_pair: str | Sequence[str | None] | Sequence[Words | None] | None = None,
        *,
        padding: Padding = True,
        truncation: Truncation = False,
        max_length: int | None = None,
        stride: int = 0,
        return_overflowing_tokens: bool = False,
        is_split_into_words: bool = False,
        add_special_tokens: bool = True,
        padding_side: Side | None = None,
        pad_to: int | Sequence[int] | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: Literal["np", "tf", "jax", "pt"] | None = None,
        return_offsets_mapping: bool = False,
        return_special_tokens_mask: bool = False,
    ) -> Encoding:
        """Tokenizes a text or a batch of `B` texts into arrays `(B, T)`.

        Args:
            text: One text (a batch of one) or several.
            text_pair: Second texts, as many as first ones; `None` among them leaves a text alone.
            padding: `True` or `"longest"` pads to the longest row, `"max_length"` to `max_length`; `False` or
                `"do_not_pad"` demands equal lengths.
            truncation: `True` (the longer text of a pair gives way first), `"only_first"`, `"only_second"` or
                `"longest_first"` cuts to `max_length`. What is cut is lost, with a `TruncationWarning`, unless
                `return_overflowing_tokens` asks for it.
            max_length: Tokens of a row, special tokens included; the model's length where not given.
            stride: Tokens that neighbouring windows share.
            return_overflowing_tokens: A text that is too long becomes several rows, which `overflow_to_sample` tells
                apart.
            is_split_into_words: A text is a list of words, as labelled words have it; `word_ids` counts them.
            add_special_tokens: Surrounds texts as the model expects.
            padding_side: Instead of the tokenizer's own.
            pad_to: A width, or widths that a static graph has: the smallest that holds the longest row is taken.
                Rows longer than all of them stay as they are.
            pad_to_multiple_of: Rounds the width up.
            return_tensors: Whose tensors `encoding["input_ids"]` gives; NumPy's by default, which every Keras backend
                takes. Attributes such as `encoding.input_ids` are NumPy's in any case.
            return_offsets_mapping: `"offset_mapping"` is among the names of the result.
            return_special_tokens_mask: `"special_tokens_mask"` is, too.

        Raises:
            InputError: no texts, something else than text, or settings that contradict each other.
            MissingExtraError: the package of `return_tensors` is not installed (when a tensor is read).
        """
        tensors = check("return_tensors", return_tensors or "np", one_of(*TENSORS))
        inputs = _pair_up(text, text_pair, is_split_into_words)
        cut = self._cut(truncation, max_length, stride, return_overflowing_tokens, text_pair is not None)
        rows = [
            EncodedRow(tokens, None, sample)
            for sample, tokens in enumerate(self._encode_batch(inputs, add_special_tokens, is_split_into_words))
        ]
        if cut is not None:
            rows, lost = shorten(rows, cut, return_overflowing_tokens)
            if lost:
                warnings.warn(loss_message(lost, cut.limit), TruncationWarning, stacklevel=2)
        width = self._width([len(row) for row in rows], padding, max_length, pad_to)
        if pad_to_multiple_of is not None:
            width += -width % check("pad_to_multiple_of", pad_to_multiple_of, integer(1))
        padded = any(len(row) < width for row in rows)
        side = self.padding_side if padding_side is None else padding_side
        asked = {"offset_mapping": return_offsets_mapping, "special_tokens_mask": return_special_tokens_mask}
        return Encoding(
            rows,
            width=width,
            padding_side=_side("padding_side", side),
            pad_id=self._padding_id() if padded else 0,
            model_inputs=self._model_inputs,
            further=tuple(name for name, wanted in asked.items() if wanted),
            tensors=tensors,
        )

    def tokenize(self, text: str) -> list[str]:
        """Tokens of one text as the vocabulary spells them, without special tokens around it."""
        return self._encode_batch(_pair_up(text, None), add_special_tokens=False)[0].tokens

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of one text, untruncated."""
        return self._encode_batch(_pair_up(text, None), add_special_tokens)[0].ids

    def convert_ids_to_tokens(
        self, ids: int | Sequence[int] | np.ndarray, skip_special_tokens: bool = False
    ) -> str | None | list[str | None]:
        """Tokens of ids as the vocabulary spells them; `None` where there is none.

        Args:
            ids: An id, or a flat sequence of them.
            skip_special_tokens: Leaves those of `all_special_ids` out of a sequence.

        Raises:
            InputError: not a flat sequence of ids, or a negative one.
        """
        if isinstance(ids, Integral):
            return self.id_to_token(int(ids))
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return [self.id_to_token(token_id) for token_id in _flat_ids(ids) if token_id not in skipped]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | None | list[int | None]:
        """Ids of tokens; of one that the vocabulary lacks that of the unknown token, `None` without such a token.

        Raises:
            InputError: something else than text.
        """
        if isinstance(tokens, str):
            found = self.token_to_id(tokens)
            return self.unk_token_id if found is None else found
        if isinstance(tokens, bytes) or not isinstance(tokens, Iterable):
            raise InputError(f"tokens must be a token or a list of them. Received: {shown(tokens)}")
        return [self.convert_tokens_to_ids(check("a token", token, STRING)) for token in tokens]  # type: ignore[misc]

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Text of ids; ids that the vocabulary lacks are left out.

        Raises:
            InputError: not a flat sequence of ids, or a negative one.
        """
        text = self.backend.decode(_flat_ids(ids), skip_special_tokens=skip_special_tokens)
        return _clean_up(text) if self._cleans_spaces else text

    def batch_decode(self, ids: Sequence[Sequence[int]] | np.ndarray, skip_special_tokens: bool = False) -> list[str]:
        """Texts of several sequences of ids."""
        return [self.decode(row, skip_special_tokens) for row in check("ids", ids, _ROWS)]

    def streamer(self, skip_special_tokens: bool = True) -> TextStream:
        """A decoder for ids that come one after another: `put(ids)` returns new text, `end()` the rest."""
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return TextStream(
            decode=self.decode,
            token=lambda token_id: None if token_id in skipped else self.id_to_token(token_id),
            byte_fallback=self.token_to_id("<0x0A>") is not None,
            cleans_spaces=self._cleans_spaces,
        )

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`.

        `transformers` loads them as they are, 4.57 and 5 alike, as does `load_tokenizer`.

        Raises:
            TokenizerError: the folder cannot be written to.
        """
        folder = Path(folder)
        named = set(self._special_tokens.values())
        added = self.backend.get_added_tokens_decoder()
        further = [added[index].content for index in self.all_special_ids if added[index].content not in named]
        special: dict[str, Any] = dict(self._special_tokens)
        if further:
            special["additional_special_tokens"] = further
        config: dict[str, Any] = {
            # The class of transformers 4 that takes tokenizer.json at its word; 5 still knows it.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": self._cleans_spaces,
            "model_input_names": list(self._model_inputs),
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            **special,
        }
        splitter = self.backend.pre_tokenizer
        if isinstance(splitter, tokenizers.pre_tokenizers.ByteLevel) and splitter.add_prefix_space:
            # transformers 4 would otherwise switch off what tokenizer.json says.
            config["add_prefix_space"] = True
        if self.model_max_length is not None:
            config["model_max_length"] = self.model_max_length
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / "tokenizer.json", self.backend.to_str(pretty=True))
            _write(folder / "tokenizer_config.json", json.dumps(config, indent=2, ensure_ascii=False))
            _write(folder / "special_tokens_map.json", json.dumps(special, indent=2, ensure_ascii=False))
        except OSError as error:
            raise TokenizerError(f"the tokenizer cannot be written to {folder}: {error}") from error

    def _encode_batch(
        self, inputs: list[Any], add_special_tokens: bool, split: bool = False
    ) -> list[tokenizers.Encoding]:
        try:
            return self.backend.encode_batch(inputs, is_pretokenized=split, add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise InputError(
                "a text holds half of a surrogate pair, which is no Unicode text. "
                "Decode its bytes with errors='replace' first"
            ) from error
        except Exception as error:  # the Rust library raises nothing narrower
            raise TokenizerError(f"this tokenizer cannot read a text: {error}. Is its vocabulary complete?") from error

    def _cut(
        self, truncation: Truncation, max_length: int | None, stride: int, windows: bool, has_pairs: bool
    ) -> TruncationSettings | None:
        kinds = one_of(True, False, *get_args(Strategy), "do_not_truncate")
        truncation = check("truncation", truncation, kinds)
        check("max_length", max_length, optional(integer(1)))
        check("stride", stride, integer(0))
        if truncation in (False, "do_not_truncate"):
            if windows or stride:
                raise InputError(
                    "windows come from truncation. Received: return_overflowing_tokens or stride without it"
                )
            return None
        strategy: Any = "longest_first" if truncation is True else truncation
        limit = self.model_max_length if max_length is None else max_length
        if limit is None:
            raise InputError("truncation needs a max_length: this tokenizer knows no length of its own")
        cut = TruncationSettings(limit, strategy, stride, _side("truncation_side", self.truncation_side))
        if windows:
            check_windows(cut, has_pairs)
        return cut

    def _width(
        self, lengths: list[int], padding: Padding, max_length: int | None, pad_to: int | Sequence[int] | None
    ) -> int:
        padding = check("padding", padding, one_of(True, False, "longest", "max_length", "do_not_pad"))
        longest = max(lengths)
        if padding in (False, "do_not_pad"):
            if min(lengths) != longest:
                raise InputError(
                    "rows of an array have one length: padding=True brings them to it. "
                    f"Received: padding=False and texts of {min(lengths)} to {longest} tokens"
                )
            return longest
        widths = [pad_to] if isinstance(pad_to, Integral) else [] if pad_to is None else pad_to
        widths = list(check("pad_to", widths, sequence(integer(1))))
        if padding == "max_length":
            limit = self.model_max_length if max_length is None else max_length
            if limit is None:
                raise InputError("padding='max_length' needs max_length: this tokenizer knows no length of its own")
            widths.append(limit)
        return min((width for width in widths if width >= longest), default=longest)

    def _padding_id(self) -> int:
        """GPT-2 has no padding token: any id will do under a mask of 0, and its end token is the custom."""
        token_id = self.eos_token_id if self.pad_token_id is None else self.pad_token_id
        if token_id is None:
            raise InputError(
                "texts of unequal lengths need a padding token, and this tokenizer has neither that nor an end token. "
                "Give one text at a time, or add pad_token to tokenizer_config.json"
            )
        return token_id


def _flat_ids(ids: Any) -> list[int]:
    try:
        array = np.atleast_1d(np.asarray(ids))
    except (TypeError, ValueError, OverflowError):  # rows of unequal length
        array = np.zeros((0, 0))
    flat = array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu")
    if not flat or (array.size and not 0 <= array.min() <= array.max() <= _LARGEST_ID):
        raise InputError(
            "ids must be a flat sequence of 32-bit integers of at least 0 (batch_decode takes several). "
            f"Received: shape {array.shape}, dtype {array.dtype}"
            + (f", values {array.min()} to {array.max()}" if flat else "")
        )
    return [int(token_id) for token_id in array.tolist()]


def _pair_up(text: Any, pair: Any, split: bool = False) -> list[Any]:
    """Texts, or pairs of texts, as the Rust library takes them.

    Args:
        text: A text or several; each a list of words if `split`.
        pair: Second texts.
        split: Texts are lists of words.

    Raises:
        InputError: no texts, something else than text, or first and second texts of different number.
    """
    read = _lists_of_words if split else _texts
    firsts, single = read("text", text)
    if pair is None:
        return firsts
    given = [second for second in pair if second is not None] if isinstance(pair, list | tuple) else pair
    seconds, single_pair = read("text_pair", given)
    if isinstance(pair, list | tuple) and len(given) < len(pair):
        rest = iter(seconds)
        seconds = [None if second is None else next(rest) for second in pair]
    if single != single_pair or len(firsts) != len(seconds):
        raise InputError(f"text and text_pair must come in equal number. Received: {len(firsts)} and {len(seconds)}")
    pairs = zip(firsts, seconds, strict=True)
    return [first if second is None else (first, second) for first, second in pairs]


def _texts(name: str, value: Any, what: str = "a str or a list of them") -> tuple[list[Any], bool]:
    """The texts, and whether there is only one."""
    single = isinstance(value, str)
    texts = [value] if single else value
    if isinstance(texts, (list, tuple, np.ndarray)) and np.ndim(texts) and all(isinstance(row, str) for row in texts):
        if len(texts) == 0:
            raise InputError(f"{name} must hold at least one text. Received: an empty batch")
        return [str(text) for text in texts], single
    kinds = {type(item).__name__ for item in texts} if isinstance(texts, (list, tuple)) else {type(texts).__name__}
    raise InputError(f"{name} must be {what}. Received: {', '.join(sorted(kinds))}")


def _lists_of_words(name: str, value: Any) -> tuple[list[Any], bool]:
    """As `_texts`, where each text is a list of words."""
    what = "a list of words or a list of such lists, for is_split_into_words=True"
    several = isinstance(value, (list, tuple)) and len(value) > 0 and not isinstance(value[0], str)
    rows = value if several else [value]
    if any(isinstance(row, str) for row in rows):
        raise InputError(f"{name} must be {what}. Received: str")
    return [_texts(name, words, what)[0] for words in rows], not several


def _side(name: str, value: str) -> Side:
    if value not in get_args(Side):
        raise InputError(f"{name} must be 'left' or 'right'. Received: {value!r}")
    return value  # type: ignore[return-value]


def _clean_up(text: str) -> str:
    for pattern in _CLEAN_UP:
        text = text.replace(pattern, pattern.strip(" "))
    return text


def _write(path: Path, text: str) -> None:
    """Writes aside and moves into place, so that no half file is ever seen."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text + "\n", encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
