"""Cost of reordering beams, compared with a step: `python -m benchmarks.reorder BUNDLE…`.

As in beam search, each step of several beams is followed by a reordering, with different kinds of reordering. The best
time of several rounds is reported, together with the size of the keys and values that a search must copy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kerasformer import bundle
from kerasformer.decoding import Step
from kerasformer.runtime import open_engine


@dataclass(frozen=True)
class Times:
    """Minimum times in milliseconds.

    Attributes:
        step: Time of a step of all beams.
        reorders: Times of reordering, by kind.
    """

    step: float
    reorders: dict[str, float]


def orders(beams: int) -> dict[str, np.ndarray]:
    """Returns the new order of the rows for each kind of reordering."""
    rows = np.arange(beams)
    return {
        "unchanged": rows,
        "two swapped": np.array([1, 0, *rows[2:]]),
        "all rotated": np.roll(rows, 1),
        "one dropped": np.array([0, *rows[:-1]]),
        "half dropped": np.repeat(rows[: -(-beams // 2)], 2)[:beams],
        "one kept": np.zeros(beams, int),
    }


def measure(step: Step, kinds: Mapping[str, np.ndarray], filled: int, rounds: int) -> Times:
    """Measures the times of beams that have read `filled` tokens."""
    beams = len(next(iter(kinds.values())))
    tokens = np.random.default_rng(0).integers(1, step.vocab_size, (beams, 1), "int32")
    prompt = np.random.default_rng(1).integers(
        1, step.vocab_size, (1, 8 if step.is_encoder_decoder else filled), "int32"
    )
    state = step.reorder(step.start(prompt, np.ones_like(prompt)), np.zeros(beams, int))
    for _ in range(filled if step.is_encoder_decoder else 1):
        _, state = step.step(tokens, state)
    steps, reorders = [], {kind: float("inf") for kind in kinds}
    for _ in range(rounds):
        for kind, rows in kinds.items():
            start = time.perf_counter()
            _, state = step.step(tokens, state)
            steps.append(time.perf_counter() - start)
            start = time.perf_counter()
            state = step.reorder(state, rows)
            reorders[kind] = min(reorders[kind], time.perf_counter() - start)
            state = step.rewind(state, 1)
    return Times(1e3 * min(steps), {kind: 1e3 * seconds for kind, seconds in reorders.items()})


def main() -> None:
    """Prints a table for each bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--filled", type=int, nargs="+", default=[64, 512], help="tokens that the beams have read")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    kinds = orders(options.beams)
    for folder in options.bundles:
        manifest = bundle.read(folder)
        step = open_engine(folder, num_threads=options.threads)
        if not isinstance(step, Step):
            raise SystemExit(f"Expected the bundle of a generative model. Received: {folder}")
        for filled in (n for n in options.filled if n < step.capacity - 1):
            times = measure(step, kinds, filled, options.rounds)
            each = manifest.cache_bytes * filled / step.capacity / 1e6
            print(f"{folder}: {options.beams} beams of {filled} tokens; a step takes {times.step:.2f} ms")
            for kind, rows in kinds.items():
                copies, cost = options.beams - len(set(rows.tolist())), times.reorders[kind]
                print(f"  {kind:18} {copies * each:7.2f} MB {cost:7.2f} ms {cost / times.step:6.1%} of a step")


if __name__ == "__main__":
    main()
