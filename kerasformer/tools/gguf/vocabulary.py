"""Tokenizers of GGUF files in the form of `tokenizer.json`.

The kinds of `tokenizer.ggml.model` are `gpt2`, merges of bytes; `llama`, merges of the characters of SentencePiece,
which are not in the file and follow from the scores; `t5`, Unigram of SentencePiece; and `bert`, WordPiece.

Reference: `llama-vocab.cpp` of llama.cpp, and the converter of `transformers`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from kerasformer.errors import TokenizerError, tokenizer_errors
from kerasformer.files.reading import JsonObject
from kerasformer.tools.gguf.architecture import Metadata
from kerasformer.tools.gguf.splitting import GPT_2, SPLITTINGS, Splitting

logger = logging.getLogger("kerasformer")

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
"""Types of tokens, as in SentencePiece."""
_PREFIX = "tokenizer.ggml"
_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # as the format spells it
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
_TEMPLATE = "tokenizer.chat_template"
_PLACEHOLDER = re.compile(r"\[PAD\d+\]")
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Tokens that end a text or a turn."""


@dataclass(frozen=True)
class _Defaults:
    """What llama.cpp assumes about a kind of tokenizer if a file does not say it.

    Attributes:
        build: Builds the tokenizer without special tokens.
        begins: Whether texts begin with the first token.
        ends: Whether texts end with the end token, or with the separator.
        ids: Ids of special tokens.
    """

    build: Callable[[_Vocabulary], tokenizers.Tokenizer]
    begins: bool = False
    ends: bool = False
    ids: Mapping[str, int] = field(default_factory=dict)


class _Vocabulary:
    """The tokens of a file, with their types and scores.

    Args:
        metadata: The file.
        sentinels: Number of tokens that stand for masked spans, see `files`.
    """

    def __init__(self, metadata: Metadata, sentinels: int) -> None:
        self.metadata = metadata
        self.tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(metadata.strings(f"{_PREFIX}.tokens"))]
        self.types = self._per_token("token_type", 1)
        self._name_sentinels(sentinels)
        if len(set(self.tokens)) < len(self.tokens):
            seen: set[str] = set()
            double = next(token for token in self.tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
            raise TokenizerError(f"{_PREFIX}.tokens must be different. Received twice: {double!r:.100}")

    @property
    def scores(self) -> list[float]:
        return self._per_token("scores", None)

    def _per_token(self, key: str, default: float | None) -> list[Any]:
        defaults = None if default is None else [default] * len(self.tokens)
        values = self.metadata.numbers(f"{_PREFIX}.{key}", *([] if defaults is None else [defaults]))
        if len(values) != len(self.tokens):
            raise TokenizerError(
                f"{_PREFIX}.{key} must have a number for each of the {len(self.tokens)} tokens. Received: {len(values)}"
            )
        return values

    def _name_sentinels(self, count: int) -> None:
        """Gives the tokens of masked spans their names; llama.cpp writes `[PAD32000]` for `<extra_id_99>`."""
        unnamed = [index for index, token in enumerate(self.tokens) if _PLACEHOLDER.fullmatch(token)]
        for number, index in enumerate(unnamed[:count]):
            self.tokens[index], self.types[index] = f"<extra_id_{count - 1 - number}>", _CONTROL

    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def flag(self, key: str, default: bool) -> bool:
        value: bool = self.metadata.get(f"{_PREFIX}.{key}", bool, default)
        return value

    def special(self, defaults: Mapping[str, int]) -> dict[str, str]:
        """Returns the named special tokens; those of a kind's defaults only if the vocabulary has such a token."""
        special = {}
        for name, key in _IDS.items():
            index = self.metadata.get(f"{_PREFIX}.{key}", int, None)
            if index is None:
                index = defaults.get(name)
                if index is None or index >= len(self.tokens) or self.types[index] not in (_UNKNOWN, _CONTROL):
                    continue
            if not 0 <= index < len(self.tokens):
                raise TokenizerError(
                    f"{_PREFIX}.{key} must be the id of one of {len(self.tokens)} tokens. Received: {index}"
                )
            special[name] = self.tokens[index]
        return special

    def unknown(self) -> str | None:
        """Returns the unknown token."""
        index = self.metadata.get(f"{_PREFIX}.unknown_token_id", int, None)
        if index is None:
            index = next((index for index, token_type in enumerate(self.types) if token_type == _UNKNOWN), None)
        return self.tokens[index] if index is not None and 0 <= index < len(self.tokens) else None


def has_tokenizer(metadata: Metadata) -> bool:
    """Whether a file contains a tokenizer; some models need none."""
    return bool(metadata.get(f"{_PREFIX}.model", str, "none") not in ("none", "no_vocab"))


def files(metadata: Metadata, *, max_length: int | None, segments: bool, sentinels: int) -> JsonObject:
    """Returns the contents of `tokenizer.json` and `tokenizer_config.json`.

    Args:
        metadata: The file.
        max_length: Maximum length of a text in tokens.
        segments: Whether the model has the input `token_type_ids`.
        sentinels: Number of tokens that stand for masked spans, whose names the file lacks.

    Raises:
        TokenizerError: the kind of tokenizer, or how it splits texts, is unsupported, or its vocabulary is damaged.
        CheckpointError: a key is missing, or its value has another type.
    """
    tokenizer_type = metadata.get(f"{_PREFIX}.model", str)
    if tokenizer_type not in _KINDS:
        raise TokenizerError(
            f"{_PREFIX}.model in {metadata.container.path} is a kind of tokenizer that is unsupported. Expected one of "
            f"{', '.join(_KINDS)}. Received: {tokenizer_type!r:.100}"
        )
    defaults = _KINDS[tokenizer_type]
    with tokenizer_errors(f"the tokenizer in {metadata.container.path} cannot be used"):
        vocabulary = _Vocabulary(metadata, sentinels)
        backend = defaults.build(vocabulary)
        special = vocabulary.special(defaults.ids)
        _add_tokens(backend, vocabulary, set(special.values()))
        begins = defaults.begins or (tokenizer_type == "gpt2" and _splitting(metadata).begins)
        backend.post_processor = _template(backend, vocabulary, special, begins, defaults.ends, segments)
        content = backend.to_str()
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **special,
        "chat_template": _chat_templates(metadata),
    }
    return {"tokenizer.json": content, "tokenizer_config.json": {k: v for k, v in settings.items() if v is not None}}


