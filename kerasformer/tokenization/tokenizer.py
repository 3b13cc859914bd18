"""The class `Tokenizer`, which wraps a tokenizer of the Rust library `tokenizers`."""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self, cast, get_args

import numpy as np
import tokenizers
from tokenizers import AddedToken

from kerasformer.basics.arguments import BOOLEAN, STRING, Kind, check, integer, one_of, optional, sequence, shown
from kerasformer.errors import ChatTemplateError, InputError, TokenizerError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.tokenization.byte_level import to_bytes
from kerasformer.tokenization.chat_templates import DEFAULT, ChatTemplates, Message, Rendered, pair_template, render
from kerasformer.tokenization.chat_templates.rendering import Document, Tool
from kerasformer.tokenization.encoding import TENSORS, EncodedRow, Encoding, truncate
from kerasformer.tokenization.families import PLAIN_INPUTS
from kerasformer.tokenization.loading import TARGET_FILE, load
from kerasformer.tokenization.streaming import TextStream
from kerasformer.tokenization.truncation import (
    Side,
    Strategy,
    TruncationSettings,
    TruncationWarning,
    check_chunks,
    loss_message,
)
from kerasformer.tokenization.words import SpacedEncoding, WordRule

_MAX_ID = 2**32 - 1
_SHOWN = 10
"""Maximum number of characters in an error message."""
_NAMES = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Names of special tokens."""
Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation = bool | Strategy | Literal["do_not_truncate"]
Words = Sequence[str]
_ROWS = Kind("several sequences of ids", sequence(Kind("a sequence of ids", lambda row: row)).convert)
# Arguments of transformers, which would otherwise be variables that no template reads.
_NO_VARIABLES = frozenset({"return_dict", "tokenizer_kwargs"})
# Patterns whose space transformers removes after decoding if `clean_up_tokenization_spaces` is set.
_CLEAN_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def _token(name: str) -> property:
    def read(self: Tokenizer) -> str | None:
        return self._special_tokens.get(name)

    read.__doc__ = f"The {name.replace('_', ' ')}; `None` if there is none."
    return property(read)


def _token_id(name: str) -> property:
    def read(self: Tokenizer) -> int | None:
        token = self._special_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    read.__doc__ = f"Id of the {name.replace('_', ' ')}; `None` if there is none."
    return property(read)


class Tokenizer:
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

    portable: ClassVar[bool] = True

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
        self.backend = backend
        self.target = target
        self._skips_incomplete = skip_incomplete
        self.dropped_characters = frozenset(dropped_characters)
        self.chat_template = chat_template
        self.model_max_length = model_max_length
        self.padding_side: Side = _side("padding_side", padding_side)
        self.truncation_side: Side = _side("truncation_side", truncation_side)
        self._special_tokens = dict(special_tokens or {})
        self._model_inputs = tuple(model_inputs)
        self.constants: dict[str, int] = {}
        # In BPE vocabularies, spaces are part of the text, and the clean-up would remove them.
        self._cleans_spaces = clean_up_spaces and not isinstance(backend.model, tokenizers.models.BPE)
        backend.no_truncation()
        backend.no_padding()
        self.split_special_tokens = split_special_tokens
        if split_special_tokens:
            backend.encode_special_tokens = True
        known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        backend.add_special_tokens(
            [AddedToken(token, normalized=False) for token in self._special_tokens.values() if token not in known]
        )

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

    @property
    def languages(self) -> dict[str, int]:
        """Ids of the languages of a multilingual model by their codes; empty for other models."""
        return {}

    @property
    def writer(self) -> Tokenizer:
        """Tokenizer of the texts that the model writes; this one, unless the two sides differ."""
        return self if self.target is None else self.target

    def for_languages(self, src_lang: str | None = None, tgt_lang: str | None = None) -> Tokenizer:
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
        inputs = _pair_up(text, text_pair, is_split_into_words)
        settings = self._truncation(truncation, max_length, stride, return_overflowing_tokens, text_pair is not None)
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
        width = self._width([len(row) for row in rows], padding, max_length, pad_to, pad_to_multiple_of)
        padded = any(len(row) < width for row in rows)
        side = self.padding_side if padding_side is None else padding_side
        extra = {
            "offset_mapping": check("return_offsets_mapping", return_offsets_mapping, BOOLEAN),
            "special_tokens_mask": check("return_special_tokens_mask", return_special_tokens_mask, BOOLEAN),
        }
        return Encoding(
            rows,
            width=width,
            padding_side=_side("padding_side", side),
            pad_id=self._padding_id() if padded else 0,
            model_inputs=self._model_inputs,
            constants=self.constants,
            extra_names=tuple(name for name, requested in extra.items() if requested),
            tensors=tensors,
        )

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of one text as they appear in the vocabulary, without special tokens."""
        return self._encode_batch(_pair_up(text, None), add_special_tokens=False)[0].tokens

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the ids of one text, without truncation."""
        return self._encode_batch(_pair_up(text, None), add_special_tokens)[0].ids

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

    def apply_chat_template(
        self,
        conversation: Sequence[Message] | Sequence[Sequence[Message]],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Document] | None = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        return_assistant_tokens_mask: bool = False,
        padding: Padding = True,
        truncation: Truncation = False,
        max_length: int | None = None,
        return_tensors: Literal["np", "tf", "jax", "pt"] | None = None,
        **variables: Any,
    ) -> Any:
        """Converts conversations to the text or the tokens that a chat model was trained on.

        The template runs in a sandbox without access to Python, for at most 2 seconds, and writes at most 2,000,000
        characters.

        Args:
            conversation: Messages, such as `{"role": "user", "content": "Hello"}`, or a list of conversations.
            tools: JSON schemas of functions that the model may call, if the template supports them.
            documents: Texts that the answer is based on, such as `{"title": …, "text": …}`, likewise.
            chat_template: A template, or the name of one of the tokenizer's templates. By default the tokenizer's
                only template, or that for tools if tools are passed and there is one, or otherwise the default one.
            add_generation_prompt: Whether to add the beginning of the model's answer.
            continue_final_message: Whether to omit the end of the last message, so that the model continues it.
            tokenize: Whether to return tokens instead of text.
            return_assistant_tokens_mask: Whether to include `"assistant_masks"` in the result, `(B, T)`: 1 for tokens
                that the template marks as the assistant's, by `{% generation %}`.
            padding: As in a call.
            truncation: As in a call.
            max_length: As in a call.
            return_tensors: As in a call.
            variables: Further variables of the template, such as `enable_thinking=False`.

        Returns:
            An `Encoding`; with `tokenize=False` a text, or a list of texts.

        Raises:
            ChatTemplateError: there is no template, it is not valid, it refuses the conversation, reads attributes of
                Python objects, or exceeds a limit.
            InputError: the conversation is empty, or a message has no role.
        """
        if check("continue_final_message", continue_final_message, BOOLEAN) and add_generation_prompt:
            raise InputError(
                "continue_final_message continues the last message, and "
                "add_generation_prompt begins another one. Received: both. Remove one of them"
            )
        if not check("tokenize", tokenize, BOOLEAN):
            for_tokens = {
                "padding": padding is not True,
                "truncation": truncation is not False,
                "max_length": max_length is not None,
                "return_tensors": return_tensors is not None,
                "return_assistant_tokens_mask": return_assistant_tokens_mask is not False,
            }
            if passed := [name for name, is_passed in for_tokens.items() if is_passed]:
                raise InputError(
                    f"tokenize=False returns a text, not tokens. Received: {', '.join(passed)}. Omit these arguments, "
                    "or set tokenize=True"
                )
        for name in _NO_VARIABLES & variables.keys():
            raise InputError(
                f"{name} is no variable of a template. Expected: arguments of apply_chat_template, which returns an "
                "Encoding or, with tokenize=False, a text; or variables that a template reads, such as "
                f"enable_thinking=False. Received: {name}={shown(variables[name])}. Omit it"
            )
        several = isinstance(conversation, list | tuple) and bool(conversation)
        several = several and isinstance(conversation[0], list | tuple)
        template = self._template(chat_template, tools)
        known = {**self._special_tokens, **variables}
        if unnamed := self._unnamed_special_tokens():
            known = {"additional_special_tokens": unnamed, **known}
        rendered = [
            render(
                template,
                messages,  # type: ignore[arg-type]
                tools=tools,
                documents=documents,
                add_generation_prompt=check("add_generation_prompt", add_generation_prompt, BOOLEAN),
                continue_final_message=continue_final_message,
                variables=known,
            )
            for messages in (conversation if several else [conversation])
        ]
        texts = [text.text for text in rendered]
        if not tokenize:
            return texts if several else texts[0]
        masked = check("return_assistant_tokens_mask", return_assistant_tokens_mask, BOOLEAN)
        encoding = self(
            texts,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            add_special_tokens=False,
            return_tensors=return_tensors,
        )
        return encoding.with_array("assistant_masks", _generated_mask(encoding, rendered)) if masked else encoding

    @property
    def pair_template(self) -> str | None:
        """The chat template, if it has the roles `query` and `document` of a reranker; otherwise `None`."""
        return pair_template(self.chat_template)

    def apply_pair_template(self, query: str, document: str, prompt: str | None = None) -> str:
        """Converts a query and a document to the text that a reranker reads, by its `pair_template`.

        Args:
            query: Content of the message `query`.
            document: Content of the message `document`.
            prompt: Content of the message `system`, the instruction; by default that of the template.

        Raises:
            ChatTemplateError: as `apply_chat_template`.
        """
        messages = [{"role": "system", "content": prompt}] if prompt is not None else []
        messages += [{"role": "query", "content": query}, {"role": "document", "content": document}]
        text: str = self.apply_chat_template(messages, chat_template=self.pair_template, tokenize=False)
        return text

    def turn_end_token_id(self, chat_template: str | None = None) -> int | None:
        """Returns the id of the token that the chat template puts after an answer, such as `<|im_end|>`.

        A model that was trained with the template ends its answers with this token, which is not always its end token.

        Args:
            chat_template: As for `apply_chat_template`.

        Returns:
            The id, or `None` if there is no template, or none that puts an added token after an answer.
        """
        answer = "Kerasformer"
        turns = [{"role": "user", "content": answer}, {"role": "assistant", "content": answer}]
        try:
            text = self.apply_chat_template(turns, chat_template=chat_template, tokenize=False)
        except ChatTemplateError:  # no template, or one for other roles
            return None
        after = text[text.rfind(answer) + len(answer) :].lstrip()
        added = self.backend.get_added_tokens_decoder()
        found = [index for index, token in added.items() if after.startswith(token.content) and token.content.strip()]
        return max(found, key=lambda index: len(added[index].content), default=None)

    def _template(self, chat_template: str | None, tools: Sequence[Tool] | None) -> str:
        """Returns the requested template, or that of the tokenizer.

        Raises:
            ChatTemplateError: there is none.
        """
        templates = self.chat_template
        requested = check("chat_template", chat_template, optional(STRING))
        if isinstance(templates, dict):
            name = "tool_use" if tools and "tool_use" in templates else DEFAULT
            if (requested or name) in templates:
                return templates[requested or name]
            if requested is None:
                raise ChatTemplateError(
                    f"This tokenizer has several chat templates, and none of them is {DEFAULT!r}. Expected "
                    f"chat_template=… to be one of {', '.join(map(repr, templates))}. Received: none"
                )
        if requested is not None:
            return str(requested)
        if templates is None:
            raise ChatTemplateError(
                "This tokenizer has no chat template, as that of a model that was trained to continue text. Pass a "
                "prompt as a text, or a template with chat_template=…"
            )
        return str(templates)

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

    @cached_property
    def _added_tokens(self) -> dict[int, AddedToken]:
        return self.backend.get_added_tokens_decoder()

    def batch_decode(self, ids: Sequence[Sequence[int]] | np.ndarray, skip_special_tokens: bool = False) -> list[str]:
        """Converts several sequences of ids to texts."""
        return [self.decode(row, skip_special_tokens) for row in check("ids", ids, _ROWS)]

    def with_clean_up(self, clean_up_spaces: bool) -> Self:
        """Returns a tokenizer whose decoding removes, or keeps, spaces before punctuation."""
        other = copy.copy(self)
        other._cleans_spaces = check("clean_up_spaces", clean_up_spaces, BOOLEAN)
        return other

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

    def with_tokens(self, tokens: Sequence[str] = (), **named: str) -> Tokenizer:
        """Returns a tokenizer with further special tokens, which have the next ids.

        Args:
            tokens: The tokens; those of the vocabulary keep their ids and become special.
            named: Tokens by their name, such as `mask_token`.

        Raises:
            InputError: a name is unknown, or the tokenizer is of a kind that `tokenizer.json` does not describe or has
                a vocabulary for each side.
        """
        if unknown := set(named) - set(_NAMES):
            raise InputError(f"Special tokens are {', '.join(_NAMES)}. Received: {', '.join(sorted(unknown))}")
        if not self.portable or self.target is not None:
            raise InputError(
                "Tokens are added to a tokenizer with one vocabulary, which tokenizer.json describes. "
                f"Received: {type(self).__name__}" + ("" if self.target is None else " with a vocabulary for each side")
            )
        other = copy.copy(self)
        for name in (name for name, value in vars(type(self)).items() if isinstance(value, cached_property)):
            vars(other).pop(name, None)
        other.backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        other._special_tokens = {**self._special_tokens, **named}
        other.backend.add_special_tokens([AddedToken(token, normalized=False) for token in [*named.values(), *tokens]])
        return other

    def convert_to_lower_case(self) -> None:
        """Converts all texts to lower case first, unless the tokenizer has such a rule."""
        normalizer, lowercase = self.backend.normalizer, tokenizers.normalizers.Lowercase
        rules: list[Any] = [] if normalizer is None else [normalizer]
        if isinstance(normalizer, tokenizers.normalizers.Sequence):
            rules = [normalizer[index] for index in range(len(normalizer))]
        if not any(isinstance(rule, lowercase) for rule in rules):
            self.backend.normalizer = tokenizers.normalizers.Sequence([lowercase(), *rules])

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
        folder = Path(folder)
        special: JsonObject = dict(self._special_tokens)
        if unnamed := self._unnamed_special_tokens():
            special["additional_special_tokens"] = unnamed
        config: JsonObject = {
            "clean_up_tokenization_spaces": self._cleans_spaces,
            "model_input_names": list(self._model_inputs),
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            **special,
            **self._class_settings(),
        }
        if self._skips_incomplete:
            config["errors"] = "ignore"  # as Python calls it
        if self.model_max_length is not None:
            config["model_max_length"] = self.model_max_length
        if self.split_special_tokens:
            config["split_special_tokens"] = True
        if self.dropped_characters:
            config["dropped_characters"] = "".join(sorted(self.dropped_characters))
        if isinstance(self.chat_template, dict):
            # In the form that transformers, transformers.js and onnxruntime-genai read.
            config["chat_template"] = [{"name": n, "template": text} for n, text in self.chat_template.items()]
        elif self.chat_template is not None:
            config["chat_template"] = self.chat_template
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in self._vocabulary_files().items():
                _write(folder / name, content)
            _write(folder / "tokenizer_config.json", json.dumps(config, indent=2, ensure_ascii=False))
            _write(folder / "special_tokens_map.json", json.dumps(special, indent=2, ensure_ascii=False))
        except OSError as error:
            raise TokenizerError(f"the tokenizer cannot be written to {folder}: {error}") from error

    def _unnamed_special_tokens(self) -> list[str]:
        named, added = set(self._special_tokens.values()), self.backend.get_added_tokens_decoder()
        return [added[index].content for index in self.all_special_ids if added[index].content not in named]

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
            for given, each in zip(inputs, encoded, strict=True):
                self._check_characters(given, each, split)
        return encoded

    def _check_characters(self, given: object, encoding: tokenizers.Encoding, split: bool) -> None:
        """Checks that no unknown token of a text contains characters that were removed from the vocabulary.

        Raises:
            InputError: it does; the message contains these characters.
        """
        texts, parts = given if isinstance(given, tuple) else (given,), []
        tokens = zip(encoding.ids, encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
        for index, text, word, (start, end) in tokens:
            if index == self.unk_token_id and text is not None:
                parts.append((texts[text][word] if split else texts[text])[start:end])
        rules = self.backend.normalizer
        unknown = {character for part in parts for character in (part if rules is None else rules.normalize_str(part))}
        if dropped := sorted(unknown & self.dropped_characters):
            raise removed(dropped)

    def _truncation(
        self, truncation: Truncation, max_length: int | None, stride: int, overflowing: bool, has_pairs: bool
    ) -> TruncationSettings | None:
        kinds = one_of(True, False, *get_args(Strategy), "do_not_truncate")
        truncation = check("truncation", truncation, kinds)
        check("max_length", max_length, optional(integer(1)))
        check("stride", stride, integer(0))
        if truncation in (False, "do_not_truncate"):
            if overflowing or stride:
                raise InputError(
                    "return_overflowing_tokens and stride require truncation. Received: truncation=False. "
                    "Set truncation"
                )
            return None
        strategy: Any = "longest_first" if truncation is True else truncation
        limit = self.model_max_length if max_length is None else max_length
        if limit is None:
            raise InputError("truncation requires max_length, because the tokenizer has no maximum length")
        settings = TruncationSettings(limit, strategy, stride, _side("truncation_side", self.truncation_side))
        if overflowing:
            check_chunks(settings, has_pairs)
        return settings

    def _width(
        self,
        lengths: list[int],
        padding: Padding,
        max_length: int | None,
        pad_to: int | Sequence[int] | None,
        multiple: int | None,
    ) -> int:
        padding = check("padding", padding, one_of(True, False, "longest", "max_length", "do_not_pad"))
        longest, factor = max(lengths), check("pad_to_multiple_of", multiple, optional(integer(1))) or 1
        if padding in (False, "do_not_pad"):
            if pad_to is not None or multiple is not None:
                raise InputError(
                    f"pad_to and pad_to_multiple_of require padding. Received: {padding!r}. Set padding=True, or omit "
                    "them"
                )
            if min(lengths) != longest:
                raise InputError(
                    "all rows must have the same length without padding. Received: padding=False and texts of "
                    f"{min(lengths)} to {longest} tokens. Set padding=True"
                )
            return longest
        widths = [pad_to] if isinstance(pad_to, Integral) else [] if pad_to is None else pad_to
        widths = list(check("pad_to", widths, sequence(integer(1))))
        if padding == "max_length":
            limit = self.model_max_length if max_length is None else max_length
            if limit is None:
                raise InputError(
                    "padding='max_length' requires max_length, because the tokenizer has no maximum length"
                )
            if longest > limit:
                raise InputError(
                    f"padding='max_length' is for rows of at most {limit} tokens. Received: a row of {longest} tokens. "
                    "Set truncation=True, or a larger max_length"
                )
            widths.append(limit)
        width = min((width for width in widths if width >= longest), default=longest)
        return width + -width % factor

    def _padding_id(self) -> int:
        """Returns the id of the padding token, or of the end token (GPT-2) or the unknown token (GPT, CTRL)."""
        ids = (self.pad_token_id, self.eos_token_id, self.unk_token_id)
        token_id = next((index for index in ids if index is not None), None)
        if token_id is None:
            raise InputError(
                "texts of different lengths require a padding token, but this tokenizer has neither a padding, nor "
                "an end, nor an unknown token. Pass one text at a time, or add pad_token to tokenizer_config.json"
            )
        return token_id


def _not_loaded_here(received: str) -> InputError:
    return InputError(
        "The tokenizer of a folder, a preset or a hub id is loaded by kerasformer.Tokenizer.load(source). Received: "
        f"{received}"
    )


def removed(characters: Sequence[str]) -> InputError:
    """Returns the error for a text with characters, or parts of words, that pruning removed from the vocabulary."""
    more = f" and {len(characters) - _SHOWN} more" if len(characters) > _SHOWN else ""
    return InputError(
        "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the "
        f"languages for which it was pruned. Received: {', '.join(map(repr, characters[:_SHOWN]))}{more}. Prune the "
        "original model with texts that contain them, or use that model"
    )


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


def _generated_mask(encoding: Encoding, rendered: Sequence[Rendered]) -> np.ndarray:
    """Returns `(B, T)`, 1 for tokens that contain text within the tag `{% generation %}`."""
    starts, ends = encoding.offsets[..., 0], encoding.offsets[..., 1]
    mask = np.zeros_like(encoding.input_ids)
    for row, each in enumerate(rendered):
        for start, end in each.generated:
            mask[row] |= (starts[row] < end) & (ends[row] > start) & (ends[row] > starts[row])
    return mask


def _pair_up(text: object, pair: Any, split: bool = False) -> list[tokenizers.EncodeInput]:
    """Converts texts or pairs of texts to the format of the Rust library.

    Args:
        text: A text or a list of texts.
        pair: Second text or texts, or `None`.
        split: Whether each text is a list of words.

    Raises:
        InputError: no texts, values that are not texts, or different numbers of first and second texts.
    """
    convert = _lists_of_words if split else _texts
    firsts, single = convert("text", text)
    if pair is None:
        return firsts
    present = [second for second in pair if second is not None] if isinstance(pair, list | tuple) else pair
    seconds, single_pair = convert("text_pair", present)
    if isinstance(pair, list | tuple) and len(present) < len(pair):
        remaining = iter(seconds)
        seconds = [None if second is None else next(remaining) for second in pair]
    if single != single_pair or len(firsts) != len(seconds):
        raise InputError(
            f"text and text_pair must have the same number of texts. Received: {len(firsts)} and {len(seconds)}"
        )
    pairs = zip(firsts, seconds, strict=True)
    return [first if second is None else (first, second) for first, second in pairs]


def _texts(name: str, value: Any, expected: str = "a str or a list of str") -> tuple[list[Any], bool]:
    """Returns a list of texts, and whether the value is a single text."""
    single = isinstance(value, str)
    texts = [value] if single else value
    if isinstance(texts, (list, tuple, np.ndarray)) and np.ndim(texts) and all(isinstance(row, str) for row in texts):
        if len(texts) == 0:
            raise InputError(f"{name} must contain at least one text. Received: an empty batch")
        return [str(text) for text in texts], single
    types = {type(item).__name__ for item in texts} if isinstance(texts, (list, tuple)) else {type(texts).__name__}
    raise InputError(f"{name} must be {expected}. Received: {', '.join(sorted(types))}")


def _lists_of_words(name: str, value: Any) -> tuple[list[Any], bool]:
    """Like `_texts`, for texts that are lists of words."""
    expected = "a list of words or a list of such lists, for is_split_into_words=True"
    several = isinstance(value, (list, tuple)) and len(value) > 0 and not isinstance(value[0], str)
    rows = value if several else [value]
    if any(isinstance(row, str) for row in rows):
        raise InputError(f"{name} must be {expected}. Received: str")
    return [_texts(name, words, expected)[0] for words in rows], not several


def _side(name: str, value: str) -> Side:
    if value not in get_args(Side):
        raise InputError(f"{name} must be 'left' or 'right'. Received: {value!r}")
    return value  # type: ignore[return-value]


def _clean_up(text: str) -> str:
    for pattern in _CLEAN_UP:
        text = text.replace(pattern, pattern.strip(" "))
    return text


def _write(path: Path, content: str | bytes) -> None:
    """Writes a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
