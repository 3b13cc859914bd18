"""Overhead of decoding outside the engine: `python -m benchmarks.decoding [BUNDLE…]`.

Each method generates tokens with a mock engine, whose precomputed logits resemble those of a language model, and with
each bundle. The time between two steps of the engine is that of the loop, the rules and the choice of a token, with CPU
caches in the state in which a real engine leaves them. Of all tokens of a round, the 20th percentile is taken, which
other programs on the machine affect little. The processors of `transformers` run on the same logits in the same rounds.
The best of all rounds is reported. `--make FOLDER` creates bundles of GPT-2 124M in int8 for both runtimes, with random
weights. As their logits are flatter than those of any trained model, they are replaced by the precomputed logits after
each step.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes import SHAPES, export_bundles, write_checkpoint
from kerasformer import bundle
from kerasformer.engines import State, Step, open_engine
from kerasformer.generation import GenerationConfig, generate
from kerasformer.tools.bench.rounds import in_turns

VOCAB = 50_257
PROMPT = 32

METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "top-k 50": {"top_k": 50},
    "top-p 0.9": {"top_p": 0.9},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 0.7, top-k 50, top-p 0.9": {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
    "the same with a repetition penalty": {
        "temperature": 0.7,
        "top_k": 50,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
    },
    "min-p 0.05": {"min_p": 0.05},
    "typical 0.9": {"typical_p": 0.9},
    "repetition penalty, no 3-gram twice": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
    "beams 4": {"num_beams": 4},
}

PROCESSORS = {
    "repetition_penalty": "RepetitionPenaltyLogitsProcessor",
    "no_repeat_ngram_size": "NoRepeatNGramLogitsProcessor",
    "temperature": "TemperatureLogitsWarper",
    "top_k": "TopKLogitsWarper",
    "top_p": "TopPLogitsWarper",
    "min_p": "MinPLogitsWarper",
    "typical_p": "TypicalLogitsWarper",
}
"""Classes of `transformers` for each setting, in order of application; the value is their only argument."""


class MockEngine:
    """An engine with precomputed logits."""

    is_encoder_decoder, capacity, vocab_size, step_lengths = False, 1024, VOCAB, (1,)

    def __init__(self, rows: int) -> None:
        random = np.random.default_rng(0)
        self.logits = random.normal(-8, 2, size=(8, rows, 1, VOCAB)).astype(np.float32)
        for row in self.logits.reshape(-1, VOCAB):
            row[random.choice(VOCAB, 200, replace=False)] += 12 - np.log(np.arange(1, 201))

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        return 0

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        return self.logits[state % len(self.logits)], state + 1

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """Returns the state, which does not depend on the rows."""
        return state

    rewind = fork = reorder


class WithMockLogits:
    """Wraps an engine whose steps are computed but return precomputed logits."""

    def __init__(self, engine: Step, mock: MockEngine) -> None:
        self._engine, self._mock, self._steps = engine, mock, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        _, state = self._engine.step(tokens, state)
        self._steps += 1
        return self._mock.logits[self._steps % len(self._mock.logits)][: len(tokens)], state


@dataclass
class Timed:
    """Wraps an engine and measures the time of its methods, and the time between two steps that is spent elsewhere.

    Attributes:
        engine: The engine.
        seconds: Times of each call by method, and those between two steps as `"host"`.
    """

    engine: Step
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _outside: float = 0.0
    _returned: float = 0.0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.engine, name)
        if name not in ("start", "step", "reorder"):
            return attribute

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            self._outside += start - self._returned
            if name == "step":
                self.seconds["host"].append(self._outside)
                self._outside = 0.0
            result = attribute(*arguments)
            self._returned = time.perf_counter()
            self.seconds[name].append(self._returned - start)
            return result

        return timed

    def microseconds(self, name: str) -> float:
        """Returns the time of a usual call: the 20th percentile, without the first two."""
        times = self.seconds[name][2:]
        return 1e6 * float(np.percentile(times, 20)) if times else 0.0


@dataclass(frozen=True)
class Cost:
    """Time per token in microseconds.

    Attributes:
        host: Time outside the engine.
        step: Time of steps of the engine.
        reorder: Time of reordering rows.
    """

    host: float
    step: float = 0.0
    reorder: float = 0.0


def ours(engine: Step, settings: dict[str, Any], rows: int, tokens: int) -> Cost:
    """Measures the generation of `tokens` tokens in each of `rows` rows."""
    prompts = np.random.default_rng(1).integers(0, VOCAB, (rows, PROMPT))
    config = GenerationConfig(**settings, max_new_tokens=tokens)
    timed = Timed(engine)
    generate(timed, prompts, None, config)
    return Cost(*(timed.microseconds(name) for name in ("host", "step", "reorder")))


def theirs(settings: dict[str, Any], rows: int, tokens: int) -> Cost:
    """Measures the same choice of tokens with the processors of `transformers`, without its loop and without beams."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # otherwise its threads spin during the next measurement
    import torch
    import transformers

    classes = vars(transformers.generation.logits_process)
    processors = [classes[kind](settings[name]) for name, kind in PROCESSORS.items() if name in settings]
    samples = any(name in settings for name in list(PROCESSORS)[2:])
    logits = torch.from_numpy(MockEngine(rows).logits[:, :, 0])
    ids = torch.randint(VOCAB, (rows, PROMPT))
    start = time.perf_counter()
    for index in range(tokens):
        scores = logits[index % len(logits)]
        for processor in processors:
            scores = processor(ids, scores)
        chosen = torch.multinomial(scores.softmax(-1), 1) if samples else scores.argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], dim=-1)
    return Cost(1e6 * (time.perf_counter() - start) / tokens)


