"""Reading and writing of SentencePiece model files (`spiece.model`) without the SentencePiece library.

The file is one Protocol Buffers message: a sequence of fields, each a key (field number and wire type in one varint)
and a value. Field numbers: sentencepiece_model.proto of the SentencePiece project; wire format:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kerasformer.files.reading import JsonMapping

NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6
UNIGRAM, BYTE_PAIRS = 1, 2

_VARINT, _BYTES, _FLOAT = 0, 2, 5
# Wire types of the fields by their numbers. The model and a piece have no others, except for extensions: zeros in the
# middle of a damaged file look like fields with the number 0, and the pieces that they replace would be lost silently.
_MODEL = dict.fromkeys(range(1, 6), _BYTES)
_PIECE = {1: _BYTES, 2: _FLOAT, 3: _VARINT}
_TRAINER = dict.fromkeys((3, 24, 35, 40), _VARINT)
_NORMALIZER = {2: _BYTES, 3: _VARINT, 4: _VARINT, 5: _VARINT}
_EXTENSIONS = 200


@dataclass
class Piece:
    """One entry of the vocabulary, whose id is its index in the list.

    Attributes:
        text: Text of the piece.
        score: Log-probability of the piece.
        kind: `NORMAL`, `UNKNOWN`, `CONTROL`, `USER_DEFINED`, `UNUSED` or `BYTE`.
    """

    text: str = ""
    score: float = 0.0
    kind: int = 1


@dataclass
class SentencePieceModel:
    """The content of the file that a tokenizer needs.

    Attributes:
        pieces: Vocabulary in the order of ids.
        algorithm: `UNIGRAM`, `BYTE_PAIRS` or the number of another algorithm of SentencePiece.
        unk_id: Id of the piece for unknown characters.
        byte_fallback: Whether unknown characters become byte pieces.
        charsmap: Compiled normalization rules, empty if there are none.
        default_spaces: Whether spaces are handled in the default way: a space is added to the start of a text, repeated
            spaces are removed, and spaces become `▁` before words.
    """

    pieces: list[Piece]
    algorithm: int = UNIGRAM
    unk_id: int = 0
    byte_fallback: bool = False
    charsmap: bytes = b""
    default_spaces: bool = True


def parse(data: bytes) -> SentencePieceModel:
    """Parses the bytes of a model file.

    Raises:
        ValueError: the bytes are not a SentencePiece model; the message contains the position of the error.
    """
    pieces: list[Piece] = []
    trainer: dict[int, Any] = {}
    rules: dict[int, Any] = {}
    for number, content in _fields(data, _MODEL, closed=True):
        if number == 1:
            piece = dict(_fields(content, _PIECE, closed=True))
            pieces.append(Piece(piece.get(1, b"").decode("utf-8"), piece.get(2, 0.0), piece.get(3, NORMAL)))
        elif number == 2:
            trainer |= _fields(content, _TRAINER)
        elif number == 3:
            rules |= _fields(content, _NORMALIZER)
    if not pieces:
        raise ValueError("it contains no pieces")
    _check_pieces(pieces)
    unk_id = trainer.get(40, 0)
    if unk_id >= len(pieces):
        raise ValueError(f"the unknown piece has the id {unk_id}, but there are {len(pieces)} pieces")
    return SentencePieceModel(
        pieces,
        algorithm=trainer.get(3, UNIGRAM),
        unk_id=unk_id,
        byte_fallback=bool(trainer.get(35, False)),
        charsmap=rules.get(2, b""),
        # add_dummy_prefix, remove_extra_whitespaces and escape_whitespaces, without treat_whitespace_as_suffix.
        default_spaces=all(rules.get(number, True) for number in (3, 4, 5)) and not trainer.get(24, False),
    )


def from_tokenizer(content: JsonMapping) -> SentencePieceModel:
    """Returns the model that a Unigram tokenizer was made from.

    Args:
        content: Content of `tokenizer.json`.

    Raises:
        ValueError: SentencePiece has no counterpart for the normalizer, byte fallback or the ids of the tokens.
    """
    normalizer, model = content["normalizer"], content["model"]
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    names = [step["type"] for step in steps]
    if names not in ([], ["Precompiled"]) or model.get("byte_fallback"):
        raise ValueError(
            "no normalizer except Precompiled, and no byte fallback were expected. "
            f"Received: {', '.join(names)}{' and byte fallback' if model.get('byte_fallback') else ''}"
        )
    ids = {text: index for index, (text, _) in enumerate(model["vocab"])}
    ids |= {token["content"]: token["id"] for token in content["added_tokens"]}
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("a vocabulary with the ids 0, 1, 2 … was expected. Received: one with gaps")
    kinds = {token["content"]: CONTROL for token in content["added_tokens"] if token["special"]}
    kinds[model["vocab"][model["unk_id"]][0]] = UNKNOWN
    scores = dict(model["vocab"])
    pieces = [Piece(text, scores.get(text, 0.0), kinds.get(text, NORMAL)) for text in sorted(ids, key=ids.__getitem__)]
    charsmap = base64.b64decode(steps[0]["precompiled_charsmap"]) if steps else b""
    return SentencePieceModel(pieces, unk_id=model["unk_id"], charsmap=charsmap)


def serialize(model: SentencePieceModel) -> bytes:
    """Returns the bytes of a model file, which `parse` and the SentencePiece library can read.

    Args:
        model: Model whose `default_spaces` is true.
    """
    pieces = (
        _field(1, _field(1, piece.text.encode()) + _tag(2, 5) + struct.pack("<f", piece.score) + _field(3, piece.kind))
        for piece in model.pieces
    )
    # The ids of the begin, end and padding pieces are -1, so that the library does not add them.
    disabled = b"".join(_field(number, -1) for number in (41, 42, 43))
    trainer = _field(3, model.algorithm) + _field(35, int(model.byte_fallback)) + _field(40, model.unk_id) + disabled
    return b"".join(pieces) + _field(2, trainer) + _field(3, _field(2, model.charsmap))


def _tag(number: int, wire: int) -> bytes:
    return _encode_varint(number << 3 | wire)


def _field(number: int, value: int | bytes) -> bytes:
    """Encodes a field: an integer as a varint, bytes with their length."""
    if isinstance(value, bytes):
        return _tag(number, 2) + _encode_varint(len(value)) + value
    return _tag(number, 0) + _encode_varint(value % (1 << 64))


def _encode_varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _check_pieces(pieces: list[Piece]) -> None:
    """Checks that all pieces are valid and different.

    Raises:
        ValueError: an invalid piece, or two equal pieces.
    """
    indices: dict[str, int] = {}
    for index, piece in enumerate(pieces):
        if not piece.text or "\0" in piece.text:
            raise ValueError(f"piece {index} is {piece.text!r}, which is empty or contains a null character")
        if not math.isfinite(piece.score):
            raise ValueError(f"piece {index}, {piece.text!r}, has the score {piece.score}, which is not finite")
        if not NORMAL <= piece.kind <= BYTE:
            raise ValueError(f"piece {index}, {piece.text!r}, has the type {piece.kind}, which is not from 1 to 6")
        first = indices.setdefault(piece.text, index)
        if first != index:
            raise ValueError(f"pieces {first} and {index} are equal, {piece.text!r}")


def _fields(data: bytes, wires: Mapping[int, int], closed: bool = False) -> Iterator[tuple[int, Any]]:
    """Yields the number and value of each field: an `int`, a `float`, or the raw bytes.

    Args:
        data: The message.
        wires: Wire types of fields by their numbers.
        closed: Whether the message has no other fields, except for extensions.

    Raises:
        ValueError: damaged data.
    """
    offset = 0
    while offset < len(data):
        start = offset
        key, offset = _varint(data, offset)
        number, wire = key >> 3, key & 7
        if number == 0 or (closed and number not in wires and number < _EXTENSIONS):
            raise ValueError(f"the field number {number} at byte {start} of a message is unknown")
        if wires.get(number, wire) != wire:
            raise ValueError(f"the field number {number} must have the wire type {wires[number]}. Received: {wire}")
        if wire == _VARINT:
            value, offset = _varint(data, offset)
            yield number, value
            continue
        if wire == _BYTES:
            size, offset = _varint(data, offset)
        elif wire in (1, _FLOAT):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"the wire type {wire} at byte {offset} of a message is unknown")
        if offset + size > len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of a field")
        content = data[offset : offset + size]
        yield number, struct.unpack("<f", content)[0] if wire == _FLOAT else content
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of a number")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError(f"a number longer than 64 bits at byte {offset}")
