"""Generation with and without a vocabulary shortlist, on bundles that were exported with `shortlist=True`.

    python -m benchmarks.shortlist BUNDLE… --candidates 900

Texts and candidates are random token ids, so that any bundle of an encoder-decoder can be measured. The variants run in
turn; the table has the least wall time and the least time of the processor, in milliseconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from kerasformer.decoding import Controls, GenerationConfig, generate
from kerasformer.runtime import open_engine

READ = WRITTEN = 32
SIZES = ((1, 1), (8, 1), (1, 4), (8, 4))
"""Numbers of texts and of beams."""


class RandomShortlist:
    """Random candidates, which depend on the tokens of the text.

    Args:
        vocab_size: Number of tokens.
        count: Number of candidates.
    """

    def __init__(self, vocab_size: int, count: int) -> None:
        self.vocab_size, self.count = vocab_size, count

    def candidates(self, tokens: np.ndarray) -> np.ndarray:
        """See `CandidateTokens.candidates`."""
        random = np.random.default_rng(int(tokens.sum()))
        return np.sort(random.choice(self.vocab_size, self.count, replace=False))

    def with_tokens(self, tokens: Sequence[int]) -> RandomShortlist:
        """Returns the shortlist itself."""
        return self


def main() -> None:
    """Measures the bundles on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--candidates", type=int, default=900)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| bundle | texts, beams | all logits | all logits, then a shortlist | logits of candidates |")
    print("|---|---|---|---|---|")
    for bundle in options.bundles:
        engine, computing_all = (open_engine(bundle, num_threads=options.threads) for _ in range(2))
        computing_all.limits_output = False
        listed = Controls(shortlist=RandomShortlist(engine.vocab_size, options.candidates))
        variants = [(engine, Controls()), (computing_all, listed), (engine, listed)]
        for texts, beams in SIZES:
            ids = np.random.default_rng(0).integers(5, engine.input_vocab_size - 1, (texts, READ)).astype(np.int32)
            # No end token, so that all variants write equally many.
            config = GenerationConfig(num_beams=beams, max_new_tokens=WRITTEN, decoder_start_token_id=0)
            times: list[list[tuple[float, float]]] = [[] for _ in variants]
            for _ in range(options.rounds):
                for measured, (step, controls) in zip(times, variants, strict=True):
                    wall, processor = time.perf_counter(), time.process_time()
                    generate(step, ids, None, config, controls)
                    measured.append((time.perf_counter() - wall, time.process_time() - processor))
            cells = [" / ".join(f"{1e3 * min(column):.0f}" for column in zip(*each, strict=True)) for each in times]
            print(f"| {bundle} | {texts}, {beams} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
