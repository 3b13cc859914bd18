"""What comes from outside: paths that a user names, and JSON that others wrote. One door for each.

Python's own functions raise a dozen kinds of exceptions for a bad path or file; behind these, there is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kerasformer.errors import KerasformerError, SourceError

_MOST_DIGITS = 100  # of an integer: Hugging Face writes 10**30 where a length has no limit
_MOST_LEVELS = 200


def local_path(path: str | os.PathLike[str], error: type[KerasformerError] = SourceError) -> Path:
    """The absolute path that a user means, whether or not anything is there; `~` is the home folder.

    Args:
        path: Text or `Path`.
        error: Type of the exception.
    Raises:
        SourceError: it cannot be a path: of another type, a loop of links, too long, or with characters that no file
            name may have.
    """
    try:
        if path == "":
            raise ValueError("it is empty")
        found = Path(path).expanduser().resolve()
        found.exists()
    except (OSError, RuntimeError, TypeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(
            f"this path cannot be used: {reason}. Expected the name of a file or folder. Received: {_short(path)}"
        ) from problem
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        SourceError: the file is missing, is not JSON (the message has the line), or holds something else.
    """
    value = parse_json(read_bytes(path), str(path))
    if not isinstance(value, dict):
        raise SourceError(f"{path} must hold a JSON object. Received: {type(value).__name__}")
    return value


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        SourceError: it is missing, or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceError(f"{path.name} is missing. Expected: {path}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8, with or without a byte order mark.

    Raises:
        SourceError: it is missing, cannot be read, or is in another encoding.
    """
    return decode(read_bytes(path), str(path))


def decode(content: bytes, name: str) -> str:
    """Text from UTF-8, with or without a byte order mark.

    Raises:
        SourceError: another encoding.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{name} cannot be read: it is not in UTF-8 ({error}). Save it in UTF-8") from error


def parse_json(content: str | bytes, name: str) -> Any:
    """A value from JSON text; bytes must be UTF-8.

    Args:
        content: The text.
        name: What errors call it, such as the path of its file.
    Raises:
        SourceError: it is not JSON, or holds a name twice in one object, half a surrogate pair, an integer of more than
            100 digits, or more than 200 levels.
    """
    text = decode(content, name) if isinstance(content, bytes) else content
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
        _check_levels(value)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{name} is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise SourceError(f"{name} cannot be read: it is nested more than {_MOST_LEVELS} levels deep") from error
    except UnicodeEncodeError as error:
        raise SourceError(f"{name} cannot be read: it holds half a surrogate pair ({error})") from error
    except ValueError as error:
        raise SourceError(f"{name} cannot be read: {error}") from error
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds an integer of {len(digits)} digits, and {_MOST_DIGITS} are the most")
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"an object in it has two values under one name, {_short(twice)}")
    return value


def _check_levels(value: Any) -> None:
    """Refuses a depth at which code that walks through the value, or writes it again, would fail."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [child for each in level for child in _children(each) if isinstance(child, dict | list)]
        if not level:
            return
    raise RecursionError


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
