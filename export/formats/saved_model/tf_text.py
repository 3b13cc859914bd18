"""Tokenizers in the graph: TF Text operators that produce the same ids as Hugging Face tokenizers.

The default normalization of TF Text's `FastBertTokenizer` differs from that of BERT's Hugging Face tokenizer (for `ß`,
`…`, `，` or `²`, for example). But its operator takes a table from characters to normalized texts. Here this table is
computed with the tokenizer itself for every character, so that the ids are the same. SentencePiece operators use the
rules of the model file.

Unsupported tokenizers are refused: byte-level BPE, other normalizers, and added tokens.
"""

from __future__ import annotations

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
from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export.formats.saved_model.double_array import double_array
from kerasformer.export.graph.saving import save_module
from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.extras import require
from kerasformer.files.reading import JsonObject
from kerasformer.layers.tensor import Tensor
from kerasformer.tokenization import Tokenizer, spiece

TOKENIZE = "tokenize"
FILE = "tokenizer.tflite"
# A private-use character, which is in no vocabulary: a word that contains it is unknown.
_UNKNOWN = "\ue000"
# Longest word in bytes. Hugging Face's limit is 100 characters, which have at most 400 bytes.
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
"""Texts on which an exported tokenizer is compared with the original."""


@dataclass(frozen=True)
class GraphTokenizer:
    """A tokenizer as TensorFlow operations.

    Attributes:
        ids: Converts a vector of texts to a ragged tensor of ids, without special tokens.
        before: Ids of the special tokens before a text.
        after: Ids of the special tokens after a text.
        pad_id: Id of padding.
        names: Names of the arrays to return, such as `"attention_mask"`.
    """

    ids: Callable[[Tensor], Tensor]
    before: tuple[int, ...]
    after: tuple[int, ...]
    pad_id: int
    names: tuple[str, ...]


def graph_tokenizer(tokenizer: Tokenizer | None, names: Sequence[str]) -> GraphTokenizer:
    """Converts a tokenizer to TensorFlow operations.

    Args:
        tokenizer: Tokenizer of the model.
        names: Names of the arrays that the model takes.

    Raises:
        ExportError: The model has no tokenizer, or TF Text has no operator for a part of it.
        MissingExtraError: TF Text is not installed.
    """
    if tokenizer is None:
        raise ExportError("A tokenizer in the graph needs a model with a tokenizer. Received: model.tokenizer=None")
    require("tensorflow_text", "tftext")
    content = json.loads(tokenizer.backend.to_str())
    builders = {"WordPiece": _wordpiece, "Unigram": _sentencepiece}
    model_type = content["model"]["type"]
    if model_type not in builders:
        raise ExportError(
            f"TF Text supports only {' and '.join(builders)} tokenizers. Received: a {model_type} tokenizer. "
            "Export without tokenizer='in-graph': the bundle then has tokenizer.json"
        )
    added = [token["content"] for token in content["added_tokens"] if not token["special"]]
    if added:
        raise ExportError(f"TF Text's operators do not support added tokens. Received: {', '.join(added[:10])}")
    if (tokenizer.padding_side, tokenizer.truncation_side) != ("right", "right"):
        raise ExportError(
            "A tokenizer in the graph must pad and truncate on the right. Received: "
            f"padding_side={tokenizer.padding_side!r}, truncation_side={tokenizer.truncation_side!r}"
        )
    before, after = _special_ids(tokenizer)
    pad_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return GraphTokenizer(builders[model_type](tokenizer, content), before, after, pad_id or 0, tuple(names))


