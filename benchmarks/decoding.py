"""What decoding costs beside the engine: `python -m benchmarks.decoding [BUNDLE…]`.

Every method writes tokens with an engine that answers at once, with logits like a language model's, and with each
bundle. The time within the engine is taken apart, so what is left is the loop, the rules and the choice of tokens, with
the caches as a real engine leaves them. `transformers`' processors work on the same ready logits in the same rounds.
The figures are the best of the rounds. `--make FOLDER` makes GPT-2 124M at int8 for both runtimes, with random weights.
No trained model has logits as flat as theirs, so a bundle of GPT-2's vocabulary makes its step, and the ready logits
are taken for its answer; `--own-logits` takes its own.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.export import export_apart
from benchmarks.shapes import SHAPES, write_checkpoint
from kerasformer import bundle, runtime
from kerasformer.decoding import GenerationConfig, State, Step, generate

VOCAB = 50_257
PROMPT = 32

METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "top-k 50": {"top_k": 50},
    "top-p 0.9": {"top_p": 0.9},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 0.7, top-k 50, top-p 0.9": {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
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
"""The class in `transformers` of each setting, in the order of use; each takes the value alone."""


class Ready:
    """An engine that has its answers already."""

    is_encoder_decoder, capacity, vocab_size, step_lengths = False, 1024, VOCAB, (1,)

    def __init__(self, rows: int) -> None:
        random = np.random.default_rng(0)
        self.logits = random.normal(-8, 2, size=(8, rows, 1, VOCAB)).astype(np.float32)
        for answer in self.logits.reshape(-1, VOCAB):
            answer[random.choice(VOCAB, 200, replace=False)] += 12 - np.log(np.arange(1, 201))

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """The number of the next answer."""
        return 0

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """The next answer."""
        return self.logits[state % len(self.logits)], state + 1

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """Nothing depends on rows."""
        return state

    rewind = fork = reorder


class Answering:
    """An engine that makes its steps, and then gives ready answers."""

    def __init__(self, engine: Step, ready: Ready) -> None:
        self._engine, self._ready, self._steps = engine, ready, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """A ready answer, after a real step."""
        _, state = self._engine.step(tokens, state)
        self._steps += 1
        return self._ready.logits[self._steps % len(self._ready.logits)][: len(tokens)], state


@dataclass
class Timed:
    """An engine whose time is taken: in `seconds`, by what was asked of it."""

    engine: Step
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("start", "step", "reorder"), 0.0))

    def __getattr__(self, name: str) -> Any:
        wanted = getattr(self.engine, name)
        if name not in self.seconds:
            return wanted

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            result = wanted(*arguments)
            self.seconds[name] += time.perf_counter() - begin
            return result

        return timed


@dataclass(frozen=True)
class Cost:
    """Microseconds a token: beside the engine, of a step, and of moving rows."""

    host: float
    step: float = 0.0
    reorder: float = 0.0


def ours(engine: Step, settings: dict[str, Any], rows: int, tokens: int) -> Cost:
    """Writes `tokens` tokens in each of `rows` rows."""
    prompts = np.random.default_rng(1).integers(0, VOCAB, (rows, PROMPT))
    config = GenerationConfig(**settings, max_new_tokens=tokens)
    timed = Timed(engine)
    begin = time.perf_counter()
    generate(timed, prompts, None, config)
    seconds = time.perf_counter() - begin - sum(timed.seconds.values())
    return Cost(*(1e6 * each / tokens for each in (seconds, timed.seconds["step"], timed.seconds["reorder"])))


def theirs(settings: dict[str, Any], rows: int, tokens: int) -> Cost | None:
    """The same choice of tokens by `transformers`' processors, without its loop; beams have none."""
    if "num_beams" in settings:
        return None
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else its threads spin into what is measured next
    import torch
    import transformers

    kinds = vars(transformers.generation.logits_process)
    processors = [kinds[kind](settings[name]) for name, kind in PROCESSORS.items() if name in settings]
    samples = any(name in settings for name in list(PROCESSORS)[2:])
    ready = torch.from_numpy(Ready(rows).logits[:, :, 0])
    ids = torch.randint(VOCAB, (rows, PROMPT))
    begin = time.perf_counter()
    for place in range(tokens):
        scores = ready[place % len(ready)]
        for processor in processors:
            scores = processor(ids, scores)
        chosen = torch.multinomial(scores.softmax(-1), 1) if samples else scores.argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], dim=-1)
    return Cost(1e6 * (time.perf_counter() - begin) / tokens)


