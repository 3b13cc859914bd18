"""Writing of the files of a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kerasformer.errors import TokenizerError
from kerasformer.files.publishing import replacing
from kerasformer.files.reading import JsonMapping


def write_files(folder: Path, files: Mapping[str, str | bytes], settings: Mapping[str, JsonMapping]) -> None:
    """Writes files to a folder, which is created if it does not exist.

    Args:
        folder: The folder.
        files: Contents of files by their names.
        settings: Contents of JSON files by their names.

    Raises:
        TokenizerError: the folder cannot be written to.
    """
    texts = {name: json.dumps(content, indent=2, ensure_ascii=False) for name, content in settings.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in {**files, **texts}.items():
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    except OSError as error:
        raise TokenizerError(f"the tokenizer cannot be written to {folder}: {error}") from error
