"""Tokenizer of BERTweet: byte-pair encoding of words, and an optional normalization of tweets.

Paper: Nguyen et al. 2020, "BERTweet: A pre-trained language model for English Tweets", arXiv:2005.10200.
Reference: `transformers.models.bertweet`; its rules for words are those of NLTK's `TweetTokenizer`.
"""

from __future__ import annotations

import html.entities
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import models

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import TokenizerError
from kerasformer.extras import require
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import backends
from kerasformer.tokenization.families import Family
from kerasformer.tokenization.pieces import ContinuedPieceTokenizer, Span
from kerasformer.tokenization.settings import NAMED_TOKENS, Settings

if TYPE_CHECKING:
    import regex

logger = logging.getLogger("kerasformer")

VOCABULARY, MERGES = "vocab.txt", "bpe.codes"


class BertweetTokenizer(ContinuedPieceTokenizer):
    """Tokenizer of BERTweet.

    Args:
        backend: Tokenizer of the `tokenizers` library that looks up pieces and adds special tokens.
        normalization: Whether to normalize texts: users become `@USER`, links `HTTPURL`, and emoji their names.
        kwargs: Arguments of `ContinuedPieceTokenizer`.

    Raises:
        MissingExtraError: `normalization` without the package `regex`.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, normalization: bool = False, **kwargs: Any) -> None:
        super().__init__(backend, **kwargs)
        self.normalization = normalization
        self._normalize = TweetNormalizer() if normalization else None

    def words(self, text: str) -> Iterator[tuple[str, Sequence[Span]]]:
        """See `PieceTokenizer.words`; a word before a line end includes it, unless the text is normalized."""
        if self._normalize is None:
            return super().words(text)
        return ((word.text, word.spans) for word in self._normalize(TracedText(text)).words(_NORMAL_WORD))

    def _vocabulary_files(self) -> dict[str, str]:
        special = {self._special_tokens[name] for name in _FIRST}
        vocabulary = sorted(self.backend.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
        return {
            VOCABULARY: "\n".join(f"{token} {index}" for token, index in vocabulary if token not in special),
            MERGES: "\n".join(f"{first} {second} 0" for first, second in self._merges),
        }

    def _class_settings(self) -> JsonObject:
        added = self.backend.get_added_tokens_decoder().items()
        names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return {
            "tokenizer_class": "BertweetTokenizer",
            "normalization": self.normalization,
            "added_tokens_decoder": {
                str(index): {name: getattr(token, name) for name in names} for index, token in added
            },
        }


_FIRST = ("bos_token", "pad_token", "eos_token", "unk_token")
"""Names of the tokens that precede those of `vocab.txt`."""


def lookup(folder: Path, settings: backends.BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer that looks up pieces: those of `vocab.txt`, whose lines are a token and a number.

    Raises:
        TokenizerError: the file is damaged.
    """
    vocabulary: dict[str, int] = {}
    for name in _FIRST:
        vocabulary[settings.special_tokens[name]] = len(vocabulary)
    for number, line in enumerate(_read(folder / VOCABULARY).removesuffix("\n").split("\n"), 1):
        token, space, _ = line.strip().rpartition(" ")
        if not space or token in vocabulary:
            raise TokenizerError(
                f"{folder / VOCABULARY} must have a new token and a number in each line. Received: {line[:50]!r} in "
                f"line {number}"
            )
        vocabulary[token] = len(vocabulary)
    for name in NAMED_TOKENS:  # usually, only the mask token is missing
        if name in settings.special_tokens:
            vocabulary.setdefault(settings.special_tokens[name], len(vocabulary))
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=settings.special_tokens["unk_token"]))
    # As in the reference, only `added_tokens_decoder` gives a token flags, such as the spaces that it includes.
    listed = (settings.options.get("added_tokens_decoder") or {}).values()
    flagged = {token["content"] for token in listed if isinstance(token, dict) and "content" in token}
    backend.add_special_tokens([token for token in settings.special_tokens.values() if token not in flagged])
    backends.surround(backend, settings, folder / VOCABULARY)
    return backend


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `BertweetTokenizer` in addition to those of `Tokenizer`.

    Raises:
        TokenizerError: `bpe.codes` is damaged, whose lines are the two parts of a merge and a number.
    """
    rules = [tuple(line.split()[:-1]) for line in _read(folder / MERGES).split("\n")[:-1]]
    if any(len(parts) != 2 for parts in rules):
        raise TokenizerError(f"{folder / MERGES} must have two parts and a number in each line")
    return {"merges": rules, "normalization": bool(settings.options.get("normalization", False))}


class TracedText:
    """A text that is changed by replacements, with the part of the original text that each character stems from.

    Args:
        text: The present text.
        spans: The part of the original text of each character; by default, the text is the original.
    """

    def __init__(self, text: str, spans: Sequence[Span] | None = None) -> None:
        self.text = text
        self.spans = [(index, index + 1) for index in range(len(text))] if spans is None else list(spans)

    def __getitem__(self, part: slice) -> TracedText:
        return TracedText(self.text[part], self.spans[part])

    def replaced(self, pattern: regex.Pattern[str], content: str | Callable[[regex.Match[str]], str]) -> TracedText:
        """Replaces all matches of a compiled regular expression; new characters stem from the whole match."""
        parts: list[str] = []
        spans: list[Span] = []
        end = 0
        for match in pattern.finditer(self.text):
            new = content if isinstance(content, str) else content(match)
            start, last = match.span()
            parts += [self.text[end:start], new]
            spans += self.spans[end:start]
            spans += [(self.spans[start][0], self.spans[last - 1][1])] * len(new)
            end = last
        return TracedText("".join([*parts, self.text[end:]]), [*spans, *self.spans[end:]])

    def words(self, pattern: regex.Pattern[str]) -> Iterator[TracedText]:
        """Yields the matches of a compiled regular expression."""
        for match in pattern.finditer(self.text):
            yield self[match.start() : match.end()]


_NORMAL_WORD = re.compile(r"\S+")


class TweetNormalizer:
    """Normalization of tweets: words are separated by spaces; users, links, emoji and contractions get fixed forms.

    Raises:
        MissingExtraError: the package `regex` is not installed.
    """

    def __init__(self) -> None:
        regex: Any = require("regex", "tweets")
        self._word = regex.compile("|".join(_TWEET_WORDS), regex.VERBOSE | regex.IGNORECASE)
        self._repeated = regex.compile(r"([^a-zA-Z0-9])\1{3,}")
        try:
            import emoji
        except ImportError:
            logger.warning("The package emoji is not installed, so that the emoji of tweets are not replaced by names")
            self._name_of: Callable[[str], str] = str
        else:
            self._name_of = emoji.demojize

    def __call__(self, text: TracedText) -> TracedText:
        """Normalizes a text."""
        for pattern, content in _PUNCTUATION:
            text = text.replaced(pattern, content)
        text = text.replaced(_ENTITY, _entity).replaced(self._repeated, lambda match: match[1] * 3)
        words, spans = list[str](), list[Span]()
        for word in text.words(self._word):
            words.append(self._normal(word.text))
            changed = [(word.spans[0][0], word.spans[-1][1])] * len(words[-1])
            space = [(spans[-1][1], spans[-1][1])] if spans else []
            spans += [*space, *(word.spans if words[-1] == word.text else changed)]
        text = TracedText(" ".join(words), spans)
        for pattern, content in _CONTRACTIONS:
            text = text.replaced(pattern, content)
        return text

    def _normal(self, word: str) -> str:
        if word.startswith("@"):
            return "@USER"
        if word.lower().startswith(("http", "www")):
            return "HTTPURL"
        return self._name_of(word) if len(word) == 1 else word


def _patterns(*pairs: tuple[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(re.escape(old)), new) for old, new in pairs]


_PUNCTUATION = _patterns(("’", "'"), ("…", "..."))
# In this order, as in the reference.
_CONTRACTIONS = _patterns(
    ("cannot ", "can not "),
    ("n't ", " n't "),
    ("n 't ", " n't "),
    ("ca n't", "can't"),
    ("ai n't", "ain't"),
    *((f"'{end} ", f" '{end} ") for end in ("m", "re", "s", "ll", "d", "ve")),
    (" p . m .", "  p.m."),
    (" p . m ", " p.m "),
    (" a . m .", " a.m."),
    (" a . m ", " a.m "),
)
_ENTITY = re.compile(r"&(#?(x?))([^&;\s]+);")
_MOUTH = r"[)\](\[dp/:}{@|\\]"
_NESTED = r"\([^\s()]*?\([^\s()]+\)[^\s()]*?\) | \([^\s]+?\)"
_TWEET_WORDS = (
    # Links with a protocol or a path, and names of sites.
    rf"""(?: https?: (?: /{{1,3}} | [a-z0-9%] ) | [a-z0-9.\-]+ [.] [a-z]{{2,13}} / )
    (?: [^\s()<>{{}}\[\]]+ | {_NESTED} )+
    (?: {_NESTED} | [^\s`!()\[\]{{}};:'".,<>?«»“”‘’] )""",
    r"(?<!@) [a-z0-9]+ (?: [.\-] [a-z0-9]+ )* [.] [a-z]{2,13} \b /? (?!@)",
    # Phone numbers.
    r"(?: (?: \+?[01] [ *\-.)]* )? (?: [(]? \d{3} [ *\-.)]* )? \d{3} [ *\-.)]* \d{4} )",
    # Emoticons, tags of HTML, arrows.
    rf"(?: [<>]? [:;=8] [\-o*']? {_MOUTH} | {_MOUTH} [\-o*']? [:;=8] [<>]? | <3 )",
    r"<[^>\s]+>",
    r"-+> | <-+",
    # Users, hashtags, mail addresses.
    r"@\w+",
    r"\#+ \w+ [\w'\-]* \w+",
    r"[\w.+\-]+ @ [\w\-]+ \. (?: [\w\-] \.? )+ [\w\-]",
    # Words with apostrophes or hyphens, numbers with separators, other words, dots, single characters.
    r"[^\W\d_] (?: [^\W\d_] | ['\-_] )+ [^\W\d_]",
    r"[+\-]? \d+ [,/.:\-] \d+ [+\-]?",
    r"\w+",
    r"\. (?: \s* \. )+",
    r"\S",
)


def _entity(match: regex.Match[str]) -> str:
    """Returns the character of an HTML entity; `""` for an unknown one."""
    numeric, hexadecimal, body = match.groups()
    try:
        number = int(body, 16 if hexadecimal else 10) if numeric else html.entities.name2codepoint[body]
        if numeric and 0x80 <= number <= 0x9F:  # browsers read these as characters of Windows-1252
            return bytes([number]).decode("cp1252")
        return chr(number)
    except (KeyError, ValueError, OverflowError):
        return ""


def _read(path: Path) -> str:
    try:
        return backends.inside(path.parent, path.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