def _special_ids(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids of the special tokens before and after a text."""
    encoding = tokenizer.backend.encode("a", add_special_tokens=True)
    text = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
    return tuple(encoding.ids[: text[0]]), tuple(encoding.ids[text[-1] + 1 :])


# WordPiece.


def _wordpiece(tokenizer: Tokenizer, content: JsonObject) -> Callable[[Tensor], Tensor]:
    text = require("tensorflow_text", "tftext")
    normalizer, splitter, model = content["normalizer"], content["pre_tokenizer"], content["model"]
    types = [(part or {}).get("type") for part in (normalizer, splitter)]
    if types != ["BertNormalizer", "BertPreTokenizer"] or not normalizer["handle_chinese_chars"]:
        raise ExportError(
            "A WordPiece tokenizer in the graph needs BertNormalizer with handle_chinese_chars=True, and "
            f"BertPreTokenizer. Received: {types[0]}, {types[1]}"
        )
    vocabulary = _ordered_tokens(model["vocab"])
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
        raise ExportError(f"TF Text does not support this vocabulary: {error}") from error
    return lambda texts: pieces.tokenize(normalize.normalize(texts))


def _ordered_tokens(vocabulary: dict[str, int]) -> list[str]:
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in ordered] != list(range(len(ordered))):
        raise ExportError("The vocabulary must have the ids 0, 1, 2 … Received: a vocabulary with gaps")
    return ordered


def normalizer_table(normalizer: normalizers.Normalizer, letters: frozenset[str]) -> bytes:
    """Returns TF Text's table from characters to normalized texts, as a flatbuffer `FastBertNormalizerModel`.

    Args:
        normalizer: A normalizer that treats each character separately.
        letters: Characters of the vocabulary.

    Raises:
        ExportError: The vocabulary has a character at which only TF Text splits words.
    """
    flatbuffers = require("flatbuffers", "export")
    ours, theirs = _isolated()
    if conflicting := sorted((theirs - ours) & letters):
        raise ExportError(
            "TF Text splits words at characters of this vocabulary at which the tokenizer does not. "
            f"Received: {conflicting}"
        )
    # TF Text has a newer Unicode version. Characters at which only the tokenizer splits are surrounded by spaces;
    # characters at which only TF Text splits become unknown.
    replacements = {letter: f" {letter} " for letter in ours - theirs}
    replacements |= dict.fromkeys(theirs - ours, _UNKNOWN)
    isolated_by_both = ours & theirs
    pool, offsets, values = bytearray(), dict[bytes, int](), dict[bytes, int]()
    for letter in map(chr, _characters()):
        normal = "".join(replacements.get(part, part) for part in normalizer.normalize_str(letter))
        if normal == letter or (normal.strip(" ") == letter and letter in isolated_by_both):
            continue  # TF Text isolates these characters itself
        encoded = normal.encode()
        if encoded not in offsets:
            offsets[encoded] = len(pool)
            pool += encoded
        values[letter.encode()] = 1 << 30 | offsets[encoded] << 6 | len(encoded)
    zero = values.pop(b"\0", 0)
    builder = flatbuffers.Builder(1 << 20)
    pool_offset = builder.CreateByteVector(bytes(pool) or b"\0")
    trie_offset = builder.CreateNumpyVector(double_array(values))
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(1, trie_offset, 0)
    builder.PrependInt32Slot(2, zero, 0)
    builder.PrependUOffsetTRelativeSlot(3, pool_offset, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _characters() -> Iterable[int]:
    """Yields the assigned code points, and all code points of blocks to which new emoji and symbols are added."""
    yield from range(0xD800)
    yield from range(0xE000, 0x10000)
    yield from (c for c in range(0x10000, 0x20000) if 0x1F000 <= c < 0x1FC00 or unicodedata.category(chr(c)) != "Cn")
    yield from (c for c in range(0x2F800, 0x2FA20) if unicodedata.category(chr(c)) != "Cn")
    yield from range(0xE0000, 0xE01F0)


@cache
def _isolated() -> tuple[frozenset[str], frozenset[str]]:
    """Returns the characters that become separate words between letters: in Hugging Face tokenizers, and in TF Text."""
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


def _sentencepiece(tokenizer: Tokenizer, content: JsonObject) -> Callable[[Tensor], Tensor]:
    text = require("tensorflow_text", "tftext")
    try:
        file = spiece.serialize(spiece.from_tokenizer(content))
    except ValueError as error:
        raise ExportError(f"This SentencePiece tokenizer cannot be in the graph: {error}") from error
    tokens = text.FastSentencepieceTokenizer(file)
    return lambda texts: tokens.tokenize(texts)


# Graphs.


def encode(tokenizer: GraphTokenizer, texts: Tensor, limit: int | None) -> dict[str, Tensor]:
    """Encodes a batch of texts with special tokens, truncation and padding.

    Args:
        tokenizer: The tokenizer.
        texts: Strings `(B,)`.
        limit: Largest number of tokens in a row, including special tokens; `None` truncates nothing.

    Returns:
        Arrays by name, int32 `(B, T)`.
    """
    tf = require("tensorflow", "export")
    ids, before, after = tokenizer.ids(texts), tokenizer.before, tokenizer.after
    if limit is not None:
        ids = ids[:, : limit - len(before) - len(after)]
    count = tf.shape(texts)[0]
    special = [tf.tile(tf.constant([part], tf.int32), [count, 1]) for part in (before, after) if part]
    rows = [*special[: bool(before)], tf.cast(ids, tf.int32), *special[bool(before) :]]
    ragged = tf.concat(rows, axis=1)
    mask = tf.sequence_mask(ragged.row_lengths(), dtype=tf.int32)
    return _named(tokenizer, ragged.to_tensor(tokenizer.pad_id), mask)


def encode_one(tokenizer: GraphTokenizer, text: Tensor, length: int) -> dict[str, Tensor]:
    """Encodes a single text to a static shape, with operators that TFLite supports.

    Args:
        tokenizer: The tokenizer.
        text: String `(1,)`.
        length: Number of tokens, including special tokens.

    Returns:
        Arrays by name, int32 `(1, length)`.
    """
    tf = require("tensorflow", "export")
    before, after = tokenizer.before, tokenizer.after
    ids = tf.cast(tokenizer.ids(text).flat_values, tf.int32)[: length - len(before) - len(after)]
    row = tf.concat([tf.constant(before, tf.int32), ids, tf.constant(after, tf.int32)], axis=0)
    count = tf.shape(row)[0]
    padding = tf.fill([length - count], tokenizer.pad_id)
    padded = tf.reshape(tf.concat([row, padding], axis=0), (1, length))
    mask = tf.cast(tf.range(length) < count, tf.int32)
    return _named(tokenizer, padded, tf.reshape(mask, (1, length)))


def _named(tokenizer: GraphTokenizer, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * 0}
    return {name: arrays[name] for name in tokenizer.names}


def write_tokenizer(tokenizer: Tokenizer | None, names: Sequence[str], length: int, path: Path) -> Signature:
    """Writes a tokenizer as a TFLite file that takes a string `(1,)` and returns int32 arrays `(1, length)`.

    Args:
        tokenizer: Tokenizer of the model.
        names: Names of the arrays that the model takes.
        length: Longest text in tokens; longer texts are truncated like in the tokenizer.
        path: The file.

    Returns:
        Its signature for the manifest.

    Raises:
        ExportError: TF Text has no operator for a part of the tokenizer.
        ExportMismatchError: The ids of the file differ from those of the tokenizer.
    """
    tf = require("tensorflow", "export")
    in_graph = graph_tokenizer(tokenizer, names)
    module = tf.Module()
    module.graph = tf.function(
        lambda text: encode_one(in_graph, text, length),
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
    return Signature(path.name, {"text": TensorInfo((1,), "string")}, dict.fromkeys(in_graph.names, info))


def tokenize_runner(path: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """Returns a function that converts a text to the model's inputs with a tokenizer file and TensorFlow's interpreter.

    Args:
        path: The file `tokenizer.tflite` of a bundle.

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
    """Compares an exported tokenizer with the original.

    Raises:
        ExportMismatchError: The ids of a text of `SAMPLE` differ.
    """
    for text in SAMPLE:
        expected = tokenizer.encode(text)
        if limit is not None and len(expected) > limit:
            continue  # truncation, of which the tokenizer warns, is compared in the tests
        received = run(text)["input_ids"][0][: len(expected)].tolist()
        if received != expected:
            raise ExportMismatchError(
                f"The tokenizer in the graph returns wrong ids for {text!r}. Expected: {expected}. Received: {received}"
            )
