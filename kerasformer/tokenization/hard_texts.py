"""Texts that other implementations of a tokenizer may tokenize differently, with their ids; part of every bundle.

Libraries in JavaScript, Swift, C++ and Java load the same `tokenizer.json`, but may silently implement fewer or
different rules than the Rust library. These texts reveal such differences: fixed texts with many scripts, spaces and
symbols, and texts of tokens of the vocabulary and of characters in the tokenizer's rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kerasformer.errors import InputError
from kerasformer.tokenization.tokenizer import Tokenizer

FILE = "tokenizer_texts.json"
"""File in a bundle: `[{"text": "…", "ids": [2, …, 3]}, …]`, where the ids include special tokens."""

_FIXED = (
    "A plain sentence, and another one.",
    "MANY Capitals IN HERE",
    "  two  spaces, a\ttab\nand a line\r\n at the end  ",
    "The café was naïve: ÀÉÎÕÜ, e\u0301 a\u0308\u0323",
    "ΟΔΟΣ Σίσυφος ς, İstanbul ıI, die Straße ẞ",
    "Привет, мир! Ёлка",
    "今日は天気。测试，好！한국어 안녕",
    "שָׁלוֹם العربية हिन्दी ภาษาไทย",
    "emoji 👩‍👩‍👧 🇩🇪 👍🏽 ❤️ 🙂 done",
    "I'm don't we'LL it's ``so'' ''said''",
    "1234567 3.14 1,000 ½ x² ２ ① ﬁ ™",
    "no\u00a0break, zero\u200bwidth, soft\u00adhyphen",
    "a_b-c/d\\e|f#g@h$i%j^k&l*m(n)o{p}q[r]s<t>u~v`w=x+y;z",
    "https://example.org/a?b=c&d=1 x@y.z !!! ... ?!",
    "word" * 30,
)
_NUM_SPREAD, _NUM_LONGEST, _TOKENS_PER_TEXT = 24, 8, 8
"""Number of tokens spread over the vocabulary, number of longest tokens, and number of tokens that form one text."""
_MAX_TEXTS = 8
"""Maximum number of texts for added tokens, and for rules."""
_TEXT_KEYS = ("String", "content", "prepend", "delimiter", "replacement")
"""Keys of a rule in `tokenizer.json` whose values are text."""


def hard_texts(tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Returns texts and their ids, including special tokens; without texts that a pruned vocabulary refuses."""
    texts = dict.fromkeys((*_FIXED, *_of_tokens(tokenizer), *_of_added_tokens(tokenizer), *_of_rules(tokenizer)))
    return [(text, ids) for text in texts if (ids := _ids(tokenizer, text)) is not None]


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the texts into a folder; non-ASCII characters are escaped, so that no editor changes them."""
    rows = [json.dumps({"text": text, "ids": ids}) for text, ids in hard_texts(tokenizer)]
    (folder / FILE).write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def _ids(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """Returns the ids of a text, or `None` if it contains characters that were removed from the vocabulary."""
    try:
        return tokenizer.encode(text)
    except InputError:
        if tokenizer.dropped_characters:
            return None
        raise


def _of_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Yields texts of several tokens, decoded one by one and together."""
    special = set(tokenizer.all_special_ids)
    ids = sorted(index for index in tokenizer.get_vocab().values() if index not in special)
    spread = ids[:: max(1, len(ids) // _NUM_SPREAD)][:_NUM_SPREAD]
    longest = sorted(ids, key=lambda index: (-len(tokenizer.id_to_token(index) or ""), index))[:_NUM_LONGEST]
    words = {index: tokenizer.decode([index]).strip() for index in (*spread, *longest)}
    chosen = [index for index, word in words.items() if _is_text(word)]
    for start in range(0, len(chosen), _TOKENS_PER_TEXT):
        group = chosen[start : start + _TOKENS_PER_TEXT]
        yield " ".join(words[index] for index in group)
        yield tokenizer.decode(group).replace("\ufffd", "")


def _of_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Yields texts with added tokens, which are matched before a text is split, between words and within a word."""
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    for _, token in islice(added, _MAX_TEXTS):
        yield f"one {token.content} two{token.content}three"


def _of_rules(tokenizer: Tokenizer) -> Iterator[str]:
    """Yields texts with strings from the rules of the normalizer and the pre-tokenizer."""
    content = json.loads(tokenizer.backend.to_str())
    strings = dict.fromkeys(_strings([content["normalizer"], content["pre_tokenizer"]]))
    for text in islice(filter(_is_text, strings), _MAX_TEXTS):
        yield f"one{text}two {text} three{text}{text}four{text}"


def _strings(rules: object) -> Iterator[str]:
    """Yields the strings in rules; of a regular expression, the characters that are neither letters nor digits."""
    if isinstance(rules, list):
        for rule in rules:
            yield from _strings(rule)
    if isinstance(rules, dict):
        for name, value in rules.items():
            if name == "Regex":
                yield from (character for character in value if not character.isalnum() and character.isprintable())
            elif name in _TEXT_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _strings(value)


def _is_text(text: str) -> bool:
    """Whether a text is suitable for any library: neither empty nor too long, and without incomplete characters."""
    return 0 < len(text) <= 100 and "\0" not in text and "\ufffd" not in text
