"""Arrays in JSON: small types in base64, and text that cannot end the element of a page that contains it.

The page reads them with `page/arrays.js`.
"""

from __future__ import annotations

import base64
import json

import numpy as np

from kerasformer.files.reading import JsonObject

_NAMES = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "float32": "f4"}


def packed(array: np.ndarray) -> JsonObject:
    """Returns an array of one of the types uint8, uint16, uint32 and float32 as JSON: shape, type and base64."""
    values = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(values.tobytes()).decode()
    return {"shape": list(array.shape), "type": _NAMES[array.dtype.name], "data": data}


def packed_shares(array: np.ndarray) -> JsonObject:
    """Returns numbers from 0 to 1 as JSON, in steps of 1/255."""
    return packed(np.rint(255 * np.clip(array, 0, 1)).astype(np.uint8))


def packed_ids(array: np.ndarray) -> JsonObject:
    """Returns numbers that count from 0 as JSON, in two bytes each if they fit."""
    return packed(array.astype(np.uint16 if not array.size or array.max() < 2**16 else np.uint32))


def packed_numbers(array: np.ndarray) -> JsonObject:
    """Returns float32 numbers as JSON."""
    return packed(np.asarray(array, np.float32))


def script_json(value: object) -> str:
    """Returns JSON for an element `<script type="application/json">`.

    A text in it can neither end the element nor open a comment, since `<`, `>` and `&` are escaped.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escapes: dict[str, str | int | None] = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
    return text.translate(str.maketrans(escapes))
