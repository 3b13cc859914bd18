"""Effect of batching on each runtime: `python -m benchmarks.batches [--model story-gpt2] [--rows 8]`.

The same prompts run one by one and in ragged batches. For each runtime and recipe, a table shows the largest difference
of a logit relative to the largest logit, the share of steps with bit-identical logits, and the number of prompts with
the same tokens, for greedy search and for three beams. Logits are compared as long as the preceding tokens are equal.
A difference of tokens counts as a tie if the two best logits differ by at most 1e-5.
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
class Comparison:
    """Results of one engine.

    Attributes:
        differences: Largest difference of each compared step, relative to the largest logit.
        equal: Number of prompts with the same tokens.
        ties: Number of prompts whose first different token is a tie.
    """

    differences: list[float] = field(default_factory=list)
    equal: int = 0
    ties: int = 0

    def compare(self, alone: tuple[np.ndarray, np.ndarray], together: tuple[np.ndarray, np.ndarray]) -> None:
        """Adds one prompt, with its tokens `(N,)` and logits `(N, V)` alone and in a batch."""
        (alone_tokens, alone_logits), (batch_tokens, batch_logits) = alone, together
        size = min(len(alone_tokens), len(batch_tokens))
        different = np.flatnonzero(alone_tokens[:size] != batch_tokens[:size])
        comparable = int(different[0]) + 1 if len(different) else size
        for a, b in zip(alone_logits[:comparable], batch_logits[:comparable], strict=True):
            self.differences.append(float(np.abs(a - b).max() / np.abs(a).max()))
        if np.array_equal(alone_tokens, batch_tokens):
            self.equal += 1
        elif len(different):
            best = np.sort(alone_logits[comparable - 1])[-2:]
            self.ties += bool(best[1] - best[0] <= 1e-5)


def prompts(count: int, vocab_size: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns ragged random prompts, padded on the right, and their mask."""
    random = np.random.default_rng(0)
    mask = (np.arange(longest) < random.integers(1, longest + 1, (count, 1))).astype(np.int32)
    return random.integers(3, vocab_size, mask.shape, dtype=np.int32) * mask, mask


def measure(step: Step, config: GenerationConfig, count: int, rows: int) -> tuple[Comparison, int]:
    """Runs `count` prompts one by one and in batches; also returns the number of prompts with equal beams."""
    ids, mask = prompts(count, step.vocab_size, 24)
    comparison, beams = Comparison(), 0
    three = config.replace(num_beams=3)
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        together = generate(step, ids[part], mask[part], config, Controls(output_logits=True))
        best = generate(step, ids[part], mask[part], three).sequences
        for index in range(min(rows, count - first)):
            row = slice(first + index, first + index + 1)
            alone = generate(step, ids[row], mask[row], config, Controls(output_logits=True))
            comparison.compare(
                (alone.sequences[0], (alone.logits or [])[0]),
                (together.sequences[index], (together.logits or [])[index]),
            )
            beams += np.array_equal(generate(step, ids[row], mask[row], three).sequences[0], best[index])
    return comparison, beams


def report(name: str, step: Step, config: GenerationConfig, count: int, rows: int) -> None:
    """Prints one row of the table."""
    comparison, beams = measure(step, config, count, rows)
    steps = np.array(comparison.differences)
    print(
        f"| {name} | {steps.max():.1e} | {(steps == 0).mean():.1%} | {comparison.equal}/{count} | {comparison.ties} |"
        f" {beams}/{count} |",
        flush=True,
    )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="story-gpt2", help="a preset or a folder")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=32)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    model = zoo.load(arguments.model)
    config = model.generation_config.replace(max_new_tokens=arguments.new_tokens, do_sample=False)
    print("| engine | largest difference | steps equal bit for bit | same tokens | ties | same tokens, 3 beams |")
    print("|---|---|---|---|---|---|")
    report("Keras", KerasStep(model, capacity=128), config, arguments.prompts, arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, options) in enumerate(BUNDLES.items()):
            path = Path(folder) / str(number)
            export.export(model, path, capacity=128, **options)  # type: ignore[arg-type]
            engine = runtime.open_engine(path)
            assert isinstance(engine, Step)  # noqa: S101
            report(name, engine, config, arguments.prompts, arguments.rows)


if __name__ == "__main__":
    main()
