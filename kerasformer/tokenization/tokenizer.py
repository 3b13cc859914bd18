"""The class `Tokenizer`, which wraps a tokenizer of the Rust library `tokenizers`.

Called by pipelines: `__call__` for the input, `decode` for the output.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, cast

import numpy as np
import tokenizers

from kerasformer.basics.arguments import BOOLEAN, Kind, check, integer, one_of, optional, sequence, shown
from kerasformer.errors import InputError, TokenizerError
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization.byte_level import to_bytes
from kerasformer.tokenization.chat_templates import ChatTemplates
from kerasformer.tokenization.chat_templates.files import listed
from kerasformer.tokenization.chats import ChatTokenizer
from kerasformer.tokenization.dropped import check_dropped
from kerasformer.tokenization.encoding import TENSORS, EncodedRow, Encoding, truncate
from kerasformer.tokenization.families import PLAIN_INPUTS
from kerasformer.tokenization.loading import TARGET_FILE, load
from kerasformer.tokenization.padding import Padding, padded_width
from kerasformer.tokenization.saving import write_files
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.texts import pair_up
from kerasformer.tokenization.truncation import (
    Side,
    Truncation,
    TruncationWarning,
    checked_side,
    loss_message,
    truncation_settings,
)
from kerasformer.tokenization.vocabulary import flat_ids
from kerasformer.tokenization.words import SpacedEncoding, WordRule

Words = Sequence[str]
_ROWS = Kind("several sequences of ids", sequence(Kind("a sequence of ids", lambda row: row)).convert)
# Patterns whose space transformers removes after decoding if `clean_up_tokenization_spaces` is set.
_CLEAN_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class Tokenizer(ChatTokenizer):
    """Converts text to token ids and back.

    Calls do not change the tokenizer, so that several threads may share it. The attributes `padding_side` and
    `truncation_side` can be changed.

    Args:
        backend: Tokenizer of the `tokenizers` library, with normalizer, template and decoder.
        special_tokens: Mapping from `"pad_token"`, `"eos_token"`, `"bos_token"`, `"unk_token"`, `"cls_token"`,
            `"sep_token"` and `"mask_token"` to tokens; missing tokens are added to the vocabulary.
        model_inputs: Names of the inputs of the model: `input_ids`, `token_type_ids`, `attention_mask`.
        model_max_length: Maximum number of tokens of the model; `None` if it is unknown.
        padding_side: `"right"`, or `"left"` as required for generation with decoders.
        truncation_side: Side at which truncation removes tokens.
        clean_up_spaces: Whether decoding removes spaces before punctuation.
        chat_template: Jinja template that converts a conversation to text, or several templates by name.
        target: Tokenizer of the texts that the model writes, if it is another one (Marian); optional.
        skip_incomplete: Whether decoding omits bytes that are not valid UTF-8 (ByT5), for tokens that represent bytes;
            by default they become U+FFFD.
        dropped_characters: Characters that were removed from the vocabulary, see `prune_vocabulary`; texts that contain
            them are refused.
        split_special_tokens: Whether names of special tokens in a text, such as `<s>`, are text like any other. As in
            `transformers`, this includes those that a chat template writes.

    Attributes:
        portable: Whether `tokenizer.json` describes the tokenizer, so that other libraries can load it.
        constants: Further inputs of the model that have the same value for all tokens, such as the language.
    """

    target: Tokenizer | None

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
        chat_template: ChatTemplates = None,
        target: Tokenizer | None = None,
        skip_incomplete: bool = False,
        dropped_characters: str = "",
        split_special_tokens: bool = False,
    ) -> None:
        if not isinstance(backend, tokenizers.Tokenizer):
            raise _not_loaded_here(f"Tokenizer({shown(backend)})")
        super().__init__(backend, special_tokens)
        self.target = target
        self._skips_incomplete = skip_incomplete
        self.dropped_characters = frozenset(dropped_characters)
        self.chat_template = chat_template
        self.model_max_length = model_max_length
        self.padding_side: Side = checked_side("padding_side", padding_side)
        self.truncation_side: Side = checked_side("truncation_side", truncation_side)
        self._model_inputs = tuple(model_inputs)
        self.constants: dict[str, int] = {}
        # In BPE vocabularies, spaces are part of the text, and the clean-up would remove them.
        self._cleans_spaces = clean_up_spaces and not isinstance(backend.model, tokenizers.models.BPE)
        backend.no_truncation()
        backend.no_padding()
        self.split_special_tokens = split_special_tokens
        if split_special_tokens:
            backend.encode_special_tokens = True

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        if self.split_special_tokens:  # the Rust library does not copy it
            self.backend.encode_special_tokens = True

    @staticmethod
    def load(source: Any, *, model_type: str | None = None) -> Tokenizer:
        """Loads the tokenizer of a preset, a folder, a hub id or a GGUF file; of its base model for an adapter.

        `tokenizer.json` is used if it exists. Otherwise the tokenizer is built from `vocab.txt` (WordPiece),
        `vocab.json` and `merges.txt` or `encoder.json` and `vocab.bpe` (byte-level BPE; BPE of words for the first GPT
        and CTRL; Moses and BPE for XLM, with the extra `xlm`), `spiece.model`, `spm.model` or `sentencepiece.bpe.model`
        (Unigram; BPE for NLLB), `vocab.json` and `sentencepiece.bpe.model` (M2M-100), `source.spm`, `target.spm` and
        `vocab.json` (Marian), or `vocab.txt` and `bpe.codes` (BERTweet), with the defaults of the class that
        `tokenizer_config.json` or `config.json` specifies; the class of ByT5 needs no vocabulary. Only files with these
        names in the folder are read, and no code of the folder is executed. Marian's own files take precedence over
        `tokenizer.json`, as in `transformers`.

        Args:
            source: A preset, a folder or a hub id; a GGUF file of llama.cpp, with the extra `gguf`; or a tokenizer of
                `transformers`.
            model_type: Architecture, such as `"bert"`, if `config.json` does not specify it.

        Raises:
            SourceError: the source does not exist.
            TokenizerError: the folder contains no tokenizer, or one that is damaged or unsupported.
        """
        return load(source, model_type, Tokenizer)

    @classmethod
    def from_pretrained(cls, source: Any = ..., *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an `InputError` that names `Tokenizer.load`."""
        raise _not_loaded_here(f"{cls.__name__}.from_pretrained({shown(source)})")

    @property
    def writer(self) -> Tokenizer:
        """Tokenizer of the texts that the model writes; this one, unless the two sides differ."""
        return self if self.target is None else self.target

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
            text: A text or a list of texts.
            text_pair: Second text or texts, as many as first texts; a text whose second text is `None` has no pair.
            padding: `True` or `"longest"` pads to the longest row, `"max_length"` to `max_length`, which no row may
                exceed; `False` or `"do_not_pad"` requires rows of equal length.
            truncation: `"only_first"`, `"only_second"`, or `True` or `"longest_first"` (which shortens the longer text
                of a pair first) truncates to `max_length`. Unless `return_overflowing_tokens` is set, the removed
                tokens are lost, with a `TruncationWarning`.
            max_length: Maximum number of tokens of a row, including special tokens, for `truncation` and
                `padding="max_length"`; by default that of the model.
            stride: Number of tokens that neighbouring chunks share.
            return_overflowing_tokens: Whether to split texts that are too long into chunks, each a row of the result;
                `overflow_to_sample` contains the index of the text of each row.
            is_split_into_words: Whether each text is a list of words; `word_ids` then refers to these words. As in
                `transformers`, most byte-level tokenizers (GPT-2, LLaMA 3, ByT5) and Gemma's then mark no spaces, so
                that the tokens are not those of the text with spaces between these words.
            add_special_tokens: Whether to add special tokens.
            padding_side: Overrides the attribute `padding_side`.
            pad_to: A length or several lengths, such as those of a static graph; the result has the smallest one that
                is at least the length of the longest row. If all are shorter, they are ignored.
            pad_to_multiple_of: Rounds the length up to a multiple of this number.
            return_tensors: Framework of the tensors in the result; by default NumPy, which Keras accepts with all
                backends.
            return_offsets_mapping: Whether to include `"offset_mapping"` in the result.
            return_special_tokens_mask: Whether to include `"special_tokens_mask"` in the result.

        Raises:
            InputError: no texts, values that are not texts, or arguments that contradict each other or have no effect.
            MissingExtraError: the framework of `return_tensors` is not installed.
        """
        check("is_split_into_words", is_split_into_words, BOOLEAN)
        check("add_special_tokens", add_special_tokens, BOOLEAN)
        check("return_overflowing_tokens", return_overflowing_tokens, BOOLEAN)
        tensors = check("return_tensors", return_tensors or "np", one_of(*TENSORS))
        max_length = check("max_length", max_length, optional(integer(1)))
        limit = self.model_max_length if max_length is None else max_length
        inputs = pair_up(text, text_pair, is_split_into_words)
        settings = truncation_settings(
            truncation, limit, stride, self.truncation_side, return_overflowing_tokens, has_pairs=text_pair is not None
        )
        if max_length is not None and settings is None and padding != "max_length":
            raise InputError(
                "max_length has no effect without truncation or padding='max_length'. Received: "
                f"max_length={max_length}. Set truncation=True to truncate to it, or padding='max_length' to pad to it"
            )
        rows = [
            EncodedRow(tokens, None, sample)
            for sample, tokens in enumerate(self._encode_batch(inputs, add_special_tokens, is_split_into_words))
        ]
        if settings is not None:
            rows, losses = truncate(rows, settings, return_overflowing_tokens)
            if losses:
                warnings.warn(loss_message(losses, settings.limit), TruncationWarning, stacklevel=2)
        width = padded_width([len(row) for row in rows], padding, limit, pad_to, pad_to_multiple_of)
        padded = any(len(row) < width for row in rows)
        side = self.padding_side if padding_side is None else padding_side
        extra = {
            "offset_mapping": check("return_offsets_mapping", return_offsets_mapping, BOOLEAN),
            "special_tokens_mask": check("return_special_tokens_mask", return_special_tokens_mask, BOOLEAN),
        }
        return Encoding(
            rows,
            width=width,
            padding_side=checked_side("padding_side", side),
            pad_id=self._padding_id if padded else 0,
            model_inputs=self._model_inputs,
            constants=self.constants,
            extra_names=tuple(name for name, requested in extra.items() if requested),
            tensors=tensors,
        )

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of one text as they appear in the vocabulary, without special tokens."""
        return self._encode_batch(pair_up(text, None), add_special_tokens=False)[0].tokens

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the ids of one text, without truncation."""
        return self._encode_batch(pair_up(text, None), add_special_tokens)[0].ids

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = False) -> str:
        """Converts ids to text; ids that are not in the vocabulary are skipped.

        Raises:
            InputError: not a flat sequence of ids, or a negative id.
        """
        if self._skips_incomplete:
            return self._decode_bytes(flat_ids(ids), skip_special_tokens)
        text = self.backend.decode(flat_ids(ids), skip_special_tokens=skip_special_tokens)
        return _clean_up(text) if self._cleans_spaces else text

    def _decode_bytes(self, ids: list[int], skip_special_tokens: bool) -> str:
        """Converts ids of bytes to text, without bytes that are not valid UTF-8."""
        added, parts = self._added_tokens, []
        for token_id in ids:
            if token_id not in added:
                parts.append(to_bytes(self.id_to_token(token_id) or ""))
            elif not (skip_special_tokens and added[token_id].special):
                parts.append(added[token_id].content.encode())
        return b"".join(parts).decode(errors="ignore")

    def batch_decode(self, ids: Sequence[Sequence[int]] | np.ndarray, skip_special_tokens: bool = False) -> list[str]:
        """Converts several sequences of ids to texts."""
        return [self.decode(row, skip_special_tokens) for row in check("ids", ids, _ROWS)]

    def with_clean_up(self, clean_up_spaces: bool) -> Self:
        """Returns a tokenizer whose decoding removes, or keeps, spaces before punctuation."""
        return self._replace(_cleans_spaces=check("clean_up_spaces", clean_up_spaces, BOOLEAN))

    def for_bundles(self) -> Tokenizer:
        """Returns the tokenizer without files that only checkpoints contain; by default itself."""
        return self

    def streamer(self, skip_special_tokens: bool = True) -> TextStream:
        """Returns an incremental decoder: `put(ids)` returns new text, `end()` the rest."""
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return TextStream(
            decode=self.decode,
            token=lambda token_id: None if token_id in skipped else self.id_to_token(token_id),
            byte_fallback=self.token_to_id("<0x0A>") is not None,
            cleans_spaces=self._cleans_spaces,
        )

    def keep_inputs(self, names: Sequence[str]) -> None:
        """Makes the tokenizer return only these of the inputs that it returns so far."""
        self._model_inputs = tuple(name for name in self._model_inputs if name in names)

    def convert_to_lower_case(self) -> None:
        """Converts all texts to lower case first, unless the tokenizer has such a rule."""
        normalizer, lowercase = self.backend.normalizer, tokenizers.normalizers.Lowercase
        rules: list[Any] = [] if normalizer is None else [normalizer]
        if isinstance(normalizer, tokenizers.normalizers.Sequence):
            rules = [normalizer[index] for index in range(len(normalizer))]
        if not any(isinstance(rule, lowercase) for rule in rules):
            self.backend.normalizer = tokenizers.normalizers.Sequence([lowercase(), *rules])

    def add_no_special_tokens(self) -> None:
        """Adds no special tokens to texts from now on."""
        self.backend.post_processor = None

    def check_prompt(self, ids: Sequence[int]) -> None:
        """Checks that a model can continue a prompt; all prompts by default.

        Args:
            ids: Ids of the prompt, without padding.

        Raises:
            InputError: the model was trained with other starts of texts, such as the control codes of CTRL.
        """

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`.

        A tokenizer that is not `portable` has other files instead of `tokenizer.json`. Both `Tokenizer.load` and
        `transformers` (4.57 and 5) can load the files.

        Raises:
            TokenizerError: the folder cannot be written to.
        """
        special: JsonObject = dict(self._special_tokens)
        if unnamed := self._unnamed_special_tokens():
            special["additional_special_tokens"] = unnamed
        optional_settings = {
            "errors": "ignore" if self._skips_incomplete else None,  # as Python calls it
            "model_max_length": self.model_max_length,
            "split_special_tokens": self.split_special_tokens or None,
            "dropped_characters": "".join(sorted(self.dropped_characters)) or None,
            "chat_template": listed(self.chat_template),
        }
        config: JsonObject = {
            "clean_up_tokenization_spaces": self._cleans_spaces,
            "model_input_names": list(self._model_inputs),
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            **special,
            **self._class_settings(),
            **{name: value for name, value in optional_settings.items() if value is not None},
        }
        settings = {"tokenizer_config.json": config, "special_tokens_map.json": special}
        write_files(Path(folder), self._vocabulary_files(), settings)

    def _vocabulary_files(self) -> Mapping[str, str | bytes]:
        """Returns the content of the files with the vocabulary and the rules, by name."""
        files = {"tokenizer.json": self.backend.to_str(pretty=True)}
        return files if self.target is None else {**files, TARGET_FILE: self.target.backend.to_str(pretty=True)}

    def _class_settings(self) -> JsonObject:
        """Returns the tokenizer class in Hugging Face's format, and its own settings."""
        # The class of transformers 4 without defaults of its own, which transformers 5 still supports.
        settings: JsonObject = {"tokenizer_class": "PreTrainedTokenizerFast"}
        splitter = self.backend.pre_tokenizer
        if isinstance(splitter, tokenizers.pre_tokenizers.ByteLevel) and splitter.add_prefix_space:
            # Otherwise transformers 4 would override the setting in tokenizer.json.
            settings["add_prefix_space"] = True
        return settings

    def _encode_batch(
        self, inputs: list[tokenizers.EncodeInput], add_special_tokens: bool, split: bool = False
    ) -> list[tokenizers.Encoding]:
        encoded = self._encode(inputs, add_special_tokens, split)
        if split or not (rule := self._word_rule).needs_spaces:
            return encoded
        return [
            cast(tokenizers.Encoding, SpacedEncoding(each, texts, rule, self._added_tokens))
            for each, texts in zip(
                encoded, (each if isinstance(each, tuple) else (each,) for each in inputs), strict=True
            )
        ]

    @cached_property
    def _word_rule(self) -> WordRule:
        return WordRule(self.backend)

    def _encode(
        self, inputs: list[tokenizers.EncodeInput], add_special_tokens: bool, split: bool
    ) -> list[tokenizers.Encoding]:
        """Encodes texts with the words of the pre-tokenizer, or lists of words."""
        try:
            encoded = self.backend.encode_batch(inputs, is_pretokenized=split, add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise InputError(
                "a text contains a lone surrogate, which is not valid Unicode. "
                "Decode its bytes with errors='replace' first"
            ) from error
        except Exception as error:  # the Rust library raises no narrower class
            raise TokenizerError(
                f"this tokenizer cannot tokenize a text: {error}. Is its vocabulary complete?"
            ) from error
        if self.dropped_characters:
            for given, encoding in zip(inputs, encoded, strict=True):
                check_dropped(self, self.dropped_characters, given, encoding, split)
        return encoded


def _not_loaded_here(received: str) -> InputError:
    return InputError(
        "The tokenizer of a folder, a preset or a hub id is loaded by kerasformer.Tokenizer.load(source). Received: "
        f"{received}"
    )


def _clean_up(text: str) -> str:
    for pattern in _CLEAN_UP:
        text = text.replace(pattern, pattern.strip(" "))
    return text
