"""Reading of untrusted input: paths given by users, and text and JSON files from other sources.

Python's functions raise a dozen types of exceptions for a bad path or file; the functions here raise one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError, KerasformerError, SourceError

JsonObject = dict[str, Any]
"""An object of JSON: values by name, to be checked by its readers."""

JsonMapping = Mapping[str, Any]
"""As `JsonObject`, for functions that only read it."""

_MAX_DIGITS = 100  # of an integer: Hugging Face writes 10**30 for a length without a limit
_MAX_LEVELS = 200


def local_path(path: str | os.PathLike[str], error: type[KerasformerError] = SourceError) -> Path:
    """Returns the absolute path, which need not exist; `~` is the home folder.

    Args:
        path: String or `Path`.
        error: Type of the exception.
    Raises:
        SourceError: the value is not a usable path: wrong type, empty, a loop of links, too long, or with characters
            that file names cannot contain; the type is `error`.
    """
    try:
        if path == "":
            raise ValueError("it is empty")
        absolute = Path(path).expanduser().resolve()
        absolute.exists()
    except (OSError, RuntimeError, TypeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(
            f"this path cannot be used: {reason}. Expected the name of a file or folder. Received: {_short(path)}"
        ) from problem
    return absolute


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        SourceError: the file is missing, is not valid JSON (the message contains the line), or is not a JSON object.
    """
    value = parse_json(read_bytes(path), str(path))
    if not isinstance(value, dict):
        raise SourceError(f"{path} must contain a JSON object. Received: {type(value).__name__}")
    return value


def read_bytes(path: Path) -> bytes:
    """Reads a file.

    Raises:
        SourceError: the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceError(f"{path.name} is missing. Expected: {path}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8, with or without a byte order mark.

    Raises:
        SourceError: the file is missing, cannot be read, or has another encoding.
    """
    return decode(read_bytes(path), str(path))


def decode(content: bytes, name: str) -> str:
    """Decodes UTF-8, with or without a byte order mark.

    Raises:
        SourceError: the content has another encoding.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{name} cannot be read: it is not in UTF-8 ({error}). Convert it to UTF-8") from error


def parse_json(content: str | bytes, name: str) -> Any:
    """Parses JSON text.

    Args:
        content: Text, or bytes in UTF-8.
        name: Name for error messages, such as the path of the file.
    Raises:
        SourceError: the text is not valid JSON, or contains a duplicate name in an object, half a surrogate pair, an
            integer of more than 100 digits, or more than 200 levels of nesting.
    """
    text = decode(content, name) if isinstance(content, bytes) else content
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=unique_object)
        check_levels(value)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{name} is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise SourceError(f"{name} cannot be read: it is nested more than {_MAX_LEVELS} levels deep") from error
    except UnicodeEncodeError as error:
        raise SourceError(f"{name} cannot be read: it contains half a surrogate pair ({error})") from error
    except ValueError as error:
        raise SourceError(f"{name} cannot be read: {error}") from error
    return value


def setting_of(pair: str) -> tuple[str, Any]:
    """Parses `name=value` of a command line; a value that is not JSON is a string.

    Raises:
        InputError: it is not `name=value`.
    """
    name, equals, value = pair.partition("=")
    if not (name and equals):
        raise InputError(f"--set must be name=value. Received: {pair!r}. Try --set early_stopping=true.")
    name = name.replace("-", "_")
    try:
        return name, parse_json(value, name)
    except SourceError:
        return name, value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"it contains an integer of {len(digits)} digits; at most {_MAX_DIGITS} are supported")
    return int(digits)


def unique_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns an object of JSON; raises `ValueError` for a double name, since readers differ in the one they use."""
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        double = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"an object in it has the name {_short(double)} twice")
    return value


def check_levels(value: object) -> None:
    """Raises `RecursionError` for nesting so deep that code which traverses or serializes the value would fail."""
    level = [value]
    for _ in range(_MAX_LEVELS):
        level = [child for each in level for child in _children(each) if isinstance(child, dict | list)]
        if not level:
            return
    raise RecursionError


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
