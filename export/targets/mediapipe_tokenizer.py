"""Our tokenizers as MediaPipe has them, or the reason why one cannot be.

MediaPipe makes the 26 letters of ASCII small, splits, looks pieces up, and puts `[CLS]` and `[SEP]` around them, by
these names; padding is 0, and masked. Of WordPiece, words of more than 100 bytes are `[UNK]`, and no accent is taken
off: https://github.com/google-ai-edge/mediapipe, `mediapipe/tasks/cc/text/tokenizers/bert_tokenizer.cc` and
`mediapipe/calculators/tensor/bert_preprocessor_calculator.cc`.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from kerasformer.errors import ExportError
from kerasformer.export.to_saved_model.double_array import double_array
from kerasformer.export.to_tflite.metadata import SENTENCEPIECE, WORDPIECE, Vocabulary
from kerasformer.tokenization import Tokenizer, spiece

_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_LONGEST_WORD = 100


def vocabulary(tokenizer: Tokenizer | None) -> Vocabulary:
    """The tokenizer as a part of a model file.

    Raises:
        ExportError: MediaPipe would make other tokens of texts; says why.
    """
    if tokenizer is None:
        raise ExportError(
            "MediaPipe reads texts with a tokenizer inside of the file. Received: a model without one. Set "
            "model.tokenizer = kerasformer.tokenizer(folder)"
        )
    content = json.loads(tokenizer.backend.to_str())
    kind = content["model"]["type"]
    if kind not in _KINDS:
        raise _refusal(f"it knows {' and '.join(_KINDS)} alone, and this one is of the kind {kind}")
    check, make = _KINDS[kind]
    for reason, holds in {**_around(tokenizer), **check(tokenizer, content)}.items():
        if holds:
            raise _refusal(reason)
    made: Vocabulary = make(tokenizer, content)
    return made


def _refusal(reason: str) -> ExportError:
    return ExportError(
        f"MediaPipe cannot read texts as this tokenizer does: {reason}. Export with format='tflite' and no target: "
        "the bundle then has tokenizer.json, and the app makes texts into ids"
    )


def _added(content: Mapping[str, Any]) -> list[str]:
    """Tokens that are found in a text before it is split."""
    return [token["content"] for token in content["added_tokens"] if not token["special"]]


def _around(tokenizer: Tokenizer) -> dict[str, bool]:
    """What would be wrong with any kind of tokenizer, and whether it is so."""
    encoded = tokenizer.backend.encode("a", add_special_tokens=True)
    special = [
        token for token, is_special in zip(encoded.tokens, encoded.special_tokens_mask, strict=True) if is_special
    ]
    surrounded = [encoded.tokens[0], encoded.tokens[-1]] == special == [_FIRST, _LAST]
    return {
        f"it puts {_FIRST} and {_LAST} around a text, and this one {' … '.join(special) or 'nothing'}": not surrounded,
        "it calls all tokens of a text segment 0, and this one does not": any(encoded.type_ids),
        "it cuts long texts at their end, and this one at their beginning": tokenizer.truncation_side != "right",
    }


def _wordpiece_faults(tokenizer: Tokenizer, content: Mapping[str, Any]) -> dict[str, bool]:
    added = _added(content)
    normalizer, splitter, model = (content[part] or {} for part in ("normalizer", "pre_tokenizer", "model"))
    types = (normalizer.get("type"), splitter.get("type"))
    unknown, prefix, longest = (
        model[name] for name in ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    )
    return {
        f"it normalizes and splits as BERT does, and this one by {types[0]} and {types[1]}": types
        != ("BertNormalizer", "BertPreTokenizer"),
        "it makes all letters of ASCII small, and this one tells capitals apart (a cased model)": not normalizer.get(
            "lowercase"
        ),
        "it sets Chinese characters apart, and this one does not": not normalizer.get("handle_chinese_chars"),
        f"it knows no added tokens, and this one has {', '.join(added[:5])}": bool(added),
        f"it calls an unknown word {_UNKNOWN}, and this one {unknown}": unknown != _UNKNOWN,
        f"it begins later pieces of a word with ##, and this one with {prefix!r}": prefix != "##",
        f"it gives up words of more than {_LONGEST_WORD} letters, and this one of {longest}": longest != _LONGEST_WORD,
    }


def _wordpiece(tokenizer: Tokenizer, content: Mapping[str, Any]) -> Vocabulary:
    """`vocab.txt`: the number of a line is the id of its token."""
    tokens = {index: token for token, index in content["model"]["vocab"].items()}
    # No word has a space: the line stands for an id that no text has. MediaPipe would skip an empty one.
    lines = [_line(tokens.get(index, "")) or f"no token {index}" for index in range(max(tokens) + 1)]
    return Vocabulary(WORDPIECE, "vocab.txt", "".join(f"{line}\n" for line in lines).encode())


def _line(token: str) -> str:
    """A token, or nothing if no line can hold it; no text has such a one either."""
    return "" if "\n" in token or token.endswith("\r") else token


def _sentencepiece_faults(tokenizer: Tokenizer, content: Mapping[str, Any]) -> dict[str, bool]:
    splitter = content["pre_tokenizer"] or {}
    types = [step["type"] for step in splitter.get("pretokenizers", [splitter] if splitter else [])]
    normal, known = tokenizer.backend.normalizer, {text for text, _ in content["model"]["vocab"]}
    added = [token for token in _added(content) if token not in known]
    return {
        f"it knows no tokens behind the vocabulary, and this one has {', '.join(added[:5])}": bool(added),
        f"it splits texts at spaces, and this one by {', '.join(types) or 'nothing'}": types
        not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]),
        "it makes all letters of ASCII small, and this one tells capitals apart (a cased model)": normal is None
        or normal.normalize_str(ascii_uppercase) != ascii_lowercase,
        "it has no byte fallback": bool(content["model"].get("byte_fallback")),
    }


def _sentencepiece(tokenizer: Tokenizer, content: Mapping[str, Any]) -> Vocabulary:
    """A SentencePiece model whose rules do what the tokenizer's own normalizer does."""
    added, unknown = _added(content), content["model"]["unk_id"]
    kinds = {token["content"]: spiece.CONTROL for token in content["added_tokens"]}
    kinds |= dict.fromkeys(added, spiece.USER_DEFINED)
    pieces = [spiece.Piece(text, score, kinds.get(text, spiece.NORMAL)) for text, score in content["model"]["vocab"]]
    pieces[unknown].kind = spiece.UNKNOWN
    model = spiece.SentencePieceModel(pieces, unk_id=unknown, charsmap=_charsmap(tokenizer.backend.normalizer, content))
    return Vocabulary(SENTENCEPIECE, "spiece.model", spiece.serialize(model))


