"""Tokenizer of BERTweet: BPE over the characters of words, and an optional normalization of tweets.

The Rust library cannot express it: pieces that merges form but the vocabulary lacks are unknown, and the normalization
follows rules for tweets. `BertweetBackend` therefore has those methods of `tokenizers.Tokenizer` that `Tokenizer` uses.

Paper: Nguyen et al. 2020, "BERTweet: A pre-trained language model for English Tweets", arXiv:2005.10200.
Reference: `transformers.models.bertweet`; its rules for words are those of NLTK's `TweetTokenizer`.
"""

from __future__ import annotations

import html.entities
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from kerasformer.errors import TokenizerError, require

logger = logging.getLogger("kerasformer")

VOCABULARY, MERGES = "vocab.txt", "bpe.codes"
_END = "</w>"
"""Suffix of the last piece of a word in the rules for merging."""
_INNER = "@@"
"""Suffix of all other pieces in the vocabulary."""

Span = tuple[int, int]
"""Start and end in the original text."""


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

    def replaced(self, pattern: Any, content: str | Callable[[Any], str]) -> TracedText:
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

    def words(self, pattern: Any) -> Iterator[TracedText]:
        """Yields the matches of a compiled regular expression."""
        for match in pattern.finditer(self.text):
            yield self[match.start() : match.end()]


@dataclass
class PythonEncoding:
    """One encoded text or pair of texts, with the attributes of `tokenizers.Encoding`."""

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[Span] = field(default_factory=list)
    word_ids: list[int | None] = field(default_factory=list)
    sequence_ids: list[int | None] = field(default_factory=list)
    special_tokens_mask: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def attention_mask(self) -> list[int]:
        """1 for each token."""
        return [1] * len(self)

    @property
    def type_ids(self) -> list[int]:
        """0 for each token."""
        return [0] * len(self)

    def add(
        self, token: str, index: int, span: Span = (0, 0), word: int | None = None, text: int | None = None
    ) -> None:
        """Appends a token; one without a text is a special token that the tokenizer added."""
        self.ids.append(index)
        self.tokens.append(token)
        self.offsets.append(span)
        self.word_ids.append(word)
        self.sequence_ids.append(text)
        self.special_tokens_mask.append(int(text is None))


class TweetBPE:
    """Kind of the model of a `BertweetBackend`."""


