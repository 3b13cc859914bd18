"""Tokenizers inside of the graph: TF Text's operators, made to give the ids of our own tokenizers.

TF Text's `FastBertTokenizer` normalizes otherwise than BERT's tokenizer in Hugging Face's format does (`ß`, `…`, `，`,
`²` become something else). Its operator, though, reads a table from characters to texts: here that table is made of
what the tokenizer itself does with every character, so that the ids are the same. SentencePiece reads its own file.

What these operators cannot do is refused by name: byte-level BPE, other normalizers, added tokens.
"""

from __future__ import annotations

import base64
import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from kerasformer.bundle import Signature, TensorInfo
from kerasformer.errors import ExportError, ExportMismatchError, require
from kerasformer.export.formats.saved_model.double_array import double_array
from kerasformer.export.graph.saving import save_module
from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.tokenization import Tokenizer, spiece

TOKENIZE = "tokenize"
FILE = "tokenizer.tflite"
# Of no vocabulary (it is of private use): a word with it is unknown.
_UNKNOWN = "\ue000"
# Bytes of the longest word. Our tokenizers count 100 characters, which are at most 400 bytes.
_LONGEST_WORD = 400
SAMPLE = (
    *READING,
    *PROMPTS,
    "",
    "  two  spaces\tand tab\nnewline\r\n end  ",
    "Über naïve cafés, ÀÉÎÕÜ; die Straße… don't, 2,000 (3.14)!",
    "今日は天気 测试，好！한국어 안녕",
    "Привет κόσμε ΣΊΣΥΦΟΣ العربية שלום हिन्दी ภาษาไทยง่าย",
    "emoji 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️ x²+y² ½ ™ \u00a0 \u3000 \u200b",
)
"""Texts on which a graph is compared with the tokenizer when it is made."""


@dataclass(frozen=True)
class Parts:
    """What a graph needs of a tokenizer.

    Attributes:
        ids: From a vector of texts to a ragged tensor of ids, without special tokens.
        before: Ids of the special tokens before a text.
        after: Ids of those behind it.
        pad_id: Of padding.
        names: Arrays to give, such as `"attention_mask"`.
    """

    ids: Callable[[Any], Any]
    before: tuple[int, ...]
    after: tuple[int, ...]
    pad_id: int
    names: tuple[str, ...]


def parts(tokenizer: Tokenizer | None, names: Sequence[str]) -> Parts:
    """The tokenizer as operators.

    Args:
        tokenizer: Of a model.
        names: Arrays that the model takes.

    Raises:
        ExportError: there is none, or a part of it that has no operator.
        MissingExtraError: TF Text is not installed.
    """
    if tokenizer is None:
        raise ExportError("A tokenizer in the graph needs a model with a tokenizer. Received: model.tokenizer=None")
    require("tensorflow_text", "tftext")
    content = json.loads(tokenizer.backend.to_str())
    builders = {"WordPiece": _wordpiece, "Unigram": _sentencepiece}
    kind = content["model"]["type"]
    if kind not in builders:
        raise ExportError(
            f"TF Text has operators for {' and '.join(builders)}. Received: a tokenizer of the kind {kind}, "
            "which stays outside of the graph"
        )
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    if added:
        raise ExportError(f"TF Text's operators know no added tokens. Received: {', '.join(added[:10])}")
    if (tokenizer.padding_side, tokenizer.truncation_side) != ("right", "right"):
        raise ExportError(
            "A tokenizer in the graph pads and cuts on the right. Received: "
            f"padding_side={tokenizer.padding_side!r}, truncation_side={tokenizer.truncation_side!r}"
        )
    before, after = _around(tokenizer)
    pad_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return Parts(builders[kind](tokenizer, content), before, after, pad_id or 0, tuple(names))


