"""The tokenizer that every model and bundle of this package uses: a Rust tokenizer with a NumPy face."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tokenizers
from tokenizers import AddedToken

from kerasformer.errors import InputError, TokenizerError
from kerasformer.tokenization.encoding import Encoding, Row, shorten
from kerasformer.tokenization.families import PLAIN_INPUTS
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.truncation import Cut, Side, Strategy, TruncationWarning, check_windows, loss_message

_LARGEST_ID = 2**32 - 1
Padding = bool | Literal["max_length"]
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
        return self.backend.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Token of an id as the vocabulary spells it, `None` when there is none."""
        return self.backend.id_to_token(int(token_id)) if 0 <= token_id <= _LARGEST_ID else None

    def num_special_tokens(self, pair: bool = False) -> int:
        """Special tokens that are put around one text, or around a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    def __call__(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        *,
        padding: Padding = True,
        truncation: bool | Strategy = False,
        max_length: int | None = None,
        stride: int = 0,
        return_overflowing: bool = False,
        add_special_tokens: bool = True,
        padding_side: Side | None = None,
        pad_to: int | Sequence[int] | None = None,
    ) -> Encoding:
        """Tokenizes a text or a batch of `B` texts into arrays `(B, T)`.

        Args:
            text: One text (a batch of one) or several.
            pair: Second texts, as many as first ones.
            padding: `True` pads to the longest row, `"max_length"` to `max_length`; `False` demands equal lengths.
            truncation: `True` (the longer text of a pair gives way first), `"only_first"`, `"only_second"` or
                `"longest_first"` cuts to `max_length`. What is cut is lost, with a `TruncationWarning`, unless
                `return_overflowing` asks for it.
            max_length: Tokens of a row, special tokens included; the model's length where not given.
            stride: Tokens that neighbouring windows share.
            return_overflowing: A text that is too long becomes several rows, which `overflow_to_sample` tells apart.
            add_special_tokens: Surrounds texts as the model expects.
            padding_side: Instead of the tokenizer's own.
            pad_to: A width, or widths that a static graph has: the smallest that holds the longest row is taken.
                Rows longer than all of them stay as they are.

        Raises:
            InputError: no texts, something else than text, or settings that contradict each other.
        """
        inputs = _pair_up(text, pair)
        cut = self._cut(truncation, max_length, stride, return_overflowing, pair is not None)
        rows = [
            Row(tokens, None, sample) for sample, tokens in enumerate(self._encode_batch(inputs, add_special_tokens))
        ]
        if cut is not None:
            rows, lost = shorten(rows, cut, return_overflowing)
            if lost:
                warnings.warn(loss_message(lost, cut.limit), TruncationWarning, stacklevel=2)
        width = self._width([len(row) for row in rows], padding, max_length, pad_to)
        padded = any(len(row) < width for row in rows)
        side = self.padding_side if padding_side is None else padding_side
        return Encoding(
            rows,
            width=width,
            padding_side=_side("padding_side", side),
            pad_id=self._padding_id() if padded else 0,
            model_inputs=self._model_inputs,
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of one text, untruncated."""
        return self._encode_batch(_pair_up(text, None), add_special_tokens)[0].ids

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Text of ids; ids that the vocabulary lacks are left out.

        Raises:
            InputError: not a flat sequence of ids, or a negative one.
        """
        array = np.atleast_1d(np.asarray(ids))
        flat = array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iu")
        if not flat or (array.size and not 0 <= array.min() <= array.max() <= _LARGEST_ID):
            raise InputError(
                "ids must be a flat sequence of 32-bit integers of at least 0 (batch_decode takes several). "
                f"Received: shape {array.shape}, dtype {array.dtype}"
                + (f", values {array.min()} to {array.max()}" if flat else "")
            )
        text = self.backend.decode(array.tolist(), skip_special_tokens=skip_special_tokens)
        return _clean_up(text) if self._cleans_spaces else text

    def batch_decode(self, ids: Sequence[Sequence[int]] | np.ndarray, skip_special_tokens: bool = False) -> list[str]:
        """Texts of several sequences of ids."""
        return [self.decode(row, skip_special_tokens) for row in ids]

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

    def _encode_batch(self, inputs: list[Any], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        try:
            return self.backend.encode_batch(inputs, add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise InputError(
                "a text holds half of a surrogate pair, which is no Unicode text. "
                "Decode its bytes with errors='replace' first"
            ) from error
        except Exception as error:  # the Rust library raises nothing narrower
            raise TokenizerError(f"this tokenizer cannot read a text: {error}. Is its vocabulary complete?") from error

    def _cut(
        self, truncation: bool | Strategy, max_length: int | None, stride: int, windows: bool, has_pairs: bool
    ) -> Cut | None:
        if truncation is False:
            if windows or stride:
                raise InputError("windows come from truncation. Received: return_overflowing or stride without it")
            return None
        strategy = "longest_first" if truncation is True else truncation
        if strategy not in get_args(Strategy):
            raise InputError(
                f"truncation must be True, False or one of {', '.join(get_args(Strategy))}. Received: {truncation!r}"
            )
        limit = self.model_max_length if max_length is None else max_length
        if limit is None or limit < 1 or stride < 0:
            raise InputError(
                "truncation needs a max_length of at least 1, and a stride of at least 0; this tokenizer knows no "
                f"length of its own. Received: max_length={max_length}, stride={stride}"
            )
        cut = Cut(limit, strategy, stride, _side("truncation_side", self.truncation_side))
        if windows:
            check_windows(cut, has_pairs)
        return cut

    def _width(
        self, lengths: list[int], padding: Padding, max_length: int | None, pad_to: int | Sequence[int] | None
    ) -> int:
        longest = max(lengths)
        if padding is False:
            if min(lengths) != longest:
                raise InputError(
                    "rows of an array have one length: padding=True brings them to it. "
                    f"Received: padding=False and texts of {min(lengths)} to {longest} tokens"
                )
            return longest
        if padding not in (True, "max_length"):
            raise InputError(f"padding must be True, False or 'max_length'. Received: {padding!r}")
        widths = [pad_to] if isinstance(pad_to, int) else list(pad_to or ())
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


def _pair_up(text: str | Sequence[str], pair: str | Sequence[str] | None) -> list[Any]:
    """Texts, or pairs of texts, as the Rust library takes them.

    Raises:
        InputError: no texts, something else than text, or first and second texts of different number.
    """
    firsts = _texts("text", text)
    if pair is None:
        return firsts
    seconds = _texts("pair", pair)
    if isinstance(text, str) != isinstance(pair, str) or len(firsts) != len(seconds):
        raise InputError(f"text and pair must come in equal number. Received: {len(firsts)} and {len(seconds)}")
    return list(zip(firsts, seconds, strict=True))


def _texts(name: str, value: str | Sequence[str]) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, (list, tuple, np.ndarray)) and all(isinstance(text, str) for text in texts):
        if len(texts) == 0:
            raise InputError(f"{name} must hold at least one text. Received: an empty batch")
        return [str(text) for text in texts]
    kinds = {type(item).__name__ for item in texts} if isinstance(texts, (list, tuple)) else {type(texts).__name__}
    raise InputError(f"{name} must be a str or a list of them. Received: {', '.join(sorted(kinds))}")


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
