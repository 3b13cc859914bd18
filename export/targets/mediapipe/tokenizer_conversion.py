"""Our tokenizers as MediaPipe has them, or the reason why one cannot be.

MediaPipe makes A to Z small, splits, looks pieces up, and puts `[CLS]` and `[SEP]` around them, by these names; padding
is 0, and masked. Of WordPiece, it takes no accent off, and a word of more than 100 bytes is `[UNK]`. SentencePiece
normalizes by rules inside of the model, which can do what our tokenizer does.

Source: https://github.com/google-ai-edge/mediapipe, `mediapipe/calculators/tensor/bert_preprocessor_calculator.cc` and
`mediapipe/tasks/cc/text/tokenizers/bert_tokenizer.h`.
"""

from __future__ import annotations

import json
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.charsmap import charsmap
from kerasformer.export.formats.tflite.metadata import SENTENCEPIECE, WORDPIECE, VocabularyFile
from kerasformer.tokenization import Tokenizer, spiece

_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_LONGEST_WORD = 100
NO_LINE = "\n\r\0"
"""Characters that end a line, or a name, where MediaPipe reads a file with a line each."""
_CASED = "it makes all letters of ASCII small, and this one tells capitals apart (a cased model)"

Faults = dict[str, bool]
"""What would be wrong with a tokenizer, and whether it is."""


def check(tokenizer: Tokenizer | None) -> int:
    """Refuses a tokenizer that MediaPipe does not have.

    Returns:
        The kind of MediaPipe's tokenizer, `WORDPIECE` or `SENTENCEPIECE`.
    Raises:
        ExportError: there is none, or MediaPipe would make other tokens of texts; says why.
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
    unit, faults = _KINDS[kind]
    for reason, holds in {
        **_common_faults(tokenizer, content),
        **faults(content, tokenizer.backend.normalizer),
    }.items():
        if holds:
            raise _refusal(reason)
    return unit


def vocabulary(tokenizer: Tokenizer) -> VocabularyFile:
    """A tokenizer that `check` lets pass, as a part of a model file."""
    content = json.loads(tokenizer.backend.to_str())
    if content["model"]["type"] == "WordPiece":
        return VocabularyFile(WORDPIECE, "vocab.txt", _lines(content["model"]["vocab"]))
    return VocabularyFile(SENTENCEPIECE, "spiece.model", _sentencepiece(content, tokenizer.backend.normalizer))


def _refusal(reason: str) -> ExportError:
    return ExportError(
        f"MediaPipe cannot read texts as this tokenizer does: {reason}. Export with format='tflite' and no target: "
        "the bundle then has tokenizer.json, and the app makes texts into ids"
    )


def _common_faults(tokenizer: Tokenizer, content: dict[str, Any]) -> Faults:
    encoded = tokenizer.backend.encode("a", add_special_tokens=True)
    around = [token for token, special in zip(encoded.tokens, encoded.special_tokens_mask, strict=True) if special]
    surrounded = [encoded.tokens[0], encoded.tokens[-1]] == around == [_FIRST, _LAST]
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    return {
        f"it puts {_FIRST} and {_LAST} around a text, and this one {' … '.join(around) or 'nothing'}": not surrounded,
        "it calls all tokens of a text segment 0, and this one does not": any(encoded.type_ids),
        "it cuts long texts at their end, and this one at their beginning": tokenizer.truncation_side != "right",
        f"it looks for no added tokens before it splits, and this one for {', '.join(added[:5])}": bool(added),
    }


def _wordpiece_faults(content: dict[str, Any], normalizer: Any) -> Faults:
    normal, splitter = content["normalizer"] or {}, content["pre_tokenizer"] or {}
    types = (normal.get("type"), splitter.get("type"))
    unknown, prefix, longest = (
        content["model"][name] for name in ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    )
    return {
        "it normalizes and splits as BERT does, and this one by {} and {}".format(*types): types
        != ("BertNormalizer", "BertPreTokenizer"),
        _CASED: not normal.get("lowercase"),
        "it sets Chinese characters apart, and this one does not": not normal.get("handle_chinese_chars"),
        f"it calls an unknown word {_UNKNOWN}, and this one {unknown}": unknown != _UNKNOWN,
        f"it begins later pieces of a word with ##, and this one with {prefix!r}": prefix != "##",
        f"it gives up words of more than {_LONGEST_WORD} letters, and this one of {longest}": longest != _LONGEST_WORD,
    }


def _sentencepiece_faults(content: dict[str, Any], normalizer: Any) -> Faults:
    splitter = content["pre_tokenizer"] or {}
    types = [step["type"] for step in splitter.get("pretokenizers", [splitter] if splitter else [])]
    small = normalizer is not None and normalizer.normalize_str(ascii_uppercase) == ascii_lowercase
    return {
        f"it splits texts at spaces, and this one by {', '.join(types) or 'nothing'}": types
        not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]),
        _CASED: not small,
        "it takes several spaces for one, and this one does not": types == ["Metaspace"]
        and small
        and any(normalizer.normalize_str(f"a{spaces}b") != "a b" for spaces in ("  ", "\t", "\n", "\u00a0", "\u2028")),
        "it has no byte fallback": bool(content["model"].get("byte_fallback")),
    }


_KINDS: dict[str, Any] = {
    "WordPiece": (WORDPIECE, _wordpiece_faults),
    "Unigram": (SENTENCEPIECE, _sentencepiece_faults),
}


def _lines(vocab: dict[str, int]) -> bytes:
    """`vocab.txt`: the number of a line is the id of its token."""
    tokens = {index: token for token, index in vocab.items()}
    # No word has a space: the line stands for an id that no text has. MediaPipe would skip an empty one.
    lines = [_line(tokens.get(index, "")) or f"no token {index}" for index in range(max(tokens) + 1)]
    return "".join(f"{line}\n" for line in lines).encode()


def _line(token: str) -> str:
    """A token, or nothing if no line can hold it; no word of a text has such characters either."""
    return "" if {*token} & {*NO_LINE} else token


def _sentencepiece(content: dict[str, Any], normalizer: Any) -> bytes:
    """A SentencePiece model whose rules do what our normalizer does."""
    special, unknown = {token["content"] for token in content["added_tokens"]}, content["model"]["unk_id"]
    pieces = [
        spiece.Piece(text, score, spiece.CONTROL if text in special else spiece.NORMAL)
        for text, score in content["model"]["vocab"]
    ]
    pieces[unknown].kind = spiece.UNKNOWN
    steps = content["normalizer"].get("normalizers", [content["normalizer"]])
    longer = [step["pattern"]["String"] for step in steps if "String" in step.get("pattern", {})]
    model = spiece.SentencePieceModel(pieces, unk_id=unknown, charsmap=charsmap(normalizer, longer))
    return spiece.serialize(model)
