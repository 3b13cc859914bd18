"""Writes `mobile/vectors/`: `python -m tests.mobile.vectors`. Its README describes the files."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.mobile import decoding_vectors, tokenizer_vectors

FOLDER = Path(__file__).parents[2] / "mobile" / "vectors"
PARTS = {"tokenizers": tokenizer_vectors.write, "decoding": decoding_vectors.write}


def main() -> None:
    """Replaces the folder's parts."""
    for name, write in PARTS.items():
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        write(FOLDER / name)


if __name__ == "__main__":
    main()
