"""What a batch changes on each runtime: `python -m benchmarks.batches [--model story-gpt2] [--rows 8]`.

The same prompts are run alone and in ragged batches. For each runtime and recipe it prints, over all prompts, the
greatest difference of a logit as a share of the largest one, the share of steps whose logits are the same bit for bit,
and how many prompts get the same tokens: greedy ones, and those of three beams. Logits are compared as long as the
tokens before them are equal. A difference of tokens counts as a tie if the two best logits are within 1e-5 there.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kerasformer import export, runtime, zoo
from kerasformer.decoding import Controls, GenerationConfig, Step, generate
from kerasformer.models.keras_engine import KerasStep

BUNDLES = {
    "LiteRT f32": {"format": "tflite"},
    "LiteRT int8": {"format": "tflite", "quantize": "int8"},
    "ONNX Runtime f32": {"format": "onnx"},
    "ONNX Runtime int8": {"format": "onnx", "quantize": "int8"},
    "ONNX Runtime f32, portable": {"format": "onnx", "profile": "portable"},
    "ONNX Runtime int8, portable": {"format": "onnx", "quantize": "int8", "profile": "portable"},
}


@dataclass
class Found:
    """What came out for one engine.

    Attributes:
        differences: Of each compared step, as a share of the largest logit.
        equal: Prompts with the same tokens.
        ties: Prompts whose first other token is a tie.
    """

    differences: list[float] = field(default_factory=list)
    equal: int = 0
    ties: int = 0

    def compare(self, alone: tuple[np.ndarray, np.ndarray], together: tuple[np.ndarray, np.ndarray]) -> None:
        """Tokens `(N,)` and logits `(N, V)` of one prompt, each way."""
        (one, logits), (other, others) = alone, together
        size = min(len(one), len(other))
        apart = np.flatnonzero(one[:size] != other[:size])
        known = int(apart[0]) + 1 if len(apart) else size
        for a, b in zip(logits[:known], others[:known], strict=True):
            self.differences.append(float(np.abs(a - b).max() / np.abs(a).max()))
        if np.array_equal(one, other):
            self.equal += 1
        elif len(apart):
            best = np.sort(logits[known - 1])[-2:]
            self.ties += bool(best[1] - best[0] <= 1e-5)


def prompts(count: int, vocab_size: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Ragged random prompts, padded on the right."""
    random = np.random.default_rng(0)
    mask = (np.arange(longest) < random.integers(1, longest + 1, (count, 1))).astype(np.int32)
    return random.integers(3, vocab_size, mask.shape, dtype=np.int32) * mask, mask


def measure(step: Step, config: GenerationConfig, count: int, rows: int) -> tuple[Found, int]:
    """Runs `count` prompts alone and in batches of `rows`; beams alone are counted by their tokens."""
    ids, mask = prompts(count, step.vocab_size, 24)
    found, beams = Found(), 0
    three = config.replace(num_beams=3)
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        together = generate(step, ids[part], mask[part], config, Controls(output_logits=True))
        best = generate(step, ids[part], mask[part], three).sequences
        for place in range(min(rows, count - first)):
            row = slice(first + place, first + place + 1)
            alone = generate(step, ids[row], mask[row], config, Controls(output_logits=True))
            found.compare(
                (alone.sequences[0], (alone.logits or [])[0]),
                (together.sequences[place], (together.logits or [])[place]),
            )
            beams += np.array_equal(generate(step, ids[row], mask[row], three).sequences[0], best[place])
    return found, beams


def report(name: str, step: Step, config: GenerationConfig, count: int, rows: int) -> None:
    """One row of the table."""
    found, beams = measure(step, config, count, rows)
    steps = np.array(found.differences)
    print(
        f"| {name} | {steps.max():.1e} | {(steps == 0).mean():.1%} | {found.equal}/{count} | {found.ties} |"
        f" {beams}/{count} |",
        flush=True,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="story-gpt2", help="a preset or a folder")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=32)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    model = zoo.load(given.model)
    config = model.generation_config.replace(max_new_tokens=given.new_tokens, do_sample=False)
    print("| engine | largest difference | steps equal bit for bit | same tokens | ties | same tokens, 3 beams |")
    print("|---|---|---|---|---|---|")
    report("Keras", KerasStep(model, capacity=128), config, given.prompts, given.rows)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, options) in enumerate(BUNDLES.items()):
            path = Path(folder) / str(number)
            export.export(model, path, capacity=128, **options)  # type: ignore[arg-type]
            engine = runtime.open_engine(path)
            assert isinstance(engine, Step)  # noqa: S101
            report(name, engine, config, given.prompts, given.rows)


if __name__ == "__main__":
    main()
