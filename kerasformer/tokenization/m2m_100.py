"""The tokenizer of M2M-100: byte-pair encoding of SentencePiece, with the ids of a dictionary.

The dictionary lacks some pieces of the file of SentencePiece, which become unknown tokens after encoding. This cannot
be written as a `tokenizer.json`. In a pruned vocabulary, such a piece is marked as unused if it may now be a token of a
text that was a part of a longer one.

Paper: Fan et al. 2020, "Beyond English-Centric Multilingual Machine Translation", arXiv:2010.11125.
Reference: `transformers.models.m2m_100`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import TokenizerError, tokenizer_errors
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.tokenization import backends, language_codes, languages, spiece
from kerasformer.tokenization.dropped import removed
from kerasformer.tokenization.encoding import ChangedEncoding
from kerasformer.tokenization.families import Family, LanguageScheme
from kerasformer.tokenization.languages import MultilingualTokenizer
from kerasformer.tokenization.settings import Settings

VOCABULARY, PIECES = "vocab.json", "sentencepiece.bpe.model"
CODES = {"m2m100": language_codes.M2M_100, "wmt21": language_codes.WMT_21}
"""Codes of the languages by the option `language_codes`."""
_DEFAULT = "m2m100"


class M2m100Tokenizer(MultilingualTokenizer):
    """Tokenizer of M2M-100.

    Args:
        backend: Tokenizer of the `tokenizers` library; pieces that the dictionary lacks have ids from `num_ids` on.
        dictionary: Ids of the tokens in `vocab.json`.
        pieces: Content of the file of SentencePiece.
        language_codes: Key of `CODES`.
        num_ids: Number of ids of the dictionary and of the languages.
        unused: Pieces that are only parts of others; texts in which they are tokens are refused.
        kwargs: Arguments of `MultilingualTokenizer`.
    """

    portable = False

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        dictionary: dict[str, int],
        pieces: bytes,
        language_codes: str,
        num_ids: int,
        unused: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        self._dictionary, self._file, self._codes, self._num_ids = dictionary, pieces, language_codes, num_ids
        self._unused = frozenset(unused)
        super().__init__(backend, **kwargs)

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the dictionary and of languages; the embedding of a model may have more rows."""
        return self._num_ids

    def get_vocab(self) -> dict[str, int]:
        """Returns a mapping from tokens to ids, including the tokens of languages."""
        return {token: index for token, index in super().get_vocab().items() if index < self._num_ids}

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, or `None` if it is not in the dictionary."""
        index = super().token_to_id(token)
        return None if index is None or index >= self._num_ids else index

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the token of an id, or `None` if there is none."""
        token = super().id_to_token(token_id)
        return token if token_id < self._num_ids else None

    def _encode_batch(
        self, inputs: list[tokenizers.EncodeInput], add_special_tokens: bool, split: bool = False
    ) -> list[tokenizers.Encoding]:
        unknown = cast(int, self.unk_token_id)

        def known(encoding: tokenizers.Encoding) -> tokenizers.Encoding:
            if all(index < self._num_ids for index in encoding.ids):
                return encoding
            if unused := sorted(self._unused.intersection(encoding.tokens)):
                raise removed(unused)
            ids = [index if index < self._num_ids else unknown for index in encoding.ids]
            return cast(tokenizers.Encoding, ChangedEncoding(encoding, ids=ids))

        return [known(each) for each in super()._encode_batch(inputs, add_special_tokens, split)]

    def _vocabulary_files(self) -> Mapping[str, str | bytes]:
        return {VOCABULARY: json.dumps(self._dictionary, indent=2, ensure_ascii=False), PIECES: self._file}

    def _class_settings(self) -> JsonObject:
        return {**super()._class_settings(), "language_codes": self._codes}


def lookup(folder: Path, build: backends.BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer of the pieces of SentencePiece and of the languages.

    Raises:
        TokenizerError: a file is damaged, lacks special tokens, or uses another algorithm than byte-pair encoding.
    """
    path, file = backends.inside(folder, VOCABULARY), backends.inside(folder, PIECES)
    dictionary, model = _dictionary(path), backends.read_spiece(file)
    lacking = [token for token in build.special_tokens.values() if token not in dictionary]
    if lacking:
        raise TokenizerError(f"{path} lacks special tokens. Expected: {', '.join(map(repr, lacking))}")
    if model.algorithm != spiece.BYTE_PAIRS or model.byte_fallback:
        raise TokenizerError(f"{file} must be a SentencePiece model of byte-pair encoding without byte fallback")
    scheme = cast(LanguageScheme, build.family.languages)
    marks = [scheme.token.format(code) for code in _codes(build.options, folder)]
    normal = [piece for piece in model.pieces if piece.kind in (spiece.NORMAL, spiece.UNUSED)]
    absent = [piece.text for piece in normal if piece.text not in dictionary]
    others = {token: len(dictionary) + index for index, token in enumerate([*marks, *absent])}
    with tokenizer_errors(f"{file} does not match {path.name}"):
        merges = backends.merges(normal)
        unknown = build.special_tokens["unk_token"]
        backend = tokenizers.Tokenizer(models.BPE({**dictionary, **others}, merges, unk_token=unknown, fuse_unk=True))
        # The library would lose marks of characters that are not composed, which the rules compose anyway.
        rules = [normalizers.NFC(), normalizers.Precompiled(model.charsmap)] if model.charsmap else []
        # As SentencePiece does: only spaces separate words, not other characters that Unicode calls white space.
        spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(r"\A | \z"), "")]
        backend.normalizer = normalizers.Sequence([*rules, *spaces])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    special = [*build.special_tokens.values(), *marks]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in dict.fromkeys(special)])
    return backend


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `M2m100Tokenizer` in addition to those of `Tokenizer`.

    Raises:
        TokenizerError: a file cannot be read.
    """
    dictionary, file = _dictionary(backends.inside(folder, VOCABULARY)), backends.inside(folder, PIECES)
    name = settings.options.get("language_codes") or _DEFAULT
    try:
        pieces = file.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error}") from error
    return {
        **languages.arguments(folder, family, settings),
        "dictionary": dictionary,
        "pieces": pieces,
        "language_codes": name,
        "num_ids": len(dictionary) + len(_codes(settings.options, folder)),
        "unused": [piece.text for piece in spiece.parse(pieces).pieces if piece.kind == spiece.UNUSED],
    }


def _codes(options: JsonMapping, folder: Path) -> tuple[str, ...]:
    """Returns the codes of the languages.

    Raises:
        TokenizerError: an unknown list of languages.
    """
    name = options.get("language_codes") or _DEFAULT
    if name not in CODES:
        raise TokenizerError(
            f"language_codes in {folder / 'tokenizer_config.json'} must be {' or '.join(map(repr, CODES))}. "
            f"Received: {name!r}"
        )
    return CODES[name]


def _dictionary(path: Path) -> dict[str, int]:
    """Reads `vocab.json`.

    Raises:
        TokenizerError: it does not have the ids from 0 on.
    """
    dictionary = backends.read_vocab(path)
    if sorted(dictionary.values()) != list(range(len(dictionary))):
        raise TokenizerError(
            f"{path} must have each id from 0 to {len(dictionary) - 1} once, because the ids of languages follow"
        )
    return dictionary
