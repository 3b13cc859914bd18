"""Loading of tokenizers from folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import tokenizers
from tokenizers import AddedToken, decoders

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import InputError, TokenizerError, tokenizer_errors
from kerasformer.files import live, sources
from kerasformer.files.base_models import with_bases
from kerasformer.files.readers import foreign, tokenizer_files
from kerasformer.tokenization import backends
from kerasformer.tokenization.chat_templates import read_templates
from kerasformer.tokenization.families import (
    BERT,
    BERTWEET,
    BYT5,
    CLASSES,
    CTRL,
    M2M_100,
    MARIAN,
    PLAIN_INPUTS,
    SEGMENT_INPUTS,
    XLM,
    Family,
    Kind,
    guess,
)
from kerasformer.tokenization.limits import check_rules
from kerasformer.tokenization.settings import Settings, is_unknown_class, read_settings

_T = TypeVar("_T")
TARGET_FILE = "target_tokenizer.json"
"""Name of the file with the tokenizer of the texts that a model writes, if it is another one."""
_CLASSES = {
    "bertweet": "BertweetTokenizer",
    "ctrl": "CtrlTokenizer",
    "languages": "MultilingualTokenizer",
    "m2m_100": "M2m100Tokenizer",
    "marian": "MarianTokenizer",
    "moses": "MosesTokenizer",
}
"""Classes of tokenizers with rules of their own, by their modules, which are imported when a folder needs them."""
_WORD_PAIRS, _DICTIONARY = ("vocab.json", "merges.txt"), ("vocab.json", "sentencepiece.bpe.model")
_SIDES = ("source.spm", "target.spm", "vocab.json")
_OWN_MODULES = ((XLM, _WORD_PAIRS, "moses"), (CTRL, _WORD_PAIRS, "ctrl"), (M2M_100, _DICTIONARY, "m2m_100"))
"""Family, files and module of tokenizers with rules that `tokenizer.json` cannot contain."""
# In order of preference.
_VOCABULARIES: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("marian", _SIDES),
    ("sentencepiece", ("spiece.model",)),
    ("sentencepiece", ("spm.model",)),
    ("sentencepiece", ("sentencepiece.bpe.model",)),
    ("dictionary", _DICTIONARY),
    ("bpe", ("vocab.json", "merges.txt")),
    ("bpe", ("encoder.json", "vocab.bpe")),
    ("word-bpe", _WORD_PAIRS),
    ("bertweet", ("vocab.txt", "bpe.codes")),
    ("wordpiece", ("vocab.txt",)),
)
FILES = ("tokenizer.json", *(name for _, names in _VOCABULARIES for name in names))
"""Names of the files that contain the vocabulary of a tokenizer."""


def load(source: Any, model_type: str | None, plain: Callable[..., _T]) -> _T:
    """Loads a tokenizer; see `Tokenizer.load`.

    Args:
        source: As there.
        model_type: As there.
        plain: The class `Tokenizer`, for tokenizers without rules of their own.
    """
    if live.is_tokenizer(source):
        with live.files_of(source) as folder:
            return load(folder, model_type, plain)
    folders = with_bases(sources.resolve(source))
    with tokenizer_files(next(filter(has_tokenizer, folders), folders[0])) as folder:
        return _load(folder, model_type, plain)


def _load(folder: Path, model_type: str | None, plain: Callable[..., _T]) -> _T:
    settings = read_settings(folder, model_type)
    json_path = folder / "tokenizer.json"
    target: tokenizers.Tokenizer | None = None
    family, module = _own(folder, settings)
    if family is not None and module is not None:
        build = _build_settings(family, settings)
        backend, target = module.sides(folder, build) if family is MARIAN else (module.lookup(folder, build), None)
    elif json_path.exists():
        backend = _from_json(json_path)
        target = _from_json(folder / TARGET_FILE) if (folder / TARGET_FILE).exists() else None
        family = settings.family or _guessed(settings, backend.get_vocab(), _kind(backend))
        if family is not None:
            backends.apply_options(backend, _build_settings(family, settings))
    else:
        family, backend = _from_vocabulary(folder, settings)
        module = _module("bertweet") if family is BERTWEET else None
    for each in filter(None, (backend, target)):
        _add_tokens(each, settings, folder)
    writing = family or settings.model_family
    if writing is not None and writing.line_break is not None:
        backends.decode_line_breaks(backend, writing.line_break)
    options = settings.options
    arguments: Arguments = {
        "special_tokens": _special_tokens(backend, family, settings),
        "model_inputs": _model_inputs(backend, family, settings),
        "model_max_length": settings.model_max_length,
        "padding_side": options.get("padding_side", family.padding_side if family else "right"),
        "truncation_side": options.get("truncation_side", "right"),
        "clean_up_spaces": bool(options.get("clean_up_tokenization_spaces", False)),
        "skip_incomplete": _skips_incomplete(backend, family, settings),
        "chat_template": read_templates(folder, options),
        "dropped_characters": options.get("dropped_characters", ""),
        "split_special_tokens": bool(options.get("split_special_tokens", False)),
    }
    if target is not None:
        arguments["target"] = plain(target, **arguments)
    if module is None and family is not None and family.languages:
        languages = _module("languages")
        module = languages if languages.language_ids(backend, family.languages) else None
    tokenizer_class: Callable[..., _T] = plain
    if module is not None:
        tokenizer_class = getattr(module, _CLASSES[module.__name__.rpartition(".")[2]])
        arguments |= module.arguments(folder, family, settings)
    try:
        return tokenizer_class(backend, **arguments)
    except InputError as error:  # a setting of the folder
        raise TokenizerError(f"the settings of the tokenizer in {folder} are invalid: {error}") from error


def has_tokenizer(folder: Path) -> bool:
    """Whether a local folder contains files that `Tokenizer.load` can load, or a foreign file a tokenizer."""
    if (other := foreign(folder)) is not None:
        return other.has_tokenizer
    if (folder / "tokenizer.json").exists() or any(_present(folder, names) for _, names in _VOCABULARIES):
        return True
    try:
        return read_settings(folder).family is BYT5
    except TokenizerError:
        return False


def _own(folder: Path, settings: Settings) -> tuple[Family | None, ModuleType | None]:
    """Returns the family and the module of a tokenizer with rules of its own, if the folder has its files."""
    has_json = (folder / "tokenizer.json").exists()
    for family, files, name in () if has_json else _OWN_MODULES:
        if settings.family is family and _present(folder, files):
            return family, _module(name)
    # Its class reads these files rather than `tokenizer.json`.
    if MARIAN in (settings.family, None if has_json else settings.model_family) and _present(folder, _SIDES):
        return MARIAN, _module("marian")
    return None, None


def _module(name: str) -> ModuleType:
    return import_module(f"kerasformer.tokenization.{name}")


def _from_json(path: Path) -> tokenizers.Tokenizer:
    with tokenizer_errors(f"{path} is not a readable tokenizer"):
        backend = tokenizers.Tokenizer.from_str(sources.inside(path.parent, path.name).read_text(encoding="utf-8"))
        check_rules(backend)
        # A template with undefined tokens fails only when it is used.
        backend.encode("", "")
    return backend


def _from_vocabulary(folder: Path, settings: Settings) -> tuple[Family, tokenizers.Tokenizer]:
    if is_unknown_class(settings):
        raise TokenizerError(
            f"a tokenizer of class {settings.tokenizer_class} can only be loaded from tokenizer.json, which {folder} "
            f"lacks. Classes that can be built from a vocabulary: {', '.join(sorted(CLASSES))}. Save it with "
            "transformers first"
        )
    family = settings.family or settings.model_family
    if family is BYT5:
        return family, backends.utf8_bytes(folder, _build_settings(family, settings))
    for kind, names in _VOCABULARIES:
        if _present(folder, names) and (family is None or family.kind == kind):
            return _build(folder, kind, names, family, settings)
    expected = [" + ".join(names) for kind, names in _VOCABULARIES if family is None or family.kind == kind]
    received = ", ".join(sorted(path.name for path in folder.iterdir())[:20]) or "nothing"
    raise TokenizerError(
        f"{folder} contains no tokenizer. Expected: {', or '.join(['tokenizer.json', *expected])}. Received: {received}"
    )


def _build(
    folder: Path, kind: Kind, names: tuple[str, ...], family: Family | None, settings: Settings
) -> tuple[Family, tokenizers.Tokenizer]:
    paths = [backends.inside(folder, name) for name in names]
    family = family or _guess_from_files(kind, paths)
    build_settings = _build_settings(family, settings)
    if kind == "wordpiece":
        return family, backends.wordpiece(paths[0], build_settings)
    if kind == "bpe":
        return family, backends.byte_level_bpe(paths[0], paths[1], build_settings)
    if kind == "word-bpe":
        return family, backends.word_bpe(paths[0], paths[1], build_settings)
    if kind == "bertweet":
        return family, _module("bertweet").lookup(folder, build_settings)
    backend = backends.sentencepiece(paths[0], build_settings)
    with tokenizer_errors(f"{paths[0]} contains unsupported rules"):
        check_rules(backend)
    return family, backend


def _guess_from_files(kind: Kind, paths: list[Path]) -> Family:
    if kind in ("wordpiece", "bertweet"):
        return BERT if kind == "wordpiece" else BERTWEET
    if kind == "bpe":
        vocabulary = set(backends.read_vocab(paths[0]))
    else:
        vocabulary = {piece.text for piece in backends.read_spiece(paths[0]).pieces}
    family = guess(vocabulary, kind)
    if family is None or family.first_pieces:  # the file does not show which pieces to replace
        raise TokenizerError(
            f"the tokenizer class of {paths[0]} is unknown: neither tokenizer_config.json nor config.json specifies "
            "it, and the special tokens match no known class. Add config.json to the folder"
        )
    return family


def _guessed(settings: Settings, vocabulary: Mapping[str, int], kind: Kind | None) -> Family | None:
    """Returns the family of a `tokenizer.json` without settings, or `None` if a class or options are specified."""
    if settings.tokenizer_class or settings.options or kind is None:
        return None
    return guess(vocabulary, kind)


def _kind(backend: tokenizers.Tokenizer) -> Kind | None:
    name = type(backend.model).__name__
    kinds: Mapping[str, Kind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "sentencepiece"}
    return kinds.get(name)


def _build_settings(family: Family, settings: Settings) -> backends.BuildSettings:
    special_tokens = {name: token.content for name, token in settings.named.items()}
    return backends.BuildSettings(family, {**family.special_tokens, **special_tokens}, settings.options)


def _add_tokens(backend: tokenizers.Tokenizer, settings: Settings, folder: Path) -> None:
    """Adds the tokens that the folder specifies and that are not added tokens yet."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    for token in settings.added:
        if token.content not in present:
            _add(backend, token)
            present.add(token.content)
    for content, token_id in settings.fixed_ids.items():
        if backend.token_to_id(content) != token_id:
            raise TokenizerError(
                f"the added tokens of {folder} do not match its vocabulary: {content!r} must have the id {token_id}. "
                f"Received: {backend.token_to_id(content)}"
            )


