"""Bundles of one decoder with different caches, in turn: `python -m benchmarks.caches TEXT BUNDLE BUNDLE …`.

    kerasformer export story-gpt2 float32 --format onnx
    kerasformer export story-gpt2 int8 --format onnx --cache-dtype int8
    python -m benchmarks.caches TEXT float32 int8

The first bundle is the one that the others are compared with. TEXT is a plain or gzip-compressed file that the model
was not trained on. With `--rows 0`, only times are measured, and the text is not read.

Cache MB is the size of the caches of one text of the full length, by the tensors of the file; held, the size of the
arrays of a saved state of the longest text that was read. KL is the mean divergence from the first bundle of the
distributions of the next token, in nats; same, the share of positions with the same most probable token. Times are
processor time of one thread, which a busy machine changes less than elapsed time: the smallest of all rounds, of a step
after so many tokens and of reading a prompt.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from benchmarks.cost.next_tokens import normalized
from kerasformer.bundle import Bundle
from kerasformer.runtime import open_engine

STEPS = 16
"""Steps of one measurement."""


class Candidate:
    """A bundle in its runtime, on one thread.

    Args:
        folder: The bundle.
    """

    def __init__(self, folder: Path) -> None:
        self.name, self.manifest = str(folder), Bundle(folder).manifest
        self.engine: Any = open_engine(folder, self.manifest, 1)

    def state(self, ids: np.ndarray) -> Any:
        """Returns the state after reading the ids `(T,)`."""
        # `start` leaves the last token to the first step.
        row = np.append(ids, 0)[None].astype("int32")
        return self.engine.start(row, np.ones_like(row))

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities `(T, V)` along the ids `(T,)`, read one at a time."""
        state, logits = self.state(ids[:0]), []
        for token in ids:
            scores, state = self.engine.step(token.reshape(1, 1), state)
            logits.append(scores[0, -1])
        return normalized(np.stack(logits))

    def seconds_of_step(self, start: Any) -> float:
        """Returns the processor time of a step after a state."""
        state = self.engine.fork(start)
        tokens = np.ones((1, 1), "int32")
        begin = time.process_time()
        for _ in range(STEPS):
            _, state = self.engine.step(tokens, state)
        return (time.process_time() - begin) / STEPS

    def seconds_of_prompt(self, ids: np.ndarray) -> float:
        """Returns the processor time of reading a prompt."""
        begin = time.process_time()
        self.state(ids)
        return time.process_time() - begin


def rows_of_text(path: Path, folder: Path, length: int, count: int) -> np.ndarray:
    """Returns the first ids of a text with the tokenizer of a bundle, `(count, length)` or fewer rows."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
    ids = np.array(kf.tokenizer(folder).encode(text[: 12 * length * count]), "int32")
    return ids[: len(ids) // length * length].reshape(-1, length)[:count]


def quality(candidates: list[Candidate], rows: np.ndarray) -> list[str]:
    """Returns the columns of KL, agreement and perplexity of each candidate on rows of ids `(R, T)`."""
    sums = np.zeros((len(candidates), 3))
    for ids in rows:
        found = [candidate.log_probabilities(ids) for candidate in candidates]
        for index, values in enumerate(found):
            sums[index, 0] += (np.exp(found[0]) * (found[0] - values)).sum(axis=-1).mean()
            sums[index, 1] += (found[0].argmax(axis=-1) == values.argmax(axis=-1)).mean()
            sums[index, 2] -= values[np.arange(len(ids) - 1), ids[1:]].mean()
    divergence, same, losses = (sums / len(rows)).T
    perplexity = np.exp(losses)
    changes = perplexity / perplexity[0] - 1
    return [
        f"{kl:.6f} | {share:.1%} | {value:.3f} ({change:+.3%})"
        for kl, share, value, change in zip(divergence, same, perplexity, changes, strict=True)
    ]


def times(candidates: list[Candidate], ids: np.ndarray, positions: list[int], prompt: int, rounds: int) -> list[str]:
    """Returns the columns of the times of each candidate, in milliseconds and relative to the first."""
    measured: list[list[float]] = [[float("inf")] * (len(positions) + 1) for _ in candidates]
    for column in range(len(positions) + 1):
        tests: list[Callable[[], float]] = []
        for candidate in candidates:
            if column == len(positions):
                tests.append(lambda candidate=candidate: candidate.seconds_of_prompt(ids[:prompt]))
            else:
                start = candidate.state(ids[: positions[column]])
                tests.append(lambda candidate=candidate, start=start: candidate.seconds_of_step(start))
        for turn in range(rounds + 1):
            for row, test in zip(measured, tests, strict=True):
                seconds = test()
                row[column] = min(row[column], seconds if turn else float("inf"))
    return [
        " | ".join(f"{1e3 * own:.2f} ({own / first:.2f} ×)" for own, first in zip(row, measured[0], strict=True))
        for row in measured
    ]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--length", type=int, default=256, help="tokens of a row of the text")
    parser.add_argument("--rows", type=int, default=16, help="rows to compare the distributions on; 0 for none")
    parser.add_argument("--positions", type=int, nargs="+", default=[64, 512, 1000])
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of the times; 0 for none")
    options = parser.parse_args()

    candidates = [Candidate(folder) for folder in options.bundles]
    capacity = min(candidate.manifest.capacity for candidate in candidates)
    positions = [position for position in options.positions if position + STEPS <= capacity]
    prompt, longest = min(options.prompt, capacity - 1), max(positions, default=0)
    ids = np.random.default_rng(0).integers(0, candidates[0].engine.vocab_size, max(longest, prompt)).astype("int32")

    columns = {"bundle": [c.name for c in candidates], "caches": [str(c.manifest.cache_dtype) for c in candidates]}
    columns["cache MB"] = [f"{c.manifest.cache_bytes / 1e6:.2f}" for c in candidates]
    saved = [c.engine.save(c.state(ids[: longest or prompt])) for c in candidates]
    columns["held MB"] = [f"{state.num_bytes / 1e6:.2f}" for state in saved]
    if options.rows:
        rows = rows_of_text(options.text, options.bundles[0], options.length, options.rows)
        columns["KL | same | perplexity"] = quality(candidates, rows)
    if options.rounds:
        names = [*(f"step after {position}, ms" for position in positions), f"prompt of {prompt}, ms"]
        columns[" | ".join(names)] = times(candidates, ids, positions, prompt, options.rounds)
    titles = " | ".join(columns)
    print(f"| {titles} |\n|{'---|' * len(titles.split(' | '))}")
    for row in zip(*columns.values(), strict=True):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
