"""Compares a tokenizer of another language with Python's on many lines of text, and its speed with that of Rust.

    python -m tests.mobile.lines FOLDER LINES -- PROGRAM…

`FOLDER` has `tokenizer.json`; `LINES` is a file of UTF-8 with a text in each line. `PROGRAM tokenize FOLDER` reads the
lines from its standard input, and writes `{"ids": […], "offsets": […]}` for each; `PROGRAM time FOLDER` writes the
seconds for all lines, after it has tokenized them once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kerasformer.tokenization import Tokenizer

_SHOWN = 5
_BATCH = 1000


@dataclass
class Comparison:
    """The result for a file of lines.

    Attributes:
        lines: Number of lines.
        differences: The lines that differ, with the expected and the received ids and offsets.
        seconds: Of the program, for all lines; `None` if it was not measured.
        rust_seconds: Of the Rust library in one thread.
    """

    lines: int
    differences: list[tuple[str, object, object]] = field(default_factory=list)
    seconds: float | None = None
    rust_seconds: float | None = None

    def __str__(self) -> str:
        parts = [f"{len(self.differences)} of {self.lines:,} lines differ"]
        if self.seconds and self.rust_seconds:
            parts.append(
                f"{self.seconds:.2f} s, Rust {self.rust_seconds:.2f} s: {self.seconds / self.rust_seconds:.2f} x"
            )
        shown = [
            f"{line!r}\n  expected {expected}\n  received {received}"
            for line, expected, received in self.differences[:_SHOWN]
        ]
        return "\n".join(["; ".join(parts), *shown])


def compare(folder: Path, lines: Path, program: Sequence[str], measured: bool = True) -> Comparison:
    """Compares a program with Python.

    Args:
        folder: Folder with `tokenizer.json`.
        lines: File of lines.
        program: The program and its first arguments.
        measured: Whether to measure the speed.
    Raises:
        RuntimeError: the program failed, or wrote another number of lines.
    """
    tokenizer, texts = Tokenizer.load(folder), lines.read_bytes().decode().removesuffix("\n").split("\n")
    answers = _output(program, "tokenize", folder, lines).splitlines()
    if len(answers) != len(texts):
        raise RuntimeError(f"A line for each text was expected. Received: {len(answers)} for {len(texts)} texts")
    result = Comparison(len(texts))
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        for text, encoding, answer in zip(batch, tokenizer.backend.encode_batch(batch), answers[start:], strict=False):
            expected = {"ids": encoding.ids, "offsets": [index for span in encoding.offsets for index in span]}
            if (received := json.loads(answer)) != expected:
                result.differences.append((text, expected, received))
    if measured:
        result.seconds = float(_output(program, "time", folder, lines))
        result.rust_seconds = _rust_seconds(tokenizer, texts)
    return result


def _output(program: Sequence[str], command: str, folder: Path, lines: Path) -> str:
    with lines.open("rb") as file:
        done = subprocess.run([*program, command, str(folder)], stdin=file, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


def _rust_seconds(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    """Returns the time of the second pass over all texts, one after another in one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for _ in range(2):
        started = time.perf_counter()
        for start in range(0, len(texts), _BATCH):
            tokenizer.backend.encode_batch(texts[start : start + _BATCH])
    return time.perf_counter() - started


def main() -> None:
    """Compares the program of the command line."""
    split = sys.argv.index("--")
    folder, lines = map(Path, sys.argv[1:split])
    result = compare(folder, lines, sys.argv[split + 1 :])
    print(result)
    sys.exit(bool(result.differences))


if __name__ == "__main__":
    main()
