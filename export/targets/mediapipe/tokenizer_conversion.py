"""Conversion of tokenizers to MediaPipe's format, and the reasons for which it is impossible.

MediaPipe lowercases A to Z, splits a text, looks up the pieces, and adds the tokens named `[CLS]` and `[SEP]`; padding
is 0 and masked. Its third tokenizer, by a regular expression, looks up whole words, which no tokenizer of a Transformer
does. Its WordPiece tokenizer does not strip accents, and words of more than 100 bytes become `[UNK]`. Its
SentencePiece tokenizer uses the normalization rules of the model file, which can reproduce those of our tokenizer.

Source: https://github.com/google-ai-edge/mediapipe, `mediapipe/calculators/tensor/bert_preprocessor_calculator.cc` and
`mediapipe/tasks/cc/text/tokenizers/bert_tokenizer.h`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite.charsmap import charsmap
from kerasformer.export.formats.tflite.metadata import SENTENCEPIECE, WORDPIECE, VocabularyFile
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import Tokenizer, spiece

if TYPE_CHECKING:
    import tokenizers

_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_LONGEST_WORD = 100
LINE_ENDS = "\n\r\0"
"""Characters that end an entry in the line-based files that MediaPipe reads."""
_CASED = "MediaPipe lowercases ASCII letters; the tokenizer distinguishes capitals (a cased model)"

Differences = dict[str, bool]
"""Possible differences from MediaPipe, and whether a tokenizer has them."""


def check(tokenizer: Tokenizer | None) -> int:
    """Refuses a tokenizer that MediaPipe does not support.

    Returns:
        The kind of MediaPipe's tokenizer, `WORDPIECE` or `SENTENCEPIECE`.

    Raises:
        ExportError: The model has no tokenizer, or MediaPipe would tokenize texts differently; the message has the
            reason.
    """
    if tokenizer is None:
        raise ExportError(
            "MediaPipe needs a tokenizer, since its file contains it. Received: model.tokenizer=None. Set "
            "model.tokenizer = kerasformer.Tokenizer.load(folder)"
        )
    content = json.loads(tokenizer.backend.to_str())
    model_type = content["model"]["type"]
    if model_type not in _KINDS:
        raise _refusal(f"MediaPipe supports only {' and '.join(_KINDS)}; the tokenizer is of the kind {model_type}")
    unit, differences = _KINDS[model_type]
    for reason, differs in {
        **_common_differences(tokenizer, content),
        **differences(content, tokenizer.backend.normalizer),
    }.items():
        if differs:
            raise _refusal(reason)
    return unit


def vocabulary(tokenizer: Tokenizer) -> VocabularyFile:
    """Converts a tokenizer that `check` accepts to a file for the model's metadata.

    MediaPipe finds the tokens that it adds to a text by the names `[CLS]` and `[SEP]`, which they therefore get in the
    file; the tokenizer may have others, such as `<s>` and `</s>`.
    """
    content, backend = json.loads(tokenizer.backend.to_str()), tokenizer.backend
    ids = backend.encode("a", add_special_tokens=True).ids
    names = {ids[0]: _FIRST, ids[-1]: _LAST}
    if content["model"]["type"] == "WordPiece":
        tokens = {index: token for token, index in content["model"]["vocab"].items()}
        return VocabularyFile(WORDPIECE, "vocab.txt", _lines(_renamed(tokens, names)))
    pieces = {index: token for index, (token, _) in enumerate(content["model"]["vocab"])}
    file = _sentencepiece(content, backend.normalizer, _renamed(pieces, names))
    return VocabularyFile(SENTENCEPIECE, "spiece.model", file)


def _renamed(tokens: dict[int, str], names: dict[int, str]) -> dict[int, str]:
    """Returns tokens by id, some with new names; other tokens that have one of these names are left out."""
    return {index: token for index, token in tokens.items() if token not in names.values()} | names


def _refusal(reason: str) -> ExportError:
    return ExportError(
        f"MediaPipe cannot tokenize texts like this model's tokenizer: {reason}. Received: the tokenizer of this "
        "model. Export with format='tflite' and without a target: the bundle then has tokenizer.json, with which the "
        "app tokenizes texts"
    )


def _common_differences(tokenizer: Tokenizer, content: JsonObject) -> Differences:
    encoded = tokenizer.backend.encode("a", add_special_tokens=True)
    special = [token for token, mask in zip(encoded.tokens, encoded.special_tokens_mask, strict=True) if mask]
    one_each = [encoded.tokens[0], encoded.tokens[-1]] == special and len(set(special)) == 2
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    return {
        "MediaPipe adds one token before a text and another after it; the tokenizer "
        f"{' … '.join(special) or 'nothing'}": not one_each,
        "MediaPipe uses token type 0 for a single text; the tokenizer does not": any(encoded.type_ids),
        "MediaPipe truncates texts on the right; the tokenizer on the left": tokenizer.truncation_side != "right",
        f"MediaPipe does not support added tokens; the tokenizer has {', '.join(added[:5])}": bool(added),
    }


def _wordpiece_differences(content: JsonObject, normalizer: tokenizers.normalizers.Normalizer | None) -> Differences:
    normal, splitter = content["normalizer"] or {}, content["pre_tokenizer"] or {}
    types = (normal.get("type"), splitter.get("type"))
    unknown, prefix, longest = (
        content["model"][name] for name in ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    )
    return {
        "MediaPipe normalizes and splits like BERT; the tokenizer has {} and {}".format(*types): types
        != ("BertNormalizer", "BertPreTokenizer"),
        _CASED: not normal.get("lowercase"),
        "MediaPipe isolates Chinese characters; the tokenizer does not": not normal.get("handle_chinese_chars"),
        f"MediaPipe uses {_UNKNOWN} for an unknown word; the tokenizer {unknown}": unknown != _UNKNOWN,
        f"MediaPipe marks later pieces of a word with ##; the tokenizer with {prefix!r}": prefix != "##",
        f"MediaPipe treats words of more than {_LONGEST_WORD} characters as unknown; the tokenizer of more than "
        f"{longest}": longest != _LONGEST_WORD,
    }


def _sentencepiece_differences(content: JsonObject, normalizer: Any) -> Differences:
    splitter = content["pre_tokenizer"] or {}
    types = [step["type"] for step in splitter.get("pretokenizers", [splitter] if splitter else [])]
    lowercases = normalizer is not None and normalizer.normalize_str(ascii_uppercase) == ascii_lowercase
    return {
        f"MediaPipe splits texts at spaces; the tokenizer by {', '.join(types) or 'nothing'}": types
        not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]),
        _CASED: not lowercases,
        "MediaPipe merges repeated spaces; the tokenizer does not": types == ["Metaspace"]
        and lowercases
        and any(normalizer.normalize_str(f"a{spaces}b") != "a b" for spaces in ("  ", "\t", "\n", "\u00a0", "\u2028")),
        "MediaPipe does not support byte fallback; the tokenizer has it": bool(content["model"].get("byte_fallback")),
    }


_KINDS: dict[str, tuple[int, Callable[[JsonObject, tokenizers.normalizers.Normalizer | None], Differences]]] = {
    "WordPiece": (WORDPIECE, _wordpiece_differences),
    "Unigram": (SENTENCEPIECE, _sentencepiece_differences),
}


def _lines(tokens: dict[int, str]) -> bytes:
    """Returns the content of `vocab.txt`, in which the line number is the id of the token."""
    # Unused ids get a line with a space, which no word contains; MediaPipe would skip an empty line.
    lines = [_line(tokens.get(index, "")) or f"no token {index}" for index in range(max(tokens) + 1)]
    return "".join(f"{line}\n" for line in lines).encode()


def _line(token: str) -> str:
    """Returns the token, or an empty string if it contains line ends, which no word of a text does."""
    return "" if {*token} & {*LINE_ENDS} else token


def _sentencepiece(content: JsonObject, normalizer: tokenizers.normalizers.Normalizer, names: dict[int, str]) -> bytes:
    """Returns a SentencePiece model whose rules reproduce the tokenizer's normalizer.

    Args:
        content: Content of `tokenizer.json`.
        normalizer: Normalizer of the tokenizer.
        names: Names of the pieces in the model by their ids; those without a name are never used.
    """
    special, unknown = {token["content"] for token in content["added_tokens"]}, content["model"]["unk_id"]
    pieces = [
        spiece.Piece(
            names.get(index, f"<no token {index}>"),
            score,
            spiece.CONTROL if text in special or index not in names else spiece.NORMAL,
        )
        for index, (text, score) in enumerate(content["model"]["vocab"])
    ]
    pieces[unknown].kind = spiece.UNKNOWN
    steps = content["normalizer"].get("normalizers", [content["normalizer"]])
    longer = [step["pattern"]["String"] for step in steps if "String" in step.get("pattern", {})]
    model = spiece.SentencePieceModel(pieces, unk_id=unknown, charsmap=charsmap(normalizer, longer))
    return spiece.serialize(model)
