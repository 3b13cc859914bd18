"""Vocabulary shortlists: the target tokens that the tokens of a source text may be translated to."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from kerasformer.arguments import check, integer
from kerasformer.errors import InputError, SourceError, TokenizerError
from kerasformer.files import local_path, read_bytes
from kerasformer.generation.lexicon import learn_lexicon
from kerasformer.tokenization import Tokenizer

_SEPARATORS = frozenset(" \t\n\r")
"""Characters that cannot be part of a token in a file."""


class Shortlist:
    """A vocabulary shortlist, for the argument `shortlist` of generation.

    The candidates for a text are those of its tokens and phrases, the candidates for all texts, and the special tokens.
    A text with a token for which the shortlist has no candidates may contain the whole vocabulary.

    The file format is that of CTranslate2's `vmap.txt`. Each line is a token of the source, or a phrase of several
    tokens separated by spaces; a tab; and the candidates, separated by spaces. The line without a source token has the
    candidates for all texts.

    Args:
        tokenizer: Tokenizer of the model.
        phrases: Candidates `(K,)` by the ids of source tokens or phrases.
        frequent: Candidates for all texts.
    """

    def __init__(
        self, tokenizer: Tokenizer, phrases: Mapping[tuple[int, ...], np.ndarray], frequent: Iterable[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._phrases = dict(phrases)
        self._sizes = sorted({len(phrase) for phrase in self._phrases})
        self._frequent = np.unique(np.array([*frequent], np.int64))
        self._added = np.array(tokenizer.writer.all_special_ids, np.int64)
        self._ignored = _without_candidates(tokenizer)

    @classmethod
    def learn(
        cls,
        tokenizer: Tokenizer,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        max_candidates: int = 100,
        num_frequent: int = 500,
    ) -> Self:
        """Learns a shortlist from parallel texts by IBM model 1; see `Text2TextGenerationPipeline.learn_shortlist`.

        Args:
            tokenizer: Tokenizer of the model.
            sources: Token ids of each text, with special tokens.
            targets: Token ids of its translation, without special tokens.
            max_candidates: Maximum number of candidates for a source token: its most probable translations.
            num_frequent: Number of candidates for all texts: the most frequent tokens of the translations.

        Raises:
            InputError: there are no texts, or the numbers of texts and translations differ.
        """
        count = check("max_candidates", max_candidates, integer(1))
        most = check("num_frequent", num_frequent, integer(0))
        if len(sources) != len(targets):
            raise InputError(f"Each text needs a translation. Received: {len(sources)} texts, {len(targets)} of these")
        rows = [(np.array(source), np.array(target)) for source, target in zip(sources, targets, strict=True)]
        rows = [(source, target) for source, target in rows if len(source) and len(target)]
        if not rows:
            raise InputError("At least one text with a translation that is not empty was expected. Received: none")
        lexicon = learn_lexicon(*map(list, zip(*rows, strict=True)))
        ignored = _without_candidates(tokenizer) | _unwritable(tokenizer)
        unwritable = np.array([*_unwritable(tokenizer.writer)], np.int64)
        phrases: dict[tuple[int, ...], np.ndarray] = {
            (token,): np.setdiff1d(best, unwritable) for token, best in lexicon.best(count) if token not in ignored
        }
        counts = Counter(token for _, target in rows for token in target.tolist())
        for token in unwritable.tolist():
            counts.pop(token, None)
        frequent = sorted(counts, key=lambda token: (-counts[token], token))[:most]
        return cls(tokenizer, phrases, frequent)

    @classmethod
    def read(cls, path: str | os.PathLike[str], tokenizer: Tokenizer) -> Self:
        """Reads a shortlist from a file.

        Args:
            path: File, as `write` and tools for CTranslate2 write it.
            tokenizer: Tokenizer of the model.

        Raises:
            SourceError: the file is missing, empty, truncated or of another format.
            TokenizerError: it contains tokens that are not in the vocabulary of the model.
        """
        file = local_path(path)
        try:
            content = read_bytes(file).decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is not a shortlist: it is not in UTF-8 ({error}). {_EXPECTED}") from error
        if not content.strip():
            raise SourceError(f"{file} is empty. {_EXPECTED}")
        if not content.endswith("\n"):
            raise SourceError(f"{file} is truncated: its last line has no end. Write or download the file again")
        lines = [line.removesuffix("\r").split("\t") for line in content.removesuffix("\n").split("\n")]
        for number, line in enumerate(lines, 1):
            if len(line) != 2:
                raise SourceError(f"{file} is not a shortlist. {_EXPECTED}. Received in line {number}: {line[0]!r:.80}")
        rows = [tuple([each for each in side.split(" ") if each] for side in line) for line in lines]
        vocabularies = [each.get_vocab() for each in (tokenizer, tokenizer.writer)]
        for name, side, vocabulary in zip(("source", "target"), zip(*rows, strict=True), vocabularies, strict=True):
            _check_known(file, name, {token for tokens in side for token in tokens}, vocabulary)
        source_ids, target_ids = vocabularies
        read = {
            tuple(source_ids[each] for each in phrase): np.array([target_ids[each] for each in candidates], np.int64)
            for phrase, candidates in rows
        }
        if () not in read:
            raise SourceError(
                f"{file} has no candidates for all texts, in a line that begins with a tab. This is the last line of a "
                "shortlist: the file is truncated, or made by another tool. Write or download it again, or add a line "
                "with the most frequent tokens"
            )
        return cls(tokenizer, read, read.pop(()))

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the shortlist to a file and returns its path.

        Raises:
            TokenizerError: a token contains a space or a line break, for which the format has no place.
        """
        file = local_path(path)
        source, target = ({i: token for token, i in each.get_vocab().items()} for each in self._sides)
        rows = [*sorted(self._phrases.items()), ((), self._frequent)]
        lines = [[[source[each] for each in phrase], [target[each] for each in ids.tolist()]] for phrase, ids in rows]
        for token in {token for line in lines for side in line for token in side}:
            if not _SEPARATORS.isdisjoint(token):
                raise TokenizerError(
                    "The file of a shortlist cannot contain tokens with spaces or line breaks. Received: the token "
                    f"{token!r}, which occurs in the texts"
                )
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        text = "".join(f"{' '.join(phrase)}\t{' '.join(candidates)}\n" for phrase, candidates in lines)
        temporary.write_text(text, encoding="utf-8", newline="")
        return temporary.replace(file)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Checks that the vocabularies are those of the shortlist.

        Raises:
            TokenizerError: a vocabulary differs.
        """
        if tokenizer.backend is self._tokenizer.backend:
            return
        names = zip(("source", "target"), self._sides, (tokenizer, tokenizer.writer), strict=True)
        for name, expected, received in names:
            if expected.get_vocab() != received.get_vocab():
                raise TokenizerError(
                    f"The shortlist is that of another {name} vocabulary. Expected: that of the model, with "
                    f"{received.vocab_size} tokens. Received: one of {expected.vocab_size} tokens. Learn a shortlist "
                    "for this model, or read the file with its tokenizer"
                )

    def candidates(self, tokens: np.ndarray) -> np.ndarray | None:
        """Returns the tokens that the translation of a text may contain.

        Args:
            tokens: `(N,)` token ids of the text.
        Returns:
            `(K,)` token ids in ascending order; `None` for the whole vocabulary.
        """
        ids = np.asarray(tokens).tolist()
        found, known = [self._frequent, self._added], [token in self._ignored for token in ids]
        for size in self._sizes:
            for start in range(len(ids) - size + 1):
                candidates = self._phrases.get(tuple(ids[start : start + size]))
                if candidates is not None:
                    found.append(candidates)
                    known[start : start + size] = [True] * size
        return np.unique(np.concatenate(found)) if all(known) else None

    def with_tokens(self, tokens: Sequence[int]) -> Self:
        """Returns a shortlist with these further candidates for every text."""
        other = copy.copy(self)
        other._added = np.concatenate([self._added, np.array([*tokens], np.int64)])
        return other

    def __len__(self) -> int:
        """Number of source tokens and phrases."""
        return len(self._phrases)

    @property
    def _sides(self) -> tuple[Tokenizer, Tokenizer]:
        return self._tokenizer, self._tokenizer.writer


_EXPECTED = "Expected: lines of a source token, a tab, and candidates separated by spaces, as in CTranslate2's vmap.txt"


def _without_candidates(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the source tokens that need no candidates: special ones, except for that of unknown text."""
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def _unwritable(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the tokens that a file cannot contain; a shortlist does without them, so that its file is equal."""
    return frozenset(index for token, index in tokenizer.get_vocab().items() if not _SEPARATORS.isdisjoint(token))


def shortlist_of(value: Any, tokenizer: Tokenizer) -> Shortlist:
    """Returns the value of the argument `shortlist`: a `Shortlist`, or the path of its file.

    Raises:
        SourceError: the file cannot be read.
        TokenizerError: the shortlist is that of another vocabulary.
    """
    if not isinstance(value, Shortlist):
        return Shortlist.read(value, tokenizer)
    value.check_tokenizer(tokenizer)
    return value


def _check_known(file: Path, name: str, tokens: set[str], vocabulary: Mapping[str, int]) -> None:
    unknown = sorted(token for token in tokens if token not in vocabulary)
    if unknown:
        shown = ", ".join(map(repr, unknown[:3]))
        raise TokenizerError(
            f"{file} is the shortlist of another vocabulary: {len(unknown)} of its {len(tokens)} {name} tokens are not "
            f"in the vocabulary of the model, such as {shown}. Learn a shortlist for this model"
        )