def best(measure: Sequence[Callable[[], Cost | None]], rounds: int) -> list[Cost | None]:
    """Of each the cheapest of its rounds; all take part in every round, after one that does not count."""
    results = [[each() for each in measure] for _ in range(rounds + 1)][1:]
    return [
        None if None in column else min((cost for cost in column if cost), key=lambda cost: cost.host)
        for column in zip(*results, strict=True)
    ]


def make(folder: Path) -> list[Path]:
    """Bundles of GPT-2 124M at int8, made where they are missing; those of `benchmarks.peers` are taken too."""
    place = folder / "gpt2"
    if not (place / "checkpoint").exists():
        write_checkpoint(SHAPES["gpt2"], place / "checkpoint")
    bundles = [place / "tflite-int8", place / "onnx-int8"]
    for target in bundles:
        if not (target / "kerasformer.json").exists():
            export_apart(place / "checkpoint", target, *target.name.split("-"))
    return bundles


def report(engines: dict[str, Step], rows: int, tokens: int, rounds: int, own_logits: bool) -> None:
    """Prints a table of all methods."""
    ready = Ready(rows)
    print(f"\n{rows} rows, {tokens} tokens each, best of {rounds}; microseconds a token beside the engine")
    print(f"{'':38}{'ready':>8}{'theirs':>8}" + "".join(f"{name:>26}" for name in engines))
    for title, settings in METHODS.items():
        beams = settings.get("num_beams", 1)
        own = Ready(rows * beams) if beams > 1 else ready
        subjects: list[Callable[[], Cost | None]] = [
            lambda engine=engine, settings=settings: ours(engine, settings, rows, tokens)  # type: ignore[misc]
            for engine in (own, *(_answering(engine, own, own_logits) for engine in engines.values()))
        ]
        first, *costs, peer = best([*subjects, lambda settings=settings: theirs(settings, rows, tokens)], rounds)  # type: ignore[misc]
        line = f"{title:38}{_number(first):>8}{_number(peer):>8}"
        for cost in costs:
            line += f"{_number(cost):>8}{_share(cost):>18}"
        print(line, flush=True)


def _answering(engine: Step, ready: Ready, own_logits: bool) -> Any:
    return engine if own_logits or engine.vocab_size != VOCAB else Answering(engine, ready)


def _number(cost: Cost | None) -> str:
    return "–" if cost is None else f"{cost.host:.0f}"


def _share(cost: Cost | None) -> str:
    """Of a step, and what moving rows costs beside it."""
    if cost is None or not cost.step:
        return ""
    moved = f" +{cost.reorder / cost.step:.1%} moved" if cost.reorder > 0.001 * cost.step else ""
    return f" {cost.host / cost.step:.1%}{moved}"


def main() -> None:
    """Parses, makes bundles if wanted, reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("bundles", nargs="*", type=Path, help="engines besides the one that answers at once")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="makes GPT-2 124M int8 bundles, or takes them")
    parser.add_argument("--rows", nargs="*", type=int, default=[1], help="prompts at once")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens of each")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each")
    parser.add_argument("--threads", type=int, default=2, help="of the engines")
    parser.add_argument("--own-logits", action="store_true", help="choose from the bundles' own logits")
    wanted = parser.parse_args()
    folders = [*wanted.bundles, *(make(wanted.make) if wanted.make else [])]
    engines: dict[str, Step] = {}
    for folder in folders:
        engine = runtime.open_engine(folder, bundle.read(folder), wanted.threads)
        if not isinstance(engine, Step):
            parser.error(f"{folder} does not generate")
        engines[folder.name] = engine
    for rows in wanted.rows:
        report(engines, rows, wanted.tokens, wanted.rounds, wanted.own_logits)


if __name__ == "__main__":
    main()
