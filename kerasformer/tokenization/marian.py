"""The tokenizer of Marian: pieces by a SentencePiece model, ids by `vocab.json`, one model for each side.

Both sides share `vocab.json`, so that a model of one side finds only some of its tokens; the others have a score that
no text reaches. A piece that the vocabulary lacks is unknown. A run of characters that occur in no piece is one unknown
token, unless the whole run is a token of the other side. These rules are written as a `tokenizer.json`, which any
library can run.

Reference: `transformers.models.marian.tokenization_marian`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import TokenizerError, tokenizer_errors
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.tokenization import backends, spiece
from kerasformer.tokenization.families import Family
from kerasformer.tokenization.settings import Settings
from kerasformer.tokenization.tokenizer import Tokenizer

logger = logging.getLogger("kerasformer")

FILES = SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
TARGET_VOCABULARY = "target_vocab.json"
_OPTIONS = "source_lang", "target_lang", "separate_vocabs"
_SPACE = "▁"
_NEVER = -1e6
"""Score of tokens of the other side, lower than that of any text of known pieces that is as long as a token."""
_LANGUAGE = re.compile(r">>\S+<<")


class MarianTokenizer(Tokenizer):
    """Tokenizer of a checkpoint of Marian, for source texts; `target` is that of the texts that the model writes.

    Args:
        backend: Tokenizer of the `tokenizers` library for source texts.
        files: Content of the files of the checkpoint by name; and the settings of the class in Hugging Face's format.
        kwargs: Arguments of `Tokenizer`.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, files: tuple[Mapping[str, bytes], JsonMapping], **kwargs: Any
    ) -> None:
        super().__init__(backend, **kwargs)
        self._files, self._options = files

    def for_bundles(self) -> Tokenizer:
        """See `Tokenizer.for_bundles`."""
        return Tokenizer(
            self.backend,
            special_tokens=self.special_tokens,
            model_inputs=self._model_inputs,
            model_max_length=self.model_max_length,
            padding_side=self.padding_side,
            truncation_side=self.truncation_side,
            clean_up_spaces=self._cleans_spaces,
            chat_template=self.chat_template,
            target=self.target,
        )

    def _vocabulary_files(self) -> Mapping[str, str | bytes]:
        return {**super()._vocabulary_files(), **self._files}  # those of the checkpoint are for transformers

    def _class_settings(self) -> JsonObject:
        return {"tokenizer_class": "MarianTokenizer", **self._options}


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `MarianTokenizer` in addition to those of `Tokenizer`."""
    names = [*FILES, *([TARGET_VOCABULARY] if settings.options.get("separate_vocabs", False) else [])]
    options = {name: settings.options[name] for name in _OPTIONS if name in settings.options}
    return {"files": ({name: backends.inside(folder, name).read_bytes() for name in names}, options)}


@dataclass(frozen=True)
class _Characters:
    """The characters of a text by what a SentencePiece model does with them.

    Attributes:
        known: Characters of its pieces.
        lacking: Characters that are pieces, but not in the vocabulary: each is an unknown token of its own.
        words: Those of `lacking` that are one unknown token together with the space before them.
        starts: Those of `lacking` that are a known piece together with the space before them.
    """

    known: frozenset[str]
    lacking: frozenset[str]
    words: frozenset[str]
    starts: frozenset[str]

    @property
    def unknown(self) -> str:
        """Regular expression of one character that is neither known nor lacking."""
        return f"[^{_escaped(sorted(self.known | self.lacking))}]"


def sides(folder: Path, build: backends.BuildSettings) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """Builds the tokenizers of source and target texts from the files of a checkpoint.

    Raises:
        TokenizerError: a file is missing or damaged, or its rules are not supported.
    """
    names = (VOCABULARY, VOCABULARY)
    if build.options.get("separate_vocabs", False):
        names = (VOCABULARY, TARGET_VOCABULARY)
    pair = []
    for model, name in zip((SOURCE, TARGET), names, strict=True):
        path, vocabulary = backends.inside(folder, model), backends.inside(folder, name)
        pair.append(_side(path, vocabulary, build))
    return pair[0], pair[1]


def _side(file: Path, vocabulary: Path, build: backends.BuildSettings) -> tokenizers.Tokenizer:
    model, vocab = backends.read_spiece(file), backends.read_vocab(vocabulary)
    _check(file, model, vocabulary, vocab, build)
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind == spiece.NORMAL}
    characters = _classified(file, scores, vocab)
    tokens = sorted(vocab, key=lambda token: vocab[token])
    unknown = build.special_tokens["unk_token"]
    backend = tokenizers.Tokenizer(
        models.Unigram([(token, scores.get(token, _NEVER)) for token in tokens], unk_id=vocab[unknown])
    )
    backend.normalizer = _normalizer(file, model, characters, vocab)
    backend.pre_tokenizer = _splitter(characters)
    words = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    backend.decoder = decoders.Sequence([words, decoders.Fuse(), decoders.Replace(Regex("^ +| +$"), "")])
    special = [build.special_tokens[name] for name in ("eos_token", "unk_token", "pad_token")]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    codes = [token for token in tokens if _LANGUAGE.fullmatch(token)]
    backend.add_tokens([AddedToken(token, normalized=False) for token in codes])
    backends.surround(backend, build, vocabulary)
    return backend


def _check(
    file: Path,
    model: spiece.SentencePieceModel,
    vocabulary: Path,
    vocab: Mapping[str, int],
    build: backends.BuildSettings,
) -> None:
    """Checks that a model and its vocabulary can be combined."""
    symbols = any(piece.kind == spiece.USER_DEFINED for piece in model.pieces)
    if model.algorithm != spiece.UNIGRAM or model.byte_fallback or not model.default_spaces or symbols:
        raise TokenizerError(
            f"{file} is a SentencePiece model with byte fallback, user-defined symbols, other rules for spaces, or an "
            "algorithm other than Unigram, which is not supported for Marian"
        )
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise TokenizerError(f"{vocabulary} must have the ids from 0 to {len(vocab) - 1}, each once")
    lacking = [build.special_tokens[name] for name in ("eos_token", "unk_token", "pad_token")]
    lacking = [token for token in lacking if token not in vocab]
    if lacking:
        raise TokenizerError(f"{vocabulary} lacks special tokens. Expected: {', '.join(map(repr, lacking))}")


def _classified(file: Path, scores: Mapping[str, float], vocab: Mapping[str, int]) -> _Characters:
    """Returns the characters that the pieces know, and those that are pieces which the vocabulary lacks."""
    missing = [piece for piece in scores if piece not in vocab]
    lacking = frozenset(piece for piece in missing if len(piece) == 1)
    other = [piece for piece in missing if piece.removeprefix(_SPACE) not in lacking]
    if other:
        logger.warning(
            "%s has %d pieces that the vocabulary lacks, such as %s. They are split into pieces that it has, whereas "
            "transformers reads each as one unknown token",
            file,
            len(other),
            ", ".join(map(repr, other[:5])),
        )
    known = frozenset("".join(piece for piece in scores if piece in vocab)) - lacking
    spaced = {character for character in lacking if _SPACE + character in scores}
    starts = frozenset(character for character in spaced if _SPACE + character in vocab)
    return _Characters(known, lacking, frozenset(spaced - starts), starts)


def _normalizer(
    file: Path, model: spiece.SentencePieceModel, characters: _Characters, vocab: Collection[str]
) -> normalizers.Normalizer:
    """Returns the rules of the file, marks of the starts of words, and one character for each unknown token."""
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        with tokenizer_errors(f"{file} contains damaged normalization rules"):
            steps += [normalizers.NFC(), normalizers.Precompiled(model.charsmap)]
    steps += [normalizers.Strip(), normalizers.Replace(Regex(" +"), _SPACE), normalizers.Prepend(_SPACE)]
    steps += [normalizers.Replace(_SPACE + character, character) for character in sorted(characters.words)]
    unknown, allowed = characters.unknown, characters.known | characters.lacking
    whole = sorted(token for token in vocab if not allowed & set(token))
    if whole:  # otherwise, no part of a run is a token
        other = f"(?!(?:{'|'.join(map(_escaped, whole))})(?!{unknown}))"
        some = f"(?={unknown}*[{_escaped(sorted(set().union(*whole)))}])"
        steps.append(normalizers.Replace(Regex(f"(?<!{unknown}){other}{some}{unknown}+"), _stand_in(vocab)))
    return normalizers.Sequence(steps)


def _splitter(characters: _Characters) -> pre_tokenizers.PreTokenizer:
    """Returns the rules that separate words, lacking characters and runs of unknown ones."""
    steps: list[pre_tokenizers.PreTokenizer] = []
    for separated, before in ((characters.lacking - characters.starts, ""), (characters.starts, f"(?<!{_SPACE})")):
        if separated:
            steps.append(pre_tokenizers.Split(Regex(f"{before}[{_escaped(sorted(separated))}]"), "isolated"))
    steps.append(pre_tokenizers.Split(Regex(f"{characters.unknown}+"), "isolated"))
    steps.append(pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="never"))
    return pre_tokenizers.Sequence(steps)


def _stand_in(vocab: Iterable[str]) -> str:
    """Returns a character that no token contains, which stands for an unknown token."""
    used = set().union(*vocab)
    return next(character for character in map(chr, range(0xE000, 0xF900)) if character not in used)


def _escaped(characters: str | Sequence[str]) -> str:
    """Returns characters for a regular expression of Rust or JavaScript, inside or outside of brackets."""
    return "".join(
        f"\\x{ord(character):02x}" if ord(character) < 128 and not character.isalnum() else character
        for character in characters
    )
