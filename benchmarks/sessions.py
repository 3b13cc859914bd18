"""Time to restore a text compared with reading it: `python -m benchmarks.sessions BUNDLE… [--keras CHECKPOINT]`.

In each round, every engine reads the same tokens, saves the state, restores it from memory and from a file, and makes
the next step after each. The best and the median of all rounds are reported, and the least processor time of all
threads, which depends little on other programs. The logits after each restored state must be bit-identical to those
after the state that was saved.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer import runtime
from kerasformer.decoding import ResumableStep, SavedState

KINDS = ("read", "save", "restore", "write file", "restore file", "step")


class Rounds:
    """Times of an engine.

    Args:
        step: The engine.
        tokens: Number of tokens to read, and one for the next step, `(1, N + 1)`.
        file: File for the saved state.

    Attributes:
        seconds: Time of each round, by kind.
        processor: Processor time of all threads, likewise.
        megabytes: Size of the saved state, in 10^6 bytes.
    """

    def __init__(self, step: ResumableStep, tokens: np.ndarray, file: Path) -> None:
        self._step, self._tokens, self._file = step, tokens, file
        self.seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.processor: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.megabytes = 0.0

    def run(self) -> None:
        """Runs a round. A state is gone before the next one, which uses its buffers, as the requests of a server do."""
        saved, expected = self._read()
        self._timed("write file", saved.write, self._file)
        for kind, restore in (("restore", lambda: saved), ("restore file", partial(SavedState.read, self._file))):
            self._check(expected, self._timed(kind, lambda restore=restore: self._step.restore(restore())))

    def _read(self) -> tuple[SavedState, np.ndarray]:
        """Reads the tokens; returns the saved state, and the logits of the next step."""
        state = self._timed("read", self._step.start, self._tokens, np.ones_like(self._tokens))
        saved = self._timed("save", self._step.save, state)
        self.megabytes = saved.num_bytes / 1e6
        return saved, self._timed("step", self._step.step, self._tokens[:, -1:], state)[0]

    def _timed(self, kind: str, function: Callable[..., Any], *arguments: Any) -> Any:
        start, processor = time.perf_counter(), time.process_time()
        result = function(*arguments)
        self.seconds[kind].append(time.perf_counter() - start)
        self.processor[kind].append(time.process_time() - processor)
        return result

    def _check(self, expected: np.ndarray, state: Any) -> None:
        received, _ = self._step.step(self._tokens[:, -1:], state)
        if not np.array_equal(received, expected):
            raise SystemExit("The logits after the restored state differ from those after the one that was saved")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--keras", type=Path, help="checkpoint that is loaded in Keras")
    parser.add_argument("--tokens", type=int, default=1024, help="number of tokens, of which the last is the next step")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds after one that is not counted")
    parser.add_argument("--threads", type=int, default=2, help="number of threads of the runtimes")
    options = parser.parse_args()
    engines: dict[str, Any] = {
        folder.name: runtime.open_engine(folder, None, options.threads) for folder in options.bundles
    }
    if options.keras is not None:
        from kerasformer import zoo
        from kerasformer.models.keras_engine import KerasStep

        engines["Keras"] = KerasStep(zoo.load(options.keras), options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        rounds = {}
        for name, engine in engines.items():
            tokens = np.random.default_rng(0).integers(1, engine.vocab_size, (1, options.tokens), "int32")
            rounds[name] = Rounds(engine, tokens, Path(folder) / name)
        for number in range(options.rounds + 1):
            for each in rounds.values():
                each.run()
                if not number:  # compilation, and memory that is used for the first time
                    each.seconds, each.processor = ({kind: [] for kind in KINDS} for _ in range(2))
    print(f"{options.tokens:,} tokens, best of {options.rounds} rounds (median), milliseconds")
    print(f"{'':14}{'MB':>6}" + "".join(f"{kind:>20}" for kind in KINDS) + f"{'read / restore':>18}{'/ file':>9}")
    for name, each in rounds.items():
        line = f"{name:14}{each.megabytes:6.0f}"
        for seconds in each.seconds.values():
            line += f"{1e3 * min(seconds):12.1f} ({1e3 * statistics.median(seconds):5.1f})"
        read = min(each.seconds["read"])
        ratios = [read / min(each.seconds[kind]) for kind in ("restore", "restore file")]
        print(f"{line}{ratios[0]:17.0f}{ratios[1]:10.0f}")
    print("Processor time, milliseconds")
    for name, each in rounds.items():
        print(f"{name:20}" + "".join(f"{1e3 * min(seconds):12.1f}{'':8}" for seconds in each.processor.values()))


if __name__ == "__main__":
    main()
