"""Compares a tokenizer of another language with Python's on many lines of text, and its speed with that of Rust.

    python -m tests.mobile.lines write LINES FILES… [--count 100000]
    python -m tests.mobile.lines vocabularies DATA FOLDER
    python -m tests.mobile.lines compare FOLDERS… LINES [--cache FOLDER] [--no-time] -- PROGRAM…

`write` makes a file of real, changed and random lines from text files. `vocabularies` writes a folder for each family
of tokenizers, with vocabularies of published models from `DATA`. `compare` runs a program with each of them: a folder
has `tokenizer.json`; `LINES` is a file of UTF-8 with a text in each line. `PROGRAM tokenize FOLDER` reads the lines
from its standard input, and writes `{"ids":[…],"offsets":[…]}` for each; `PROGRAM time FOLDER` writes the processor's
seconds for all lines, after it has tokenized them once. `--cache` keeps Python's answers for the next language.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers

from kerasformer.tokenization import Tokenizer
from tests.mobile.hard_lines import hard_lines

_SHOWN = 5
_BATCH = 1000


@dataclass
class Comparison:
    """The result for a file of lines.

    Attributes:
        lines: Number of lines.
        differences: The lines that differ, with the expected and the received ids and offsets.
        seconds: Of the processor, for all lines, in the program; `None` if they were not measured.
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


def compare(
    folder: Path, lines: Path, program: Sequence[str], measured: bool = True, cache: Path | None = None
) -> Comparison:
    """Compares a program with Python.

    Args:
        folder: Folder with `tokenizer.json`.
        lines: File of lines.
        program: The program and its first arguments.
        measured: Whether to measure the speed.
        cache: Folder in which Python's answers are kept for the next call with the same tokenizer and lines.
    Raises:
        RuntimeError: the program failed, or wrote another number of lines.
    """
    tokenizer, texts = Tokenizer.load(folder), lines.read_bytes().decode().removesuffix("\n").split("\n")
    answers = _output(program, "tokenize", folder, lines).splitlines()
    if len(answers) != len(texts):
        raise RuntimeError(f"A line for each text was expected. Received: {len(answers)} for {len(texts)} texts")
    result = Comparison(len(texts))
    for text, expected, received in zip(texts, _expected(tokenizer, texts, cache), answers, strict=True):
        if expected != received and (pair := (json.loads(expected), json.loads(received)))[0] != pair[1]:
            result.differences.append((text, *pair))
    if measured:
        result.seconds = float(_output(program, "time", folder, lines))
        result.rust_seconds = _rust_seconds(tokenizer, texts)
    return result


def _expected(tokenizer: Tokenizer, texts: Sequence[str], cache: Path | None) -> list[str]:
    """Returns Python's answers as JSON, those of the cache if it has them."""
    key = "\0".join([tokenizers.__version__, tokenizer.backend.to_str(), *texts]).encode()
    kept = cache and cache / f"{hashlib.sha256(key).hexdigest()[:16]}.jsonl"
    if kept and kept.exists():
        return kept.read_text().splitlines()
    answers = []
    for start in range(0, len(texts), _BATCH):
        for encoding in tokenizer.backend.encode_batch(texts[start : start + _BATCH]):
            answer = {"ids": encoding.ids, "offsets": [index for span in encoding.offsets for index in span]}
            answers.append(json.dumps(answer, separators=(",", ":")))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("\n".join(answers) + "\n")
    return answers


def _output(program: Sequence[str], command: str, folder: Path, lines: Path) -> str:
    with lines.open("rb") as file:
        done = subprocess.run([*program, command, str(folder)], stdin=file, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr.decode()[-2000:]}")
    return done.stdout.decode()


def _rust_seconds(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    """Returns the processor's time of the second pass over all texts, one after another in one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for _ in range(2):
        started = time.process_time()
        for start in range(0, len(texts), _BATCH):
            tokenizer.backend.encode_batch(texts[start : start + _BATCH])
    return time.process_time() - started


def main() -> None:
    """Runs the command of the command line."""
    before, program = sys.argv[1:], []
    if "--" in before:
        before, program = before[: before.index("--")], before[before.index("--") + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.mobile.lines")
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write")
    write.add_argument("lines", type=Path)
    write.add_argument("files", type=Path, nargs="+")
    write.add_argument("--count", type=int, default=100_000)
    vocabularies = commands.add_parser("vocabularies")
    vocabularies.add_argument("data", type=Path)
    vocabularies.add_argument("folder", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("folders", type=Path, nargs="+")
    compared.add_argument("lines", type=Path)
    compared.add_argument("--cache", type=Path)
    compared.add_argument("--no-time", action="store_true")
    options = parser.parse_args(before)
    if options.command == "write":
        options.lines.write_bytes("\n".join([*hard_lines(options.files, options.count), ""]).encode())
    elif options.command == "vocabularies":
        from tests.mobile import published  # which imports Keras, as the tests' tokenizers do

        published.write(options.data, options.folder)
    else:
        different = False
        for folder in options.folders:
            result = compare(folder, options.lines, program, not options.no_time, options.cache)
            print(f"{folder.name}: {result}", flush=True)
            different = different or bool(result.differences)
        sys.exit(different)


if __name__ == "__main__":
    main()
