"""Reading and writing of SentencePiece model files (`spiece.model`) without the SentencePiece library.

The file is one Protocol Buffers message: a sequence of fields, each a key (field number and wire type in one varint)
and a value. Field numbers: sentencepiece_model.proto of the SentencePiece project; wire format:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from kerasformer.files.reading import JsonMapping

NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6
UNIGRAM, BYTE_PAIRS = 1, 2

# Fields that a message may have; numbers from 200 on are extensions. Others indicate damage: zeros in the middle of a
# file look like fields with the number 0, and the pieces that they replace would be lost silently.
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5})
_PIECE_FIELDS = frozenset({1, 2, 3})
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

    pieces: list[Piece] = field(default_factory=list)
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
                    model.default_spaces &= bool(_int(content))
    if not model.pieces:
        raise ValueError("it contains no pieces")
    _check_pieces(model.pieces)
    if not 0 <= model.unk_id < len(model.pieces):
        raise ValueError(f"the unknown piece has the id {model.unk_id}, but there are {len(model.pieces)} pieces")
    return model


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


def _trainer(data: bytes, model: SentencePieceModel) -> None:
    for number, value in _fields(data):
        if number == 3:
            model.algorithm = _int(value)
        elif number == 24:  # treat_whitespace_as_suffix
            model.default_spaces &= not _int(value)
        elif number == 35:
            model.byte_fallback = bool(_int(value))
        elif number == 40:
            model.unk_id = _int(value)


def _fields(data: bytes, known: Collection[int] = ()) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and value of each field: an `int` for varints, otherwise the raw bytes.

    Raises:
        ValueError: damaged data, or a field that is not in `known`.
    """
    offset = 0
    while offset < len(data):
        start = offset
        key, offset = _varint(data, offset)
        number, wire = key >> 3, key & 7
        if number == 0 or (known and number not in known and number < _EXTENSIONS):
            raise ValueError(f"the field number {number} at byte {start} of a message is unknown")
        if wire == 0:
            value, offset = _varint(data, offset)
            yield number, value
            continue
        if wire == 2:
            size, offset = _varint(data, offset)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"the wire type {wire} at byte {offset} of a message is unknown")
        if offset + size > len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of a field")
        yield number, data[offset : offset + size]
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


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("expected a text or message, received a number")
    return value


def _float(value: int | bytes) -> float:
    content = _bytes(value)
    if len(content) != 4:
        raise ValueError(f"expected a number of 4 bytes, received {len(content)} bytes")
    return float(struct.unpack("<f", content)[0])


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("expected a number, received a text or message")
    return value
