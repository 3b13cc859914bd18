"""Gain of speculative decoding: tokens per second with and without it, on the same engine in alternating rounds.

    python -m benchmarks.speculation lookup BUNDLE… --documents Translation-en
    python -m benchmarks.speculation assistant BUNDLE SMALLER --settings '{"seed": 1, "top_k": 40}'
    python -m benchmarks.speculation costs BUNDLE…

`lookup` summarizes documents that the preset summarizer-t5 was not trained on: descriptions of Debian packages,
selected as in its train.py, which documents their source; or the lines of a file `.jsonl.gz` with a field "source",
such as those of SciTLDR. `assistant` continues random tokens. `costs` measures the time of a step for several numbers
of tokens. Each round generates each text with and without speculation, and the best times are reported.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from kerasformer import bundle
from kerasformer.decoding import Controls, GenerationConfig, State, Step, generate
from kerasformer.runtime import open_engine

TRAIN = Path(__file__).parents[1] / "zoo/presets/summarizer-t5/train.py"

LOW_ACCEPTANCE = 0.1
"""Acceptance below which the slowdown of texts is reported."""


class Timed:
    """Wraps an engine and measures its time.

    Attributes:
        reading: Seconds for reading prompts.
        stepping: Seconds for steps and rewinding.
    """

    def __init__(self, step: Step) -> None:
        self.is_encoder_decoder, self.capacity = step.is_encoder_decoder, step.capacity
        self.vocab_size, self.step_lengths = step.vocab_size, step.step_lengths
        self.reorder, self.fork = step.reorder, step.fork
        self._step = step
        self.reading = self.stepping = 0.0

    def start(self, inputs: np.ndarray, mask: np.ndarray) -> State:
        """See `Step.start`."""
        start = time.perf_counter()
        state = self._step.start(inputs, mask)
        self.reading += time.perf_counter() - start
        return state

    def step(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """See `Step.step`."""
        start = time.perf_counter()
        result = self._step.step(tokens, state)
        self.stepping += time.perf_counter() - start
        return result

    def rewind(self, state: State, count: int) -> State:
        """See `Step.rewind`."""
        start = time.perf_counter()
        state = self._step.rewind(state, count)
        self.stepping += time.perf_counter() - start
        return state


@dataclass
class Answer:
    """The best times of several runs of one text.

    Attributes:
        tokens: Generated tokens.
        seconds: Total seconds.
        writing: Seconds without reading the prompt.
        stepping: Seconds of the engine's steps.
        steps: Number of steps.
        guessed: Number of guessed tokens.
        accepted: Number of accepted tokens.
    """

    tokens: list[int]
    seconds: float = float("inf")
    writing: float = float("inf")
    stepping: float = float("inf")
    steps: int = 0
    guessed: int = 0
    accepted: int = 0


def answer(step: Step, ids: np.ndarray, config: GenerationConfig, controls: Controls, best: Answer | None) -> Answer:
    """Generates one text and returns the best times of this run and earlier runs."""
    timed = Timed(step)
    start = time.perf_counter()
    output = generate(timed, ids, None, config, controls)
    seconds = time.perf_counter() - start
    result = best or Answer(output.sequences[0].tolist())
    if output.speculation is not None:
        result.steps, result.guessed = output.speculation.steps, output.speculation.guessed
        result.accepted = output.speculation.accepted
    result.seconds = min(result.seconds, seconds)
    result.writing = min(result.writing, seconds - timed.reading)
    result.stepping = min(result.stepping, timed.stepping)
    return result


def compare(
    step: Step, texts: Sequence[np.ndarray], rounds: int, plain: GenerationConfig, ahead: GenerationConfig,
    controls: Controls,
) -> None:  # fmt: skip
    """Generates all texts with and without speculation and prints the results."""
    pairs: list[tuple[Answer, Answer]] = []
    for ids in texts:
        one = other = None
        for _ in range(rounds):
            one = answer(step, ids, plain, Controls(), one)
            other = answer(step, ids, ahead, controls, other)
        if one is not None and other is not None:
            pairs.append((one, other))
    ones, others = zip(*pairs, strict=True)
    tokens = sum(len(each.tokens) for each in ones)
    steps, guessed, accepted = (sum(getattr(o, name) for o in others) for name in ("steps", "guessed", "accepted"))
    same = sum(one.tokens == other.tokens for one, other in pairs)
    print(f"  {len(pairs)} texts, {tokens} tokens; the same tokens for {same} texts")
    print(f"  tokens per step {(steps + accepted) / steps:.2f}, accepted guesses {accepted / max(guessed, 1):.0%}")
    for name, seconds in (("generation", lambda each: each.writing), ("with the prompt", lambda each: each.seconds)):
        rates = [tokens / sum(map(seconds, side)) for side in (ones, others)]
        print(f"  {name}: plain {rates[0]:.0f} tokens/s, speculative {rates[1]:.0f}, ratio {rates[1] / rates[0]:.2f}")
        _print_slow_texts(pairs, seconds)
    for name, side in (("plain", ones), ("speculative", others)):
        engine, whole = (1e6 * sum(getattr(o, of) for o in side) / tokens for of in ("stepping", "writing"))
        print(f"  {name}: {whole:.0f} us per token, of which {engine:.0f} us are steps of the engine")


def _print_slow_texts(pairs: Sequence[tuple[Answer, Answer]], seconds: Callable[[Answer], float]) -> None:
    """Prints the slowdown of texts whose guesses were rarely accepted."""
    ratios = [seconds(b) / seconds(a) for a, b in pairs if b.guessed and b.accepted < LOW_ACCEPTANCE * b.guessed]
    if ratios:
        subject = f"{len(ratios)} texts with less than {LOW_ACCEPTANCE:.0%} accepted guesses take"
        print(f"    {subject} {np.median(ratios):.2f} times as long (median), {max(ratios):.2f} at worst")


def lookup(options: argparse.Namespace) -> None:
    """Measures prompt lookup."""
    for folder in options.bundles:
        info = bundle.read(folder).info
        tokenizer, prefix = kf.tokenizer(folder), info.task_prefixes.get("summarization", "")
        texts = []
        for text in documents(options.documents, options.count):
            ids = [*tokenizer.encode(prefix + text)[:-1][: options.length - 1], tokenizer.eos_token_id]
            texts.append(np.array([ids], np.int32))
        step = _open(folder)
        settings = json.loads((Path(folder) / "generation_config.json").read_text()) | {"num_beams": 1}
        plain = GenerationConfig.from_dict(settings).replace(**options.settings)
        print(f"{folder}, at most {options.guesses} guesses")
        ahead = plain.replace(prompt_lookup_num_tokens=options.guesses)
        compare(step, texts, options.rounds, plain, ahead, Controls())


def assistant(options: argparse.Namespace) -> None:
    """Measures an assistant."""
    step, smaller = _open(options.bundle), _open(options.smaller)
    random = np.random.default_rng(0)
    texts = [random.integers(1, step.vocab_size, (1, 16), "int32") for _ in range(options.count)]
    plain = GenerationConfig(**{"max_new_tokens": 64, **options.settings})
    print(f"{options.bundle} with {options.smaller}, at most {options.guesses} guesses")
    ahead = plain.replace(num_assistant_tokens=options.guesses)
    compare(step, texts, options.rounds, plain, ahead, Controls(assistant=smaller))


def costs(options: argparse.Namespace) -> None:
    """Measures steps of several tokens relative to steps of one, after 32 tokens."""
    for folder in options.bundles:
        step = _open(folder)
        ids = np.random.default_rng(0).integers(1, step.vocab_size, (1, 32), "int32")
        seconds = {length: float("inf") for length in step.step_lengths if length <= 16}
        state = step.start(ids, np.ones_like(ids))
        for _ in range(options.rounds):
            for length in seconds:
                start = time.perf_counter()
                _, state = step.step(ids[:, :length], state)
                seconds[length] = min(seconds[length], time.perf_counter() - start)
                state = step.rewind(state, length)
        print(f"{folder}: a step of one token takes {1e3 * seconds[1]:.3f} ms; relative time of several tokens:")
        print("  " + ", ".join(f"{length}: {each / seconds[1]:.2f}" for length, each in seconds.items() if length > 1))


def documents(path: Path, count: int) -> list[str]:
    """Returns texts that were not used for training."""
    if path.name.endswith(".jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [" ".join(json.loads(line)["source"]) for line in lines][:count]
    spec = importlib.util.spec_from_file_location("train", TRAIN)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(TRAIN)
    train: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    pairs = train.read_pairs(path)
    np.random.default_rng(1).shuffle(pairs)
    return [str(text) for text, _ in pairs[:400]][:count]


def _open(folder: str) -> Step:
    engine = open_engine(folder)
    if not isinstance(engine, Step):
        raise SystemExit(f"Expected the bundle of a generative model. Received: {folder}")
    return engine


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (lookup, assistant, costs):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(function=function)
        command.add_argument("--rounds", type=int, default=200 if function is costs else 5)
        if function is assistant:
            command.add_argument("bundle")
            command.add_argument("smaller")
        else:
            command.add_argument("bundles", nargs="+")
        if function is costs:
            continue
        command.add_argument("--settings", type=json.loads, default={}, help="Fields of GenerationConfig, as JSON.")
        command.add_argument("--guesses", type=int, default=7, help="Maximum number of guesses at once.")
        command.add_argument("--count", type=int, default=100 if function is lookup else 20, help="Number of texts.")
        if function is lookup:
            command.add_argument("--documents", type=Path, required=True)
            command.add_argument("--length", type=int, default=64, help="Maximum number of tokens of a text.")
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