class BertweetBackend:
    """Tokenizer of BERTweet with the methods of `tokenizers.Tokenizer`.

    Args:
        folder: Folder with `vocab.txt`, whose lines are a token and a number, and `bpe.codes`, whose lines are the two
            parts of a merge and a number.
        special_tokens: Mapping from names such as `"pad_token"` to tokens.
        normalization: Whether to normalize texts: users become `@USER`, links `HTTPURL`, and emoji their names.

    Raises:
        TokenizerError: a file is damaged.
        MissingExtraError: `normalization` without the package `regex`.
    """

    normalizer = pre_tokenizer = post_processor = decoder = None
    model = TweetBPE()

    def __init__(self, folder: Path, special_tokens: Mapping[str, str], normalization: bool = False) -> None:
        lines = _read(folder / VOCABULARY).removesuffix("\n").split("\n")
        rules = _read(folder / MERGES).split("\n")[:-1]
        self.files = {VOCABULARY: "\n".join(lines), MERGES: "\n".join(rules)}
        self.normalization = normalization
        self._special = special_tokens
        self._added: dict[int, AddedToken] = {}
        self._vocab: dict[str, int] = {}
        for name in ("bos_token", "pad_token", "eos_token", "unk_token"):
            self._vocab[special_tokens[name]] = len(self._vocab)
        for number, line in enumerate(lines, 1):
            token, space, _ = line.strip().rpartition(" ")
            if not space:
                raise TokenizerError(
                    f"{folder / VOCABULARY} must have a token and a number in each line. Received: {line[:50]!r} in "
                    f"line {number}"
                )
            self._vocab[token] = len(self._vocab)
        self._ranks = {tuple(line.split()[:-1]): rank for rank, line in enumerate(rules)}
        if any(len(parts) != 2 for parts in self._ranks):
            raise TokenizerError(f"{folder / MERGES} must have two parts and a number in each line")
        self._names = {index: token for token, index in self._vocab.items()}
        self._pieces = lru_cache(maxsize=50_000)(self._merged)
        self._normalize = TweetNormalizer() if normalization else None
        self.add_special_tokens([AddedToken(token, normalized=False) for token in special_tokens.values()])

    def to_str(self, pretty: bool = False) -> str:
        """Raises a `TokenizerError`, since `tokenizer.json` cannot express this tokenizer."""
        raise TokenizerError(
            "The rules of BERTweet's tokenizer cannot be expressed in tokenizer.json, which is required here. "
            "Expected: a runtime that takes token ids, or kerasformer's pipelines. Received: a BertweetTokenizer"
        )

    def no_truncation(self) -> None:
        """Does nothing, since this tokenizer never truncates."""

    def no_padding(self) -> None:
        """Does nothing, since this tokenizer never pads."""

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Returns the ids of all tokens."""
        return dict(self._vocab)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Returns the number of tokens."""
        return len(self._vocab)

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, or `None`."""
        return self._vocab.get(token)

    def id_to_token(self, index: int) -> str | None:
        """Returns the token of an id, or `None`."""
        return self._names.get(index)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Returns the tokens that are matched before a text is split, by id."""
        return dict(sorted(self._added.items()))

    def add_tokens(self, tokens: Sequence[AddedToken]) -> int:
        """Adds tokens that are matched before a text is split; returns their number."""
        for token in tokens:
            index = self._vocab.setdefault(token.content, len(self._vocab))
            self._names[index] = token.content
            self._added[index] = token
        contents = sorted(self._added.values(), key=lambda token: -len(token.content))
        spaced = [
            (r"\s*" if token.lstrip else "") + re.escape(token.content) + (r"\s*" if token.rstrip else "")
            for token in contents
        ]
        self._split = re.compile("|".join(spaced))
        return len(tokens)

    def add_special_tokens(self, tokens: Sequence[AddedToken]) -> int:
        """Adds special tokens, which decoding may skip; returns their number."""
        return self.add_tokens([_special(token) for token in tokens])

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Returns the number of special tokens around a text or a pair of texts."""
        return 4 if pair else 2

    def encode(self, text: Any, pair: Any = None, add_special_tokens: bool = True) -> PythonEncoding:
        """Encodes a text or a pair of texts, each a string or a list of words."""
        cls, sep = (self._special[name] for name in ("cls_token", "sep_token"))
        encoding = PythonEncoding()
        for index, part in enumerate([text] if pair is None else [text, pair]):
            if add_special_tokens:
                for token in [cls] if index == 0 else [sep]:
                    encoding.add(token, self._vocab[token])
            self._encode(part, index, encoding)
            if add_special_tokens:
                encoding.add(sep, self._vocab[sep])
        return encoding

    def encode_batch(
        self, inputs: Sequence[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[PythonEncoding]:
        """Encodes texts, and tuples of two texts."""
        pairs = [row if isinstance(row, tuple) else (row, None) for row in inputs]
        return [self.encode(text, pair, add_special_tokens) for text, pair in pairs]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Converts ids to text; ids that are not in the vocabulary are skipped."""
        skipped = {index for index, token in self._added.items() if token.special} if skip_special_tokens else set()
        tokens = [self._names[index] for index in ids if index in self._names and index not in skipped]
        return " ".join(tokens).replace(f"{_INNER} ", "").strip()

    def _encode(self, text: str | Sequence[str], sequence: int, encoding: PythonEncoding) -> None:
        """Appends the tokens of a text or of a list of words."""
        unknown = self._vocab[self._special["unk_token"]]
        parts = [text] if isinstance(text, str) else text
        count = 0
        for number, part in enumerate(parts):
            part.encode()  # raises an error for lone surrogates, as the Rust library does
            for word, added in self._words(TracedText(part)):
                start = 0
                for token in [added] if added is not None else self._pieces(word.text):
                    end = len(word.text) if added is not None else start + len(token.removesuffix(_INNER))
                    span = word.spans[start][0], word.spans[end - 1][1]
                    index = self._vocab.get(token, unknown)
                    encoding.add(self._names[index], index, span, count if parts[0] is text else number, sequence)
                    start = end
                count += 1

    def _words(self, text: TracedText) -> Iterator[tuple[TracedText, str | None]]:
        """Yields the words of a text; added tokens with their content."""
        end = 0
        for match in self._split.finditer(text.text):
            yield from ((word, None) for word in self._plain_words(text[end : match.start()]))
            content = match.group().strip()
            first = match.start() + match.group().index(content)
            yield text[first : first + len(content)], content
            end = match.end()
        yield from ((word, None) for word in self._plain_words(text[end : len(text.text)]))

    def _plain_words(self, text: TracedText) -> Iterator[TracedText]:
        """Yields the words of a text without added tokens; one before a line end includes it."""
        return text.words(_WORD) if self._normalize is None else self._normalize(text).words(_NORMAL_WORD)

    def _merged(self, word: str) -> tuple[str, ...]:
        """Splits a word into pieces: neighbours are merged in the order of the rules."""
        parts = [*word[:-1], word[-1] + _END]
        while len(parts) > 1:
            pairs = set(zip(parts, parts[1:], strict=False))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return (*(f"{part}{_INNER}" for part in parts[:-1]), parts[-1].removesuffix(_END))


_WORD, _NORMAL_WORD = re.compile(r"\S+\n?"), re.compile(r"\S+")


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
        """Returns the normal form of a word."""
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


def _entity(match: Any) -> str:
    """Returns the character of an HTML entity; `""` for an unknown one."""
    numeric, hexadecimal, body = match.groups()
    try:
        number = int(body, 16 if hexadecimal else 10) if numeric else html.entities.name2codepoint[body]
        if numeric and 0x80 <= number <= 0x9F:  # browsers read these as characters of Windows-1252
            return bytes([number]).decode("cp1252")
        return chr(number)
    except (KeyError, ValueError, OverflowError):
        return ""


def _special(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=True,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
