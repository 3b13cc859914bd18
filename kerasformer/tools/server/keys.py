"""Keys of several clients, each with the name by which requests take turns."""

from __future__ import annotations

import re
from pathlib import Path

from kerasformer.errors import InputError, SourceError


def read_keys(text: str) -> dict[str, str]:
    """Returns the key of each client.

    Args:
        text: `NAME=KEY` for each client, separated by commas or lines; or `@FILE`, a file with such lines. Lines that
            begin with `#` are ignored.
    Raises:
        InputError: no key, a line that is none, or two with the same name or key.
        SourceError: the file cannot be read.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"The file with the API keys cannot be read: {text[1:]}. Received: {error}") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(re.split(r"[,\n]", text), 1):
        name, separator, key = (part.strip() for part in line.partition("="))
        if not line.strip() or line.strip().startswith("#"):
            continue
        # The line is not shown, since it may be a key.
        if not (name and separator and key and key.isascii()):
            raise InputError(
                f"API keys must be NAME=KEY, with a key of ASCII characters. Received: another entry, no. {number}"
            )
        if name in keys or key in keys.values():
            raise InputError(f"Each client needs its own name and key. Received: {name} with one of another entry")
        keys[name] = key
    if not keys:
        raise InputError("API keys must be NAME=KEY for at least one client. Received: none")
    return keys