def generation_settings(metadata: Metadata) -> JsonObject:
    """Returns the content of `generation_config.json`: special tokens, and the settings of sampling that a file has."""
    ids = {key: metadata.get(f"{_PREFIX}.{key}", int, None) for key in ("bos_token_id", *_ENDS, "padding_token_id")}
    ends = list(dict.fromkeys(ids[key] for key in _ENDS if ids[key] is not None))
    sampling = {
        "temperature": metadata.get("general.sampling.temp", float, None),
        "top_k": metadata.get("general.sampling.top_k", int, None),
        "top_p": metadata.get("general.sampling.top_p", float, None),
        "min_p": metadata.get("general.sampling.min_p", float, None),
        "repetition_penalty": metadata.get("general.sampling.penalty_repeat", float, None),
    }
    settings = {
        "bos_token_id": ids["bos_token_id"],
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": ids["padding_token_id"],
        "do_sample": True if sampling["temperature"] else None,
        **sampling,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _chat_templates(metadata: Metadata) -> object:
    """Returns the chat template, or several by name, as in `tokenizer_config.json`."""
    default = metadata.get(_TEMPLATE, str, None)
    names = metadata.strings("tokenizer.chat_templates") if _has(metadata, "tokenizer.chat_templates") else []
    named = {name: metadata.get(f"{_TEMPLATE}.{name}", str, None) for name in names}
    templates = {**({} if default is None else {"default": default}), **named}
    if list(templates) in ([], ["default"]):
        return default
    return [{"name": name, "template": text} for name, text in templates.items() if text is not None]


def _has(metadata: Metadata, key: str) -> bool:
    return key in metadata.container.values


def _add_tokens(backend: tokenizers.Tokenizer, vocabulary: _Vocabulary, named: set[str]) -> None:
    """Adds the tokens that a text may contain by their names: special ones, and those that users defined."""
    tokens = []
    for token, token_type in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if token_type in (_UNKNOWN, _CONTROL, _USER_DEFINED) or token in named:
            is_special = token_type != _USER_DEFINED or token in named
            tokens.append(AddedToken(token, special=is_special, normalized=False))
    for group in (True, False):
        (backend.add_special_tokens if group else backend.add_tokens)([t for t in tokens if t.special is group])
    if backend.get_vocab_size() != len(vocabulary.tokens):
        raise TokenizerError(
            f"the tokenizer must have {len(vocabulary.tokens)} tokens. Received: {backend.get_vocab_size()}"
        )


def _template(
    backend: tokenizers.Tokenizer,
    vocabulary: _Vocabulary,
    special: Mapping[str, str],
    begins: bool,
    ends: bool,
    segments: bool,
) -> processors.PostProcessor | None:
    """Returns the tokens before and after a text."""
    first = special.get("bos_token", special.get("cls_token")) if vocabulary.flag("add_bos_token", begins) else None
    last = None
    if vocabulary.flag("add_sep_token", ends and "sep_token" in special):
        last = special.get("sep_token", special.get("eos_token"))
    if last is None and vocabulary.flag("add_eos_token", ends):
        last = special.get("eos_token")
    if first is None and last is None:
        return None
    before, after = ([first] if first else []), ([last] if last else [])
    segment = int(segments)
    if last:
        pair = [*before, "$A", last, f"$B:{segment}", f"{last}:{segment}"]
    else:  # the second text begins with the first token as well
        pair = [*before, "$A", f"{first}:1", "$B:1"]
    used = dict.fromkeys([*before, *after])
    return processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=pair,
        special_tokens=[(token, backend.token_to_id(token)) for token in used],
    )