def _add(backend: tokenizers.Tokenizer, token: AddedToken) -> None:
    if token.special:
        backend.add_special_tokens([token])
    else:
        backend.add_tokens([token])


def _special_tokens(backend: tokenizers.Tokenizer, family: Family | None, settings: Settings) -> dict[str, str]:
    """Returns the named special tokens of the folder, and those of the family that the vocabulary contains."""
    named = {name: token.content for name, token in settings.named.items()}
    if family is not None:
        for name, token in family.special_tokens.items():
            if name not in named and backend.token_to_id(token) is not None:
                named[name] = token
    return named


def _model_inputs(backend: tokenizers.Tokenizer, family: Family | None, settings: Settings) -> tuple[str, ...]:
    names = settings.options.get("model_input_names")
    if names is not None:
        return SEGMENT_INPUTS if "token_type_ids" in names else PLAIN_INPUTS
    family = settings.model_family or family
    if family is not None:
        return family.model_inputs
    return SEGMENT_INPUTS if _has_segments(backend) else PLAIN_INPUTS


def _skips_incomplete(backend: tokenizers.Tokenizer, family: Family | None, settings: Settings) -> bool:
    """Whether decoding omits bytes that are not valid UTF-8; the fast classes of BPE ignore the setting."""
    ignores = family is BYT5 or (settings.class_family is None and settings.options.get("errors") == "ignore")
    return ignores and isinstance(backend.decoder, decoders.ByteLevel)


def _has_segments(backend: tokenizers.Tokenizer) -> bool:
    """Whether the template assigns segment 1 to the special tokens after the second text, as BERT's does."""
    template = json.loads(backend.to_str()).get("post_processor") or {}
    if template.get("type") == "BertProcessing":
        return True
    pieces = template.get("pair", []) if template.get("type") == "TemplateProcessing" else []
    return any(piece.get("SpecialToken", {}).get("type_id") == 1 for piece in pieces)


def _present(folder: Path, names: tuple[str, ...]) -> bool:
    return all((folder / name).exists() for name in names)
