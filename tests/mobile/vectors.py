"""Writes `mobile/vectors/`: `python -m tests.mobile.vectors [PART…]`. Its README describes the files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.mobile import decoding_vectors, task_vectors, tokenizer_vectors

FOLDER = Path(__file__).parents[2] / "mobile" / "vectors"
PARTS = {"tokenizers": tokenizer_vectors.write, "decoding": decoding_vectors.write, "tasks": task_vectors.write}


def main() -> None:
    """Replaces parts of the folder, all by default."""
    for name in sys.argv[1:] or PARTS:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        PARTS[name](FOLDER / name)


if __name__ == "__main__":
    main()