def _splitting(metadata: Metadata) -> Splitting:
    """Returns how a byte-level vocabulary splits texts.

    Raises:
        TokenizerError: the way is unsupported.
    """
    name = metadata.get(f"{_PREFIX}.pre", str, None)
    if name in (None, "default"):
        logger.warning(
            "%s does not say how its tokenizer splits texts (tokenizer.ggml.pre). Using the way of GPT-2; numbers may "
            "get other tokens than in training. Convert the model again with a new version of llama.cpp",
            metadata.container.path,
        )
        return GPT_2
    if name not in SPLITTINGS:
        raise TokenizerError(
            f"{_PREFIX}.pre names an unsupported way to split texts. Expected one of "
            f"{', '.join(sorted(SPLITTINGS))}. Received: {name!r:.100}"
        )
    return SPLITTINGS[name]


def _byte_level(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    splitting = _splitting(vocabulary.metadata)
    ids, merges = vocabulary.ids(), []
    for merge in vocabulary.metadata.strings(f"{_PREFIX}.merges"):
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise TokenizerError(
                f"{_PREFIX}.merges must be two tokens with a space between them, which together "
                f"are a token. Received: {merge!r:.100}"
            )
        merges.append((left, right))
    backend = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=splitting.whole_words))
    backend.pre_tokenizer = splitting.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend


def _pieces(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """Builds merges of characters, with bytes for unknown ones."""
    # Tokens of several spaces have spaces in the file, where the text that is merged has their mark.
    for index, token in enumerate(vocabulary.tokens):
        if token and not token.strip(" "):
            vocabulary.tokens[index] = "▁" * len(token)
    prefix = vocabulary.flag("add_space_prefix", True)
    unknown = vocabulary.unknown()
    model = models.BPE(
        vocabulary.ids(), list(_merges(vocabulary)), fuse_unk=True, byte_fallback=True, unk_token=unknown
    )
    backend = tokenizers.Tokenizer(model)
    marks = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marks]) if prefix else marks
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return backend


