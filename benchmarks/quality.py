"""What 8 and 4 bits cost a decoder: the divergence of its bundles from float32, in their runtimes.

    python -m benchmarks.quality story-gpt2 stories-dev.jsonl OUT
    python -m benchmarks.quality SMOLLM2 wiki.test.raw.gz OUT --recipes int8 int4-nearest --llama-cpp BUILD/bin

Bundles are exported to OUT unless they are there, whatever their fidelity is. Each text is cut into windows: the first
half of a window is read as a prompt, and the rest one token at a time, as for a user. llama.cpp is compared with its
own float32 by `llama-perplexity --kl-divergence`, which scores the same tokens of a single text.

KL is the mean divergence from float32 of the distributions of the next token, in nats, beside its 99th percentile;
same top token, the share of tokens with the same most probable one. Changes from float32 are in parentheses.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from benchmarks.shapes import export_bundles
from kerasformer.bundle.recipes import RECIPES
from kerasformer.tools.bench.own_models import size_mb
from kerasformer.tools.evaluation import read_documents

RUNTIMES = {"tflite": "LiteRT", "onnx": "ONNX Runtime"}
REFERENCE = "onnx-none"
"""The bundle in float32 that the others are compared with; exports hold it within 1e-4 of the Keras model."""
NEAREST = "-nearest"
"""Suffix of the name of a recipe whose weights are rounded to the nearest value."""
IMATRIX = "-imatrix"
"""Suffix of the name of a type of llama.cpp that is rounded with an importance matrix."""
COLUMNS = ("MB", "KL", "99 % of KL", "same top token", "perplexity")
_STATISTICS = {
    "divergence": r"Mean +KLD: +([-\d.]+)",
    "percentile": r"99\.0% +KLD: +([-\d.]+)",
    "same": r"Same top p: +([\d.]+)",
    "perplexity": r"Mean PPL\(Q\) +: +([\d.]+)",
}
"""Figures in the output of `llama-perplexity`."""


@dataclass(frozen=True)
class Figures:
    """Comparison with the model in float32.

    Attributes:
        divergence: Mean Kullback-Leibler divergence in nats.
        percentile: Its 99th percentile over the tokens.
        same: Share of tokens with the same most probable one.
        perplexity: Perplexity of the text.
    """

    divergence: float
    percentile: float
    same: float
    perplexity: float

    def cells(self, plain: Figures) -> list[str]:
        """Returns the cells of a table below `COLUMNS`, without the size; `plain` are the figures in float32."""
        if self is plain:
            return ["", "", "", f"{self.perplexity:.2f}"]
        change = self.perplexity / plain.perplexity - 1
        figures = [f"{self.divergence:.4f}", f"{self.percentile:.3f}", f"{self.same:.1%}"]
        return [*figures, f"{self.perplexity:.2f} ({change:+.1%})"]


def read_texts(path: Path, characters: int) -> list[str]:
    """Returns the texts of a JSON lines file, or the first characters of a file of one text, plain or by gzip."""
    if ".jsonl" in path.suffixes:
        return [example.text for example in read_documents(path)]
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as file:
        return [str(file.read(characters))]


def windows(tokenizer: Any, texts: Sequence[str], length: int, count: int) -> np.ndarray:
    """Returns about `count` windows of `length` tokens, as many of each text, as `llama-perplexity` cuts them."""
    rows = []
    for text in texts:
        ids = np.array(tokenizer.encode(text), "int32")
        rows.append(ids[: len(ids) // length * length].reshape(-1, length)[: math.ceil(count / len(texts))])
    return np.concatenate(rows)


def log_probabilities(folder: Path, rows: np.ndarray, threads: int | None) -> np.ndarray:
    """Returns the log-probabilities `(N, V)` of the next tokens along the second halves of the windows `(R, T)`."""
    engine: Any = kf.pipeline(folder, "text-generation", num_threads=threads).model
    half, logits = rows.shape[1] // 2, []
    for row in rows:
        prompt = row[None, : half + 1]
        state = engine.start(prompt, np.ones_like(prompt))
        for token in row[half:-1]:
            scores, state = engine.step(np.array([[token]], "int32"), state)
            logits.append(scores[0, -1])
    shifted = np.stack(logits)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def compared(expected: np.ndarray, received: np.ndarray, following: np.ndarray) -> Figures:
    """Compares log-probabilities `(N, V)` with those in float32, along the tokens `(N,)` that follow."""
    divergence = (np.exp(expected) * (expected - received)).sum(axis=-1, dtype="float64")
    same = expected.argmax(axis=-1) == received.argmax(axis=-1)
    losses = -received[np.arange(len(received)), following].astype("float64")
    return Figures(*map(float, (divergence.mean(), np.percentile(divergence, 99), same.mean(), np.exp(losses.mean()))))


@dataclass(frozen=True)
class LlamaCpp:
    """The programs of llama.cpp, applied to one checkpoint.

    Attributes:
        programs: Folder with `llama-quantize` and `llama-perplexity`, in a clone of its repository.
        checkpoint: Folder of the model.
        out: Folder of its files.
        calibration: Texts of the importance matrix, as of our recipes.
        threads: Number of CPU threads; by default that of the programs.
    """

    programs: Path
    checkpoint: Path
    out: Path
    calibration: Path | None
    threads: int | None

    def file(self, kind: str) -> Path:
        """Returns a file of a type such as `Q8_0` or `IQ4_NL-imatrix`, which is written unless it exists."""
        path = self.out / f"{kind}.gguf"
        if not path.exists():
            self.out.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            if kind == "F32":
                converter = self.programs.parents[1] / "convert_hf_to_gguf.py"
                command = [sys.executable, converter, "--outtype", "f32", "--outfile", new, self.checkpoint]
                subprocess.run([*map(str, command)], check=True, capture_output=True)
            else:
                importance = ["--imatrix", self._importance()] if kind.endswith(IMATRIX) else []
                self._run("llama-quantize", *importance, self.file("F32"), new, kind.removesuffix(IMATRIX))
            new.replace(path)
        return path

    def _importance(self) -> Path:
        """Returns the importance matrix of 20,480 tokens, which is computed unless it exists."""
        path, threads = self.out / "imatrix.gguf", [] if self.threads is None else ["-t", self.threads]
        if not path.exists():
            new = path.with_suffix(".new.gguf")
            options = ["-c", 512, "--chunks", 40, *threads, "-o", new]
            self._run("llama-imatrix", "-m", self.file("F32"), "-f", self.calibration, *options)
            new.replace(path)
        return path

    def figures(self, kind: str, text: str, length: int, count: int) -> Figures:
        """Compares a type with float32, whose logits are written first, on the first windows of a text."""
        source, base = self.out / "text.txt", self.out / "logits"
        options = ["-c", length, "--chunks", count, "--kl-divergence-base", base]
        options += [] if self.threads is None else ["-t", self.threads, "-tb", self.threads]
        if kind == "F32":
            file = self.file(kind)
            source.write_text(text, encoding="utf-8")
            self._run("llama-perplexity", "-m", file, *options, "-f", source)
        output = self._run("llama-perplexity", "-m", self.file(kind), *options, "--kl-divergence")
        found = {name: float(re.search(pattern, output)[1]) for name, pattern in _STATISTICS.items()}  # type: ignore[index]
        return Figures(**{**found, "same": found["same"] / 100})

    def _run(self, program: str, *arguments: object) -> str:
        command = [str(self.programs / program), *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout


def exported(options: argparse.Namespace, name: str) -> Path:
    """Returns a bundle such as `onnx-int4-nearest`."""
    format, recipe = name.split("-", 1)
    arguments = {"format": format, "quantize": recipe.removesuffix(NEAREST)}
    arguments |= {"rounding": "nearest"} if recipe.endswith(NEAREST) else {}
    if options.calibration is not None and RECIPES[arguments["quantize"]].rounding in ("calibrated", "distilled"):
        arguments["calibration"] = str(options.calibration)
    return export_bundles(options.source, options.out, {name: arguments}, fresh=options.fresh)[0]


def main() -> None:
    options = _arguments()
    texts = read_texts(options.text, 12 * options.length * options.rows)
    reference = exported(options, REFERENCE)
    rows = windows(kf.Tokenizer.load(reference), texts, options.length, options.rows)
    following = rows[:, options.length // 2 + 1 :].ravel()
    expected = log_probabilities(reference, rows, options.threads)
    plain = compared(expected, expected, following)
    print(f"| {options.source} | {' | '.join(COLUMNS)} |\n|---|{'--:|' * len(COLUMNS)}")
    _print_row(f"{RUNTIMES['onnx']} `none`", size_mb(reference), plain.cells(plain))
    for recipe, format in itertools.product(options.recipes, options.formats):
        try:
            folder = exported(options, f"{format}-{recipe}")
        except subprocess.CalledProcessError:
            print(f"{format}-{recipe} was not exported, see above", file=sys.stderr)
            continue
        figures = compared(expected, log_probabilities(folder, rows, options.threads), following)
        _print_row(f"{RUNTIMES[format]} `{recipe}`", size_mb(folder), figures.cells(plain))
    if options.llama_cpp is not None:
        peer = LlamaCpp(
            options.llama_cpp, Path(options.source), options.out / "gguf", options.calibration, options.threads
        )
        kinds = ("F32", *options.llama_cpp_types)
        figures_of = {kind: peer.figures(kind, texts[0], options.length, options.rows) for kind in kinds}
        for kind, figures in figures_of.items():
            size = peer.file(kind).stat().st_size / 1e6
            _print_row(f"llama.cpp `{kind}`", size, figures.cells(figures_of["F32"]))


def _print_row(title: str, megabytes: float, cells: Sequence[str]) -> None:
    print(f"| {title} | {megabytes:.1f} | {' | '.join(cells)} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="checkpoint or preset of a decoder")
    parser.add_argument("text", type=Path, help="a text, plain or by gzip, or JSON lines of texts")
    parser.add_argument("out", type=Path, help="folder of the bundles, which are kept")
    rounded = f"{', '.join(RECIPES)}; with {NEAREST} after the name, rounded to the nearest value"
    parser.add_argument("--recipes", nargs="*", default=["int8", "int8_weights", "int4_mixed", "int4"], help=rounded)
    calibration = "texts, one on each line, for recipes that round with them; int4_distilled needs some"
    parser.add_argument("--calibration", type=Path, help=calibration)
    parser.add_argument("--formats", nargs="*", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--fresh", action="store_true", help="export bundles that exist again")
    parser.add_argument("--rows", type=int, default=8, help="windows of the texts")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--threads", type=int, help="CPU threads; by default those of the runtimes")
    parser.add_argument("--llama-cpp", type=Path, help="folder build/bin in a clone of llama.cpp")
    types = f"with {IMATRIX} after the name, rounded with an importance matrix of the texts of --calibration"
    parser.add_argument("--llama-cpp-types", nargs="+", default=["Q8_0", "Q4_K_M", "Q4_0"], help=types)
    options = parser.parse_args()
    if options.calibration is None and any(kind.endswith(IMATRIX) for kind in options.llama_cpp_types):
        parser.error(f"types with {IMATRIX} need --calibration")
    return options


if __name__ == "__main__":
    main()
