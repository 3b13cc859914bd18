"""Settings of a tokenizer besides its vocabulary: class, special and added tokens, maximum length, sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tokenizers import AddedToken

from kerasformer.basics.arguments import check, integer, kind_of
from kerasformer.errors import SourceError, TokenizerError
from kerasformer.files import sources
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.tokenization.families import CLASSES, GENERIC_CLASSES, MODEL_TYPES, Family

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# transformers stores a huge number if the maximum length is unknown.
_NO_LIMIT = 10**9
_SIDE = Literal["left", "right"]
_NUMBER = Annotated[int, integer(0, 100_000)]
_OPTION_TYPES: Mapping[str, Any] = {
    "do_lower_case": bool,
    "strip_accents": bool | None,
    "tokenize_chinese_chars": bool,
    "keep_accents": bool,
    "add_prefix_space": bool | None,
    "trim_offsets": bool,
    "add_bos_token": bool,
    "normalization": bool,
    "extra_ids": _NUMBER,
    "offset": _NUMBER,
    "mask_token_sent": str | None,
    "do_lowercase_and_remove_accent": bool,
    "clean_up_tokenization_spaces": bool | None,
    "tokenizer_class": str | None,
    "model_max_length": int | float | None,
    "padding_side": _SIDE,
    "truncation_side": _SIDE,
    "model_input_names": list,
    "added_tokens_decoder": dict,
    "src_lang": str | None,
    "tgt_lang": str | None,
    "language_codes": str | None,
    "legacy_behaviour": bool,
    "separate_vocabs": bool,
    "dropped_characters": str,
    "split_special_tokens": bool | None,
    "kept_languages": list,
}


@dataclass(frozen=True)
class Settings:
    """Content of the JSON files of a tokenizer.

    Attributes:
        options: Content of `tokenizer_config.json`.
        tokenizer_class: Tokenizer class without the suffix `Fast`; `None` if it is not specified.
        class_family: Defaults of that class; `None` if it is generic or unknown.
        model_family: Defaults of the model type in `config.json`; `None` if it is unknown.
        named: Special tokens by name, such as `"pad_token"`.
        added: Tokens to add to the vocabulary, in the order of their ids.
        fixed_ids: Expected ids of some of the added tokens.
        config: Content of `config.json`.
    """

    options: JsonMapping
    tokenizer_class: str | None
    class_family: Family | None
    model_family: Family | None
    named: Mapping[str, AddedToken]
    added: tuple[AddedToken, ...]
    fixed_ids: Mapping[str, int]
    config: JsonMapping

    @property
    def family(self) -> Family | None:
        """Defaults of the tokenizer class or, if none is specified, of the model type."""
        return self.class_family if self.tokenizer_class else self.model_family

    @property
    def model_max_length(self) -> int | None:
        """Maximum number of tokens of the model; `None` if it is unknown."""
        limit = self.options.get("model_max_length")
        return int(limit) if limit is not None and 0 < limit < _NO_LIMIT else None


def read_settings(folder: Path, model_type: str | None = None) -> Settings:
    """Reads `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json`, if present.

    References to other files and to code in these files (`vocab_file`, `auto_map`) are ignored.

    Args:
        folder: Folder of the files.
        model_type: Architecture, if `config.json` does not specify it.

    Raises:
        TokenizerError: a file is damaged, or a value has the wrong type.
    """
    options = _read(folder, "tokenizer_config.json")
    _check_types(options, folder)
    config = _read(folder, "config.json")
    specified = dict(options)
    if "added_tokens_decoder" not in options:
        specified |= _read(folder, "special_tokens_map.json")
    fixed = _fixed_tokens(options, _read(folder, "added_tokens.json"), folder)
    exact = {token.content: token for token in fixed.values()}
    named = {}
    for name in NAMED_TOKENS:
        token = _added_token(specified.get(name), f"{name} in {folder / 'tokenizer_config.json'}")
        if token is not None:
            named[name] = exact.get(token.content, token)
    tokenizer_class = options.get("tokenizer_class") or config.get("tokenizer_class")
    if tokenizer_class is not None:
        tokenizer_class = str(tokenizer_class).removesuffix("Fast")
    class_family = CLASSES.get(tokenizer_class) if tokenizer_class else None
    model_family = MODEL_TYPES.get(str(config.get("model_type") or model_type))
    family = class_family if tokenizer_class else model_family
    if family is not None and family.mask_takes_spaces and not isinstance(specified.get("mask_token"), dict):
        mask = specified.get("mask_token") or family.special_tokens["mask_token"]
        named["mask_token"] = exact.get(mask, AddedToken(mask, lstrip=True, special=True, normalized=False))
    return Settings(
        options=options,
        tokenizer_class=tokenizer_class,
        class_family=class_family,
        model_family=model_family,
        named=named,
        added=(*fixed.values(), *named.values(), *_unnamed_tokens(specified, folder)),
        fixed_ids={token.content: token_id for token_id, token in fixed.items()},
        config=config,
    )


def is_unknown_class(settings: Settings) -> bool:
    """Whether a tokenizer class is specified that is neither generic nor supported."""
    name = settings.tokenizer_class
    return name is not None and name not in GENERIC_CLASSES and settings.class_family is None


def _read(folder: Path, name: str) -> JsonObject:
    if not (folder / name).exists():
        return {}
    try:
        return sources.read_json(sources.inside(folder, name))
    except SourceError as error:
        raise TokenizerError(str(error)) from error


def _check_types(options: JsonMapping, folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    for name, hint in _OPTION_TYPES.items():
        if name in options:
            check(f"{name} in {path}", options[name], kind_of(hint), error=TokenizerError)


def _fixed_tokens(options: JsonMapping, legacy: JsonMapping, folder: Path) -> dict[int, AddedToken]:
    """Returns added tokens by id, from `added_tokens_decoder` or the older `added_tokens.json`."""
    entries = {index: token for token, index in legacy.items()} | dict(options.get("added_tokens_decoder", {}))
    tokens = {}
    for index, value in entries.items():
        location = f"added token {index} of {folder}"
        try:
            token_id = int(index)
        except (TypeError, ValueError) as error:
            raise TokenizerError(f"{location} must have a number as its id") from error
        token = _added_token(value, location, special=not isinstance(value, str))
        if token is not None:
            tokens[token_id] = token
    return dict(sorted(tokens.items()))


def _unnamed_tokens(specified: JsonMapping, folder: Path) -> list[AddedToken]:
    """Returns additional special tokens: lists or dicts, under the old or the new key."""
    tokens = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        values = specified.get(key) or []
        for value in values.values() if isinstance(values, dict) else values:
            token = _added_token(value, f"{key} of {folder}")
            if token is not None:
                tokens.append(token)
    return tokens


def _added_token(value: object, location: str, special: bool = True) -> AddedToken | None:
    """Converts an added token of a file: a string, or a dict with flags."""
    if value is None:
        return None
    if isinstance(value, str) and value:
        return AddedToken(value, special=special, normalized=not special)
    if isinstance(value, dict) and isinstance(value.get("content"), str) and value["content"]:
        flags = {name: bool(value[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in value}
        return AddedToken(value["content"], special=bool(value.get("special", special)), **flags)
    raise TokenizerError(f"{location} must be a token or null. Received: {value!r}")