def _merges(vocabulary: _Vocabulary) -> Iterator[tuple[str, str]]:
    """Yields the merges of a vocabulary with scores: each pair of tokens that is a token, the best token first.

    Tokens that users defined come before all others, in their order, since SentencePiece never splits them.
    """
    ids, scores = vocabulary.ids(), vocabulary.scores
    merges: list[tuple[tuple[float, ...], str, str]] = []
    for index, token in enumerate(vocabulary.tokens):
        is_first = vocabulary.types[index] == _USER_DEFINED
        rank = (0.0, float(index)) if is_first else (1.0, -scores[index])
        pairs = [(token[:end], token[end:]) for end in range(1, len(token))]
        pairs = sorted((ids[left], ids[right], left, right) for left, right in pairs if left in ids and right in ids)  # type: ignore[misc]
        for *_, left, right in pairs:
            merges.append(((*rank, -len(left), -len(right)), left, right))
    merges.sort(key=lambda row: row[0])
    for _, left, right in merges:
        yield left, right


def _unigram(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    ids, unknown = vocabulary.ids(), vocabulary.unknown()
    pairs = [
        (token, 0.0 if token_type == _USER_DEFINED else float(score))
        for token, token_type, score in zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True)
    ]
    model = models.Unigram(pairs, unk_id=None if unknown is None else ids[unknown], byte_fallback=False)
    backend = tokenizers.Tokenizer(model)
    charsmap = vocabulary.metadata.numbers(f"{_PREFIX}.precompiled_charsmap", [])
    if charsmap:
        backend.normalizer = normalizers.Precompiled(bytes(number % 256 for number in charsmap))
    scheme = "always" if vocabulary.flag("add_space_prefix", True) else "never"
    vocabulary.flag("remove_extra_whitespaces", True)
    spaces = pre_tokenizers.Metaspace("▁", scheme)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    backend.decoder = decoders.Metaspace("▁", scheme)
    return backend


def _wordpiece(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """Builds WordPiece; in the file, words begin with a mark, and their other pieces have none."""
    for index, (token, token_type) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if token_type not in (_UNKNOWN, _CONTROL):
            vocabulary.tokens[index] = token[1:] if token.startswith("▁") and len(token) > 1 else f"##{token}"
    special = vocabulary.special(_KINDS["bert"].ids)
    lowercase = vocabulary.flag("normalizer.lowercase", not _has_capitals(vocabulary))
    unknown = special.get("unk_token", "[UNK]")
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary.ids(), unk_token=unknown, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=vocabulary.flag("normalizer.strip_accents", lowercase)
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece("##", cleanup=True)
    return backend


def _has_capitals(vocabulary: _Vocabulary) -> bool:
    """Returns whether the vocabulary is one of texts with capitals, as many files do not say.

    Some tokens with capitals do not show it, such as names of unused tokens.
    """
    words = [
        token
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind not in (_UNKNOWN, _CONTROL)
    ]
    capitals = sum(token != token.lower() and not (token[0] == "[" and token[-1] == "]") for token in words)
    return 1000 * capitals > len(words)


_BERT_IDS = {"pad_token": 0, "unk_token": 100, "cls_token": 101, "sep_token": 102, "mask_token": 103}
_KINDS: Mapping[str, _Defaults] = {
    "gpt2": _Defaults(_byte_level),
    "llama": _Defaults(_pieces, begins=True, ids={"unk_token": 0, "bos_token": 1, "eos_token": 2}),
    "t5": _Defaults(_unigram, ends=True, ids={"pad_token": 0, "eos_token": 1, "unk_token": 2}),
    "bert": _Defaults(_wordpiece, begins=True, ends=True, ids=_BERT_IDS),
}
"""Kinds of tokenizers by `tokenizer.ggml.model`."""


def special_ids(metadata: Metadata, names: Sequence[str] = ("bos_token", "eos_token", "pad_token")) -> JsonObject:
    """Returns the ids of special tokens that a file has, by their names in `config.json`."""
    ids = {f"{name}_id": metadata.get(f"{_PREFIX}.{_IDS[name]}", int, None) for name in names}
    return {name: index for name, index in ids.items() if index is not None}
