"""Texts that another implementation of a tokenizer may read otherwise, with their ids: what every bundle carries.

Libraries in JavaScript, Swift, C++ and Java read the same `tokenizer.json` and implement fewer rules than the one in
Rust, or other ones, without a word. A text of each kind shows it: fixed ones of many scripts, spaces and signs, and
ones made of the tokenizer's own tokens and of the characters that its rules name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kerasformer.tokenization.tokenizer import Tokenizer

FILE = "tokenizer_texts.json"
"""In a bundle: `[{"text": "…", "ids": [2, …, 3]}, …]`, ids with the special tokens around a text."""

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
_TOKENS, _LONGEST, _IN_A_TEXT = 24, 8, 8
"""Tokens of the vocabulary that become texts: spread over it, the longest ones, and how many make one text."""
_MOST = 8
"""Added tokens, and rules, that get a text each."""
_NAMES = ("String", "content", "prepend", "delimiter", "replacement")
"""Keys of a rule in `tokenizer.json` whose values are text."""


def hard_texts(tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Texts, and the ids that the tokenizer makes of them, special tokens around them included."""
    made = dict.fromkeys((*_FIXED, *_of_tokens(tokenizer), *_of_added_tokens(tokenizer), *_of_rules(tokenizer)))
    return [(text, tokenizer.encode(text)) for text in made]


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes them into a folder, a line each; characters beyond ASCII are escaped, so that no editor changes them."""
    rows = [json.dumps({"text": text, "ids": ids}) for text, ids in hard_texts(tokenizer)]
    (folder / FILE).write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def _of_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Tokens each by itself, and several as one text."""
    special = set(tokenizer.all_special_ids)
    ids = sorted(index for index in tokenizer.get_vocab().values() if index not in special)
    spread = ids[:: max(1, len(ids) // _TOKENS)][:_TOKENS]
    longest = sorted(ids, key=lambda index: (-len(tokenizer.id_to_token(index) or ""), index))[:_LONGEST]
    words = {index: tokenizer.decode([index]).strip() for index in (*spread, *longest)}
    chosen = [index for index, word in words.items() if _is_text(word)]
    for start in range(0, len(chosen), _IN_A_TEXT):
        group = chosen[start : start + _IN_A_TEXT]
        yield " ".join(words[index] for index in group)
        yield tokenizer.decode(group).replace("\ufffd", "")


def _of_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Tokens that are looked for before a text is split, among words and within one."""
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    for _, token in islice(added, _MOST):
        yield f"one {token.content} two{token.content}three"


def _of_rules(tokenizer: Tokenizer) -> Iterator[str]:
    """What the normalizer and the pre-tokenizer name: of a pattern, its characters that are no letters."""
    content = json.loads(tokenizer.backend.to_str())
    named = dict.fromkeys(_named([content["normalizer"], content["pre_tokenizer"]]))
    for text in islice(filter(_is_text, named), _MOST):
        yield f"one{text}two {text} three{text}{text}four{text}"


def _named(rules: Any) -> Iterator[str]:
    if isinstance(rules, list):
        for rule in rules:
            yield from _named(rule)
    if isinstance(rules, dict):
        for name, value in rules.items():
            if name == "Regex":
                yield from (character for character in value if not character.isalnum() and character.isprintable())
            elif name in _NAMES and isinstance(value, str):
                yield value
            else:
                yield from _named(value)


def _is_text(text: str) -> bool:
    """Whether it can be given to any library: not empty or long, and no part of a character."""
    return 0 < len(text) <= 100 and "\0" not in text and "\ufffd" not in text