def _around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids of the special tokens on both sides of a text."""
    encoding = tokenizer.backend.encode("a", add_special_tokens=True)
    text = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
    return tuple(encoding.ids[: text[0]]), tuple(encoding.ids[text[-1] + 1 :])


# WordPiece.


def _wordpiece(tokenizer: Tokenizer, content: dict[str, Any]) -> Callable[[Any], Any]:
    text = require("tensorflow_text", "tftext")
    normalizer, splitter, model = content["normalizer"], content["pre_tokenizer"], content["model"]
    types = [(part or {}).get("type") for part in (normalizer, splitter)]
    if types != ["BertNormalizer", "BertPreTokenizer"] or not normalizer["handle_chinese_chars"]:
        raise ExportError(
            "WordPiece in the graph needs BERT's normalizer, with Chinese characters apart, and BERT's splitting. "
            f"Received: {types[0]}, {types[1]}"
        )
    vocabulary = _in_order(model["vocab"])
    table = normalizer_table(tokenizer.backend.normalizer, frozenset("".join(vocabulary)))
    normalize = text.FastBertNormalizer(model_buffer=table)
    try:
        pieces = text.FastWordpieceTokenizer(
            vocabulary,
            suffix_indicator=model["continuing_subword_prefix"],
            max_bytes_per_word=_LONGEST_WORD,
            token_out_type=require("tensorflow", "export").int32,
            unknown_token=model["unk_token"],
        )
    except RuntimeError as error:
        raise ExportError(f"TF Text cannot have this vocabulary: {error}") from error
    return lambda texts: pieces.tokenize(normalize.normalize(texts))


def _in_order(vocabulary: dict[str, int]) -> list[str]:
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in ordered] != list(range(len(ordered))):
        raise ExportError("A vocabulary with the ids 0, 1, 2 … was expected. Received: one with gaps")
    return ordered


def normalizer_table(normalizer: normalizers.Normalizer, letters: frozenset[str]) -> bytes:
    """TF Text's table from characters to normalized texts, as a flatbuffer `FastBertNormalizerModel`.

    Args:
        normalizer: That looks at one character at a time.
        letters: Of the vocabulary.

    Raises:
        ExportError: the vocabulary has a mark at which TF Text splits, and our tokenizers do not.
    """
    flatbuffers = require("flatbuffers", "export")
    ours, theirs = _isolated()
    if apart := sorted((theirs - ours) & letters):
        raise ExportError(f"TF Text splits texts at marks of this vocabulary, and our tokenizer does not: {apart}")
    # TF Text splits by a newer Unicode: what it leaves in a word is set apart, what it sets apart made unknown.
    spelled_so = {letter: f" {letter} " for letter in ours - theirs}
    spelled_so |= dict.fromkeys(theirs - ours, _UNKNOWN)
    alone = ours & theirs
    pool, places, values = bytearray(), dict[bytes, int](), dict[bytes, int]()
    for letter in map(chr, _characters()):
        normal = "".join(spelled_so.get(each, each) for each in normalizer.normalize_str(letter))
        if normal == letter or (normal.strip(" ") == letter and letter in alone):
            continue  # TF Text sets these apart itself
        spelled = normal.encode()
        if spelled not in places:
            places[spelled] = len(pool)
            pool += spelled
        values[letter.encode()] = 1 << 30 | places[spelled] << 6 | len(spelled)
    zero = values.pop(b"\0", 0)
    builder = flatbuffers.Builder(1 << 20)
    of_pool = builder.CreateByteVector(bytes(pool) or b"\0")
    of_trie = builder.CreateNumpyVector(double_array(values))
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(1, of_trie, 0)
    builder.PrependInt32Slot(2, zero, 0)
    builder.PrependUOffsetTRelativeSlot(3, of_pool, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _characters() -> Iterable[int]:
    """Code points that texts have: those assigned, and all where new emoji and symbols appear."""
    yield from range(0xD800)
    yield from range(0xE000, 0x10000)
    yield from (c for c in range(0x10000, 0x20000) if 0x1F000 <= c < 0x1FC00 or unicodedata.category(chr(c)) != "Cn")
    yield from (c for c in range(0x2F800, 0x2FA20) if unicodedata.category(chr(c)) != "Cn")
    yield from range(0xE0000, 0xE01F0)


@cache
def _isolated() -> tuple[frozenset[str], frozenset[str]]:
    """Characters that stand alone between letters: in our tokenizers, and in TF Text, whose Unicode is newer."""
    tf, text = require("tensorflow", "export"), require("tensorflow_text", "tftext")
    letters = [chr(c) for c in _characters() if c and chr(c) != "a"]
    between = [f"a{letter}a" for letter in letters]
    words = text.FastWordpieceTokenizer(["a", "##a", "[UNK]"], token_out_type=tf.int32).tokenize(between)
    chinese = normalizers.BertNormalizer(lowercase=False, strip_accents=False, clean_text=False)
    split = pre_tokenizers.BertPreTokenizer()
    ours = (
        letter
        for letter, word in zip(letters, between, strict=True)
        if len(split.pre_tokenize_str(chinese.normalize_str(word))) == 3
    )
    theirs = (letter for letter, count in zip(letters, words.row_lengths().numpy(), strict=True) if count == 3)
    return frozenset(ours), frozenset(theirs)


# SentencePiece.


def _sentencepiece(tokenizer: Tokenizer, content: dict[str, Any]) -> Callable[[Any], Any]:
    text = require("tensorflow_text", "tftext")
    normalizer, model = content["normalizer"], content["model"]
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    names = [step["type"] for step in steps]
    if names not in ([], ["Precompiled"]) or model.get("byte_fallback"):
        raise ExportError(
            "SentencePiece in the graph normalizes by the rules of its model file alone, and has no byte fallback. "
            f"Received: {', '.join(names)}{' and byte fallback' if model.get('byte_fallback') else ''}"
        )
    special = {token["content"] for token in content["added_tokens"]}
    pieces = [
        spiece.Piece(piece, score, spiece.UNKNOWN if place == model["unk_id"] else _kind(piece in special))
        for place, (piece, score) in enumerate(model["vocab"])
    ]
    charsmap = base64.b64decode(steps[0]["precompiled_charsmap"]) if steps else b""
    file = spiece.serialize(spiece.SentencePieceModel(pieces, unk_id=model["unk_id"], charsmap=charsmap))
    tokens = text.FastSentencepieceTokenizer(file)
    return lambda texts: tokens.tokenize(texts)


def _kind(special: bool) -> int:
    return spiece.CONTROL if special else spiece.NORMAL


# Graphs.


def encode(given: Parts, texts: Any, limit: int | None) -> dict[str, Any]:
    """A batch of texts, surrounded, cut and padded: a dictionary of int32 `(B, T)`.

    Args:
        given: The tokenizer.
        texts: String `(B,)`.
        limit: Tokens of a row, special ones included; `None` cuts nothing.
    """
    tf = require("tensorflow", "export")
    ids = given.ids(texts)
    if limit is not None:
        ids = ids[:, : limit - len(given.before) - len(given.after)]
    count = tf.shape(texts)[0]
    around = [tf.tile(tf.constant([part], tf.int32), [count, 1]) for part in (given.before, given.after) if part]
    rows = [*around[: bool(given.before)], tf.cast(ids, tf.int32), *around[bool(given.before) :]]
    ragged = tf.concat(rows, axis=1)
    return _named(given, ragged.to_tensor(given.pad_id), tf.sequence_mask(ragged.row_lengths(), dtype=tf.int32))


def encode_one(given: Parts, text: Any, length: int) -> dict[str, Any]:
    """One text in a static shape: a dictionary of int32 `(1, length)`; in operators that TFLite has.

    Args:
        given: The tokenizer.
        text: String `(1,)`.
        length: Tokens, special ones included.
    """
    tf = require("tensorflow", "export")
    ids = tf.cast(given.ids(text).flat_values, tf.int32)[: length - len(given.before) - len(given.after)]
    row = tf.concat([tf.constant(given.before, tf.int32), ids, tf.constant(given.after, tf.int32)], axis=0)
    count = tf.shape(row)[0]
    rest = tf.fill([length - count], given.pad_id)
    padded = tf.reshape(tf.concat([row, rest], axis=0), (1, length))
    mask = tf.cast(tf.range(length) < count, tf.int32)
    return _named(given, padded, tf.reshape(mask, (1, length)))


def _named(given: Parts, ids: Any, mask: Any) -> dict[str, Any]:
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * 0}
    return {name: arrays[name] for name in given.names}


def write_tokenizer(tokenizer: Tokenizer | None, names: Sequence[str], length: int, path: Path) -> Signature:
    """Writes the tokenizer as a TFLite file: a string `(1,)` in, int32 `(1, length)` out.

    Args:
        tokenizer: Of the model.
        names: Arrays that the model takes.
        length: Tokens of the longest text; longer ones are cut as the tokenizer cuts them.
        path: The file.

    Returns:
        What the manifest says of it.

    Raises:
        ExportError: a part of the tokenizer has no operator.
        ExportMismatchError: it gives other ids than the tokenizer.
    """
    tf = require("tensorflow", "export")
    given = parts(tokenizer, names)
    module = tf.Module()
    module.graph = tf.function(
        lambda text: encode_one(given, text, length),
        input_signature=[tf.TensorSpec((1,), tf.string, name="text")],
        autograph=False,
    )
    with tempfile.TemporaryDirectory(prefix="kerasformer-") as folder:
        save_module(module, folder, {TOKENIZE: module.graph})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKENIZE])
        converter.allow_custom_ops = True
        path.write_bytes(converter.convert())
    run = tokenize_runner(path)
    check(tokenizer, lambda text: run(text), length)
    info = TensorInfo((1, length), "int32")
    return Signature(path.name, {"text": TensorInfo((1,), "string")}, dict.fromkeys(given.names, info))


def tokenize_runner(path: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """A function from a text to the model's inputs, by a tokenizer file; the interpreter is TensorFlow's.

    Args:
        path: `tokenizer.tflite` of a bundle.

    Raises:
        MissingExtraError: TensorFlow or TF Text is not installed.
    """
    lite, text = require("tensorflow.lite.python.interpreter", "export"), require("tensorflow_text", "tftext")
    interpreter = lite.InterpreterWithCustomOps(
        model_path=str(path), custom_op_registerers=text.tflite_registrar.SELECT_TFTEXT_OPS
    )
    signature = interpreter.get_signature_runner(TOKENIZE)
    return lambda text: signature(text=np.array([text.encode()]))


def check(tokenizer: Any, run: Callable[[str], dict[str, np.ndarray]], limit: int | None) -> None:
    """Compares a graph with the tokenizer.

    Raises:
        ExportMismatchError: other ids for a text of `SAMPLE`.
    """
    for text in SAMPLE:
        expected = tokenizer.encode(text)
        if limit is not None and len(expected) > limit:
            continue  # what is cut is compared by the tests: the tokenizer warns of it
        received = run(text)["input_ids"][0][: len(expected)].tolist()
        if received != expected:
            raise ExportMismatchError(
                f"The tokenizer in the graph gives other ids for {text!r}. Expected: {expected}. Received: {received}"
            )
