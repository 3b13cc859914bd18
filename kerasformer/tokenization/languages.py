"""Tokenizers of models for several languages, whose inputs and outputs contain a token for their language."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import tokenizers
from tokenizers import models, processors

from kerasformer.basics.arguments import STRING, Arguments, check
from kerasformer.errors import InputError, TokenizerError
from kerasformer.files.reading import JsonMapping, JsonObject, parse_json
from kerasformer.tokenization.encoding import ChangedEncoding
from kerasformer.tokenization.families import CLASSES, Family, LanguageScheme
from kerasformer.tokenization.settings import Settings
from kerasformer.tokenization.tokenizer import Tokenizer

_SETTINGS = ("forced_bos_token_id", "decoder_start_token_id")
"""Generation settings that may name a language."""
_MARK = re.compile(r">>(\S+)<<")


class MultilingualTokenizer(Tokenizer):
    """Tokenizer that adds the token of its language to each text (mBART, M2M-100, NLLB).

    Args:
        backend: Tokenizer of the `tokenizers` library; special tokens of the form that `family` describes are
            languages.
        family: Defaults of the tokenizer class, with a `LanguageScheme`.
        after: Whether the token of the language follows the text and its end token; otherwise it precedes the text.
        src_lang: Language of the input texts; by default that of the scheme.
        tgt_lang: Language of the output texts; optional.
        kept_languages: Codes of the languages for which the vocabulary was pruned; all that have a token by default.
        kwargs: Arguments of `Tokenizer`.

    Raises:
        InputError: an unknown language.
        TokenizerError: the vocabulary lacks the end token, or has no token of a language.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        family: Family,
        after: bool,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        kept_languages: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(backend, **kwargs)
        scheme = cast(LanguageScheme, family.languages)
        self._family, self._scheme, self._after = family, scheme, after
        self._kept_languages, self._side = tuple(kept_languages), ("src_lang", "input")
        known = language_ids(backend, scheme)
        self._languages = {code: index for code, index in known.items() if code in (kept_languages or known)}
        if not self._languages or self.eos_token_id is None:
            raise TokenizerError(
                "the vocabulary lacks tokens that are added to each text. Expected: an end token, and tokens of "
                f"languages such as {scheme.token.format(scheme.default)!r}. Received: {self!r}"
            )
        default = scheme.default if scheme.default in self._languages else None
        self.src_lang = default if src_lang is None else src_lang
        self.tgt_lang = tgt_lang
        # Encodings have the token of this language, which is replaced by that of the text's language.
        self._encoded_language = self.src_lang or next(iter(self._languages))
        backend.post_processor = self._language_template(self._encoded_language)

    @property
    def languages(self) -> dict[str, int]:
        """Ids of the tokens of all languages, by the codes of the languages in the order of these ids."""
        return dict(self._languages)

    @property
    def src_lang(self) -> str | None:
        """Code of the language of the input texts; can be changed.

        Raises:
            InputError: an unknown language.
        """
        return self._src_lang

    @src_lang.setter
    def src_lang(self, code: str | None) -> None:
        self._src_lang = None if code is None else self.known_language("src_lang", code)

    @property
    def tgt_lang(self) -> str | None:
        """Code of the language of the output texts; can be changed.

        Raises:
            InputError: an unknown language.
        """
        return self._tgt_lang

    @tgt_lang.setter
    def tgt_lang(self, code: str | None) -> None:
        self._tgt_lang = None if code is None else self.known_language("tgt_lang", code)

    def for_languages(self, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Returns a tokenizer for other languages, which shares the vocabulary; see `Tokenizer.for_languages`."""
        if src_lang is None and tgt_lang is None:
            return self
        source = self._src_lang if src_lang is None else self.known_language("src_lang", src_lang)
        target = self._tgt_lang if tgt_lang is None else self.known_language("tgt_lang", tgt_lang)
        return self._replace(_src_lang=source, _tgt_lang=target)

    @property
    def writer(self) -> Self:
        """Tokenizer of texts in the language of the output; without `tgt_lang`, it cannot add special tokens."""
        return self._replace(_src_lang=self._tgt_lang, _side=("tgt_lang", "output"))

    def target_settings(self, given: JsonMapping) -> dict[str, int]:
        """Returns the generation settings for the language of the output; see `Tokenizer.target_settings`."""
        if self._tgt_lang is not None:
            return {_SETTINGS[self._scheme.starts_decoder]: self._languages[self._tgt_lang]}
        if not any(given.get(name) in self._languages.values() for name in _SETTINGS):
            raise InputError(self._missing("tgt_lang", "output"))
        return {}

    def language_info(self) -> JsonObject:
        """Returns the fields of `bundle.LanguageInfo`."""
        return {
            "ids": self.languages,
            "after": self._after,
            "setting": _SETTINGS[self._scheme.starts_decoder],
            "src_lang": self._src_lang,
            "tgt_lang": self._tgt_lang,
        }

    def known_language(self, name: str, code: str) -> str:
        """Returns the code of a language, which is the value of the argument `name`.

        Raises:
            InputError: it is unknown; the message contains all codes and the most similar ones.
        """
        if check(name, code, STRING) in self._languages:
            return code
        alike = {known.lower(): known for known in self._languages}
        close = [alike[near] for near in difflib.get_close_matches(code.lower(), alike, 3, 0.5)]
        hint = f". Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(
            f"{name} must be a language of the model. Expected: one of {', '.join(self._languages)}. "
            f"Received: {code!r}{hint}"
        )

    def _missing(self, name: str, texts: str) -> str:
        return (
            f"The language of the {texts} is missing. Expected {name}=… to be one of "
            f"{', '.join(self._languages)}. Received: none"
        )

    def _language_template(self, language: str) -> processors.TemplateProcessing:
        """Returns the template that adds the end token and the token of a language to texts."""
        token, end = self._token(language), str(self.eos_token)
        before, after = ([], [end, token]) if self._after else ([token], [end])
        parts = [[f"{special}:0" for special in tokens] for tokens in (before, after)]
        ids = [(token, self._languages[language]), (end, cast(int, self.eos_token_id))]
        return processors.TemplateProcessing(
            single=[*parts[0], "$A:0", *parts[1]],
            pair=[*parts[0], "$A:0", "$B:0", *parts[1]],
            special_tokens=ids,
        )

    def _token(self, language: str) -> str:
        return self._scheme.token.format(language)

    def _encode_batch(
        self, inputs: list[tokenizers.EncodeInput], add_special_tokens: bool, split: bool = False
    ) -> list[tokenizers.Encoding]:
        encoded = super()._encode_batch(inputs, add_special_tokens, split)
        if not add_special_tokens or self._src_lang == self._encoded_language:
            return encoded
        if self._src_lang is None:
            raise InputError(self._missing(*self._side))
        language, place = self._src_lang, -1 if self._after else 0

        def relabeled(encoding: tokenizers.Encoding) -> tokenizers.Encoding:
            ids, tokens = list(encoding.ids), list(encoding.tokens)
            ids[place], tokens[place] = self._languages[language], self._token(language)
            return cast(tokenizers.Encoding, ChangedEncoding(encoding, ids=ids, tokens=tokens))

        return [relabeled(each) for each in encoded]

    def _vocabulary_files(self) -> Mapping[str, str | bytes]:
        files = dict(super()._vocabulary_files())
        language = self._src_lang or self._encoded_language
        if language != self._encoded_language:
            bare = tokenizers.Tokenizer(models.BPE())
            bare.post_processor = self._language_template(language)
            template = parse_json(bare.to_str(), "tokenizer.json")["post_processor"]
            content = {**parse_json(files["tokenizer.json"], "tokenizer.json"), "post_processor": template}
            files["tokenizer.json"] = json.dumps(content, indent=2, ensure_ascii=False)
        return files

    def _class_settings(self) -> JsonObject:
        name = next(name for name, family in CLASSES.items() if family is self._family)
        settings: JsonObject = {"tokenizer_class": name, "src_lang": self._src_lang, "tgt_lang": self._tgt_lang}
        if self._scheme.may_follow:
            settings["legacy_behaviour"] = self._after
        if self._kept_languages:
            settings["kept_languages"] = list(self._kept_languages)
        return settings


def marks(tokenizer: Tokenizer) -> dict[str, str]:
    """Returns the texts put before an input, such as `">>fra<< "`, by the codes of the languages of the output.

    They are tokens of the models of OPUS-MT that translate to several languages; other models have none.
    """
    matches = (_MARK.fullmatch(token) for token in sorted(tokenizer.get_vocab()))
    return {match[1]: f"{match[0]} " for match in matches if match}


def language_ids(backend: tokenizers.Tokenizer, scheme: LanguageScheme) -> dict[str, int]:
    """Returns the ids of the special tokens that have the form of a language, by their codes."""
    pattern = re.compile(re.escape(scheme.token).replace(r"\{\}", f"({scheme.code})"))
    added = backend.get_added_tokens_decoder()
    matches = {index: pattern.fullmatch(token.content) for index, token in sorted(added.items()) if token.special}
    return {match[1]: index for index, match in matches.items() if match}


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `MultilingualTokenizer` in addition to those of `Tokenizer`."""
    scheme, options = cast(LanguageScheme, family.languages), settings.options
    after = bool(options.get("legacy_behaviour", False)) if scheme.may_follow else scheme.after
    codes = {name: options.get(name) for name in ("src_lang", "tgt_lang")}
    return {"family": family, "after": after, "kept_languages": options.get("kept_languages", ()), **codes}
