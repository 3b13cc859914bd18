"""Speed of prompt lookup beside plain decoding: `python -m benchmarks.speculation DATA/summaries-dev.jsonl`.

The bundles of summarizer-t5 summarize held-out descriptions with greedy search, once as it is and once with guesses
from the prompt, in turn for each text. `examples/presets/summaries.py` writes the file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import kerasformer as kf
from kerasformer.evaluation import read_examples

PRESET = "summarizer-t5"
BUNDLES = {
    "LiteRT int8": ("litert", "int8"),
    "ONNX Runtime int8": ("onnx", "int8"),
    "ONNX Runtime float32": ("onnx", None),
}
GUESSES = 7
ROUNDS = 3


def row(name: str, folder: Path, texts: Sequence[str]) -> str:
    """Returns the row of a bundle."""
    format, recipe = BUNDLES[name]
    pipe = kf.pipeline(kf.export.export(PRESET, folder / name.replace(" ", "-"), format, recipe, progress=False))
    seconds = {0: 0.0, GUESSES: 0.0}
    tokens = steps = guessed = accepted = 0
    for text in texts:
        best = dict.fromkeys(seconds, float("inf"))
        outputs = {}
        for _ in range(ROUNDS):
            for guesses in seconds:
                start = time.perf_counter()
                outputs[guesses] = pipe(
                    text, num_beams=1, prompt_lookup_num_tokens=guesses or None, return_dict_in_generate=True
                )
                best[guesses] = min(best[guesses], time.perf_counter() - start)
        plain, output = (outputs[guesses].sequences[0] for guesses in seconds)
        if list(plain) != list(output):
            print(f"{name}: another text for {text!r:.60}")
        counts = outputs[GUESSES].speculation
        tokens, steps = tokens + len(output), steps + counts.steps
        guessed, accepted = guessed + counts.guessed, accepted + counts.accepted
        seconds = {guesses: total + best[guesses] for guesses, total in seconds.items()}
    speed = seconds[0] / seconds[GUESSES]
    return f"| {name} | {tokens / steps:.2f} | {accepted / guessed:.0%} | {speed:.2f} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="texts that the preset was not trained on")
    parser.add_argument("--texts", type=int, default=100, help="number of texts (default: %(default)s)")
    arguments = parser.parse_args()
    texts = [example.text for example in read_examples(arguments.data)[: arguments.texts]]
    print(f"| `{PRESET}` | tokens per step | accepted guesses | speed, × plain decoding |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in BUNDLES:
            print(row(name, Path(folder), texts), flush=True)


if __name__ == "__main__":
    main()