def make(folder: Path) -> list[Path]:
    """Returns bundles of GPT-2 124M in int8, exporting missing ones; the folder of `benchmarks.peers` can be used."""
    checkpoint = folder / "gpt2" / "checkpoint"
    write_checkpoint(SHAPES["gpt2"], checkpoint)
    variants = {f"{format}-int8": {"format": format, "quantize": "int8"} for format in ("tflite", "onnx")}
    return export_bundles(checkpoint, folder / "gpt2", variants)


def report(engines: dict[str, Step], rows: int, tokens: int, rounds: int) -> None:
    """Prints a table of all methods: of each candidate the cheapest round, after a warm-up round."""
    single = MockEngine(rows)
    print(f"\n{rows} rows, {tokens} tokens each, best of {rounds}; microseconds per token outside the engine")
    print(f"{'':38}{'mock':>8}{'theirs':>8}" + "".join(f"{name:>26}" for name in engines))
    for title, settings in METHODS.items():
        beams = settings.get("num_beams", 1)
        mock = MockEngine(rows * beams) if beams > 1 else single
        subjects: dict[str, Any] = {"mock": mock}
        for name, engine in engines.items():
            subjects[name] = WithMockLogits(engine, mock) if engine.vocab_size == VOCAB else engine
        candidates = {name: partial(ours, subject, settings, rows, tokens) for name, subject in subjects.items()}
        if beams == 1:
            candidates["theirs"] = partial(theirs, settings, rows, tokens)
        found = in_turns(candidates, rounds + 1)
        costs = {name: min(of_rounds[1:], key=lambda cost: cost.host) for name, of_rounds in found.items()}
        peer = f"{costs['theirs'].host:.0f}" if "theirs" in costs else "–"
        line = f"{title:38}{costs['mock'].host:>8.0f}{peer:>8}"
        print(line + "".join(f"{costs[name].host:>8.0f}{_share(costs[name]):>18}" for name in engines), flush=True)


def _share(cost: Cost) -> str:
    """Returns the cost relative to a step, and the time of reordering rows."""
    if not cost.step:
        return ""
    moved = f" +{cost.reorder / cost.step:.1%} moved" if cost.reorder > 0.001 * cost.step else ""
    return f" {cost.host / cost.step:.1%}{moved}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("bundles", nargs="*", type=Path, help="engines besides the mock engine")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="create or use GPT-2 124M int8 bundles")
    parser.add_argument("--rows", nargs="*", type=int, default=[1], help="number of prompts per batch")
    parser.add_argument("--tokens", type=int, default=100, help="number of new tokens per row")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--threads", type=int, default=2, help="number of threads of the engines")
    arguments = parser.parse_args()
    folders = [*arguments.bundles, *(make(arguments.make) if arguments.make else [])]
    engines: dict[str, Step] = {}
    for folder in folders:
        engine = open_engine(folder, bundle.read(folder), arguments.threads)
        if not isinstance(engine, Step):
            parser.error(f"{folder} does not generate")
        engines[folder.name] = engine
    for rows in arguments.rows:
        report(engines, rows, arguments.tokens, arguments.rounds)


if __name__ == "__main__":
    main()