def _charsmap(normalizer: Any, content: Mapping[str, Any]) -> bytes:
    """SentencePiece's compiled rules: a trie from spellings to places among their normal forms, with a zero after each.

    Made of what the normalizer does with every character, and with what it replaces longer than one.
    """
    steps = content["normalizer"].get("normalizers", [content["normalizer"]])
    replaced = [step["pattern"].get("String", "") for step in steps if step["type"] == "Replace"]
    forms, places, values = bytearray(), dict[str, int](), dict[bytes, int]()
    for spelling in [*_characters(), *replaced]:
        normal = " " if spelling.isspace() else normalizer.normalize_str(spelling)
        if not spelling or normal == spelling:
            continue
        if normal not in places:
            places[normal] = len(forms)
            forms += normal.encode() + b"\0"
        values[spelling.encode()] = places[normal]
    trie = double_array(values).astype("<u4").tobytes()
    return struct.pack("<I", len(trie)) + trie + bytes(forms)


def _characters() -> Iterator[str]:
    """All that texts have; the one of code 0 ends them in SentencePiece."""
    return (chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs"))


_KINDS: dict[str, Any] = {
    "WordPiece": (_wordpiece_faults, _wordpiece),
    "Unigram": (_sentencepiece_faults, _sentencepiece),
}
