"""Reads a SentencePiece model file (`spiece.model`) without the SentencePiece library.

The file is one Protocol Buffers message. Its wire format is short enough to read here: a sequence of fields, each a
key (number and wire type in one varint) and a value. Numbers of fields: sentencepiece_model.proto of the SentencePiece
project; wire format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6
UNIGRAM = 1

# Fields that a message may have; numbers from 200 on are for extensions. Anything else is damage: zeros in the middle
# of a file read as fields of number 0, and the pieces under them would be gone without a word.
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5})
_PIECE_FIELDS = frozenset({1, 2, 3})
_EXTENSIONS = 200


@dataclass
class Piece:
    """One entry of the vocabulary; its id is its place in the list."""

    text: str = ""
    score: float = 0.0
    kind: int = 1


@dataclass
class SentencePieceModel:
    """What a tokenizer needs of the file.

    Attributes:
        pieces: The vocabulary in the order of ids.
        algorithm: `UNIGRAM`, or another of SentencePiece's.
        unk_id: Id of the piece that stands for unknown characters.
        byte_fallback: Unknown characters become byte pieces.
        charsmap: Compiled normalization rules, empty for none.
        usual_spaces: A text begins with a space, has no two in a row, and they are written as `▁` before words.
    """

    pieces: list[Piece] = field(default_factory=list)
    algorithm: int = UNIGRAM
    unk_id: int = 0
    byte_fallback: bool = False
    charsmap: bytes = b""
    usual_spaces: bool = True


def parse(data: bytes) -> SentencePieceModel:
    """Reads the bytes of a model file.

    Raises:
        ValueError: the bytes are not such a message; says where.
    """
    model = SentencePieceModel()
    for number, value in _fields(data, _MODEL_FIELDS):
        if number == 1:
            model.pieces.append(_piece(_bytes(value)))
        elif number == 2:
            _trainer(_bytes(value), model)
        elif number == 3:
            for key, content in _fields(_bytes(value)):
                if key == 2:
                    model.charsmap = _bytes(content)
                elif key in (3, 4, 5):  # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
                    model.usual_spaces &= bool(_int(content))
    if not model.pieces:
        raise ValueError("it holds no pieces")
    _check_pieces(model.pieces)
    if not 0 <= model.unk_id < len(model.pieces):
        raise ValueError(f"the unknown piece has id {model.unk_id}, outside its {len(model.pieces)} pieces")
    return model


def serialize(model: SentencePieceModel) -> bytes:
    """The bytes of a model file; `parse` and the SentencePiece library read them. The treatment of spaces is the usual.

    Args:
        model: Its `usual_spaces` must be true.
    """
    pieces = (
        _field(1, _field(1, piece.text.encode()) + _tag(2, 5) + struct.pack("<f", piece.score) + _field(3, piece.kind))
        for piece in model.pieces
    )
    # There are no pieces of these kinds that the library itself would add: -1.
    absent = b"".join(_field(number, -1) for number in (41, 42, 43))
    trainer = _field(3, model.algorithm) + _field(35, int(model.byte_fallback)) + _field(40, model.unk_id) + absent
    return b"".join(pieces) + _field(2, trainer) + _field(3, _field(2, model.charsmap))


def _tag(number: int, wire: int) -> bytes:
    return _encoded(number << 3 | wire)


def _field(number: int, value: int | bytes) -> bytes:
    """A number as a varint, or bytes with their length before them."""
    if isinstance(value, bytes):
        return _tag(number, 2) + _encoded(len(value)) + value
    return _tag(number, 0) + _encoded(value % (1 << 64))


def _encoded(value: int) -> bytes:
    """A varint."""
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _piece(data: bytes) -> Piece:
    piece = Piece()
    for number, value in _fields(data, _PIECE_FIELDS):
        if number == 1:
            piece.text = _bytes(value).decode("utf-8")
        elif number == 2:
            piece.score = _float(value)
        elif number == 3:
            piece.kind = _int(value)
    return piece


def _check_pieces(pieces: list[Piece]) -> None:
    """Refuses what no trainer writes, and what would give two tokens one id."""
    seen: dict[str, int] = {}
    for index, piece in enumerate(pieces):
        if not piece.text or "\0" in piece.text:
            raise ValueError(f"piece {index} is {piece.text!r}: no text, or one with a zero in it")
        if not math.isfinite(piece.score):
            raise ValueError(f"piece {index}, {piece.text!r}, has the score {piece.score}, which is not finite")
        if not NORMAL <= piece.kind <= BYTE:
            raise ValueError(f"piece {index}, {piece.text!r}, is of type {piece.kind}, which is none from 1 to 6")
        first = seen.setdefault(piece.text, index)
        if first != index:
            raise ValueError(f"pieces {first} and {index} are the same, {piece.text!r}")


def _trainer(data: bytes, model: SentencePieceModel) -> None:
    for number, value in _fields(data):
        if number == 3:
            model.algorithm = _int(value)
        elif number == 24:  # treat_whitespace_as_suffix
            model.usual_spaces &= not _int(value)
        elif number == 35:
            model.byte_fallback = bool(_int(value))
        elif number == 40:
            model.unk_id = _int(value)


def _fields(data: bytes, known: Collection[int] = ()) -> Iterator[tuple[int, int | bytes]]:
    """Numbers of fields and values: an `int` for varints, else the raw bytes. Other fields than `known` are refused."""
    at = 0
    while at < len(data):
        begin = at
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0 or (known and number not in known and number < _EXTENSIONS):
            raise ValueError(f"a field of number {number} at byte {begin} of a message is none of SentencePiece's")
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at} is none of SentencePiece's")
        if at + size > len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number longer than 64 bits at byte {at}")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where a text or message was expected")
    return value


def _float(value: int | bytes) -> float:
    content = _bytes(value)
    if len(content) != 4:
        raise ValueError(f"a number of {len(content)} bytes stands where one of 4 was expected")
    return float(struct.unpack("<f", content)[0])


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a text or message stands where a number was expected")
    return value
