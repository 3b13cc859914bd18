"""What 8 and 4 bits cost a model: how far its bundles are from float32, in their runtimes.

    python -m benchmarks.quality stories-dev.jsonl OUT story-gpt2
    python -m benchmarks.quality wiki.test.raw.gz OUT SMOLLM2 MINILM --recipes int8 int4-nearest --llama-cpp BUILD/bin

Bundles are exported to a folder in OUT for each model unless they are there, whatever their fidelity is. Each text is
cut into windows. A decoder reads the first half of a window as a prompt, and the rest one token at a time, as for a
user. llama.cpp is compared with its own float32 by `llama-perplexity --kl-divergence`, which scores the same tokens of
a single text. An embedding model reads the lines of the text.

KL is the mean divergence from float32 of the distributions of the next token, in nats, beside its 99th percentile;
same top token, the share of tokens with the same most probable one. Changes from float32 are in parentheses. Cosine is
the mean similarity of a text's embedding to that in float32, beside the smallest one; same neighbour, the share of
texts to which the same other text is most similar. Bits are those of the file for each weight. The time and the peak
memory of an export are those of its process.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
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
BUDGET = "-budget"
"""What stands in the name of a recipe before its `budget`."""
IMATRIX = "-imatrix"
"""Suffix of the name of a type of llama.cpp that is rounded with an importance matrix."""
COLUMNS = ("KL", "99 % of KL", "same top token", "perplexity")
EMBEDDING_COLUMNS = ("cosine", "smallest cosine", "same neighbour")
_STATISTICS = {
    "divergence": r"Mean +KLD: +([-\d.]+)",
    "percentile": r"99\.0% +KLD: +([-\d.]+)",
    "same": r"Same top p: +([\d.]+)",
    "perplexity": r"Mean PPL\(Q\) +: +([\d.]+)",
}
"""Figures in the output of `llama-perplexity`."""


_LINE, _LINES = 200, 200
"""Smallest number of characters of a line that an embedder reads, and number of such lines."""


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
        if ids[0] == tokenizer.bos_token_id:  # each window begins a text
            rows[-1][:, 0] = ids[0]
    return np.concatenate(rows)


def log_probabilities(folder: Path, rows: np.ndarray, threads: int | None) -> Iterator[np.ndarray]:
    """Yields the log-probabilities `(T / 2, V)` of the next tokens along the second half of each window `(R, T)`."""
    engine: Any = kf.pipeline(folder, "text-generation", num_threads=threads).model
    half = rows.shape[1] // 2
    for row in rows:
        logits = []
        prompt = row[None, : half + 1]
        state = engine.start(prompt, np.ones_like(prompt))
        for token in row[half:-1]:
            scores, state = engine.step(np.array([[token]], "int32"), state)
            logits.append(scores[0, -1])
        shifted = np.stack(logits)
        shifted -= shifted.max(axis=-1, keepdims=True)
        shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        yield shifted


def compared(expected: Sequence[np.ndarray], received: Iterable[np.ndarray], rows: np.ndarray) -> Figures:
    """Compares the log-probabilities along windows with those in float32."""
    divergences, same, losses = [], [], []
    for row, exact, rounded in zip(rows, expected, received, strict=True):
        divergences.append((np.exp(exact) * (exact - rounded)).sum(axis=-1, dtype="float64"))
        same.append(exact.argmax(axis=-1) == rounded.argmax(axis=-1))
        losses.append(-rounded[np.arange(len(rounded)), row[-len(rounded) :]].astype("float64"))
    divergence, equal, loss = map(np.concatenate, (divergences, same, losses))
    return Figures(*map(float, (divergence.mean(), np.percentile(divergence, 99), equal.mean(), np.exp(loss.mean()))))


def embeddings(folder: Path, texts: Sequence[str], threads: int | None) -> np.ndarray:
    """Returns the embeddings `(N, E)` of texts, of length 1."""
    found = np.asarray(kf.pipeline(folder, "sentence-similarity", num_threads=threads).encode(list(texts)))
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def embedding_cells(expected: np.ndarray, received: np.ndarray) -> list[str]:
    """Compares embeddings `(N, E)` with those in float32; returns the cells below `EMBEDDING_COLUMNS`."""
    if received is expected:
        return [""] * len(EMBEDDING_COLUMNS)
    cosines = (expected * received).sum(axis=-1)
    exact, rounded = ((array @ array.T - 2 * np.eye(len(array))).argmax(axis=-1) for array in (expected, received))
    return [f"{cosines.mean():.5f}", f"{cosines.min():.4f}", f"{np.mean(exact == rounded):.1%}"]


@dataclass(frozen=True)
class LlamaCpp:
    """The programs of llama.cpp, applied to one checkpoint.

    Attributes:
        programs: Folder with `llama-quantize` and `llama-perplexity`, in a clone of its repository.
        checkpoint: Folder or GGUF file of the model.
        out: Folder of its files.
        calibration: Texts of the importance matrix.
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
            if kind == "F32" and self.checkpoint.suffix == ".gguf":
                self._run("llama-quantize", "--allow-requantize", self.checkpoint, new, kind)
            elif kind == "F32":
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


def exported(options: argparse.Namespace, source: str, name: str) -> Path:
    """Returns a bundle such as `onnx-int4-nearest` or `tflite-int4-budget1.2` of a model."""
    format, recipe = name.split("-", 1)
    recipe, _, budget = recipe.partition(BUDGET)
    arguments: dict[str, Any] = {"format": format, "quantize": recipe.removesuffix(NEAREST)}
    arguments |= {"rounding": "nearest"} if recipe.endswith(NEAREST) else {}
    arguments |= {"budget": float(budget)} if budget else {}
    if options.calibration is not None and RECIPES[arguments["quantize"]].rounding in ("calibrated", "distilled"):
        arguments["calibration"] = str(options.calibration)
    return export_bundles(source, options.out / Path(source).stem, {name: arguments}, fresh=options.fresh)[0]


class Table:
    """The rows of a model's table, which are printed as they are known.

    Args:
        source: The model.
        columns: Titles of the columns that compare it with float32.
        parameters: Number of its weights.
    """

    def __init__(self, source: str, columns: Sequence[str], parameters: int) -> None:
        self._parameters = parameters
        titles = (Path(source).stem, "MB", "bits", *columns, "export", "memory")
        print(f"| {' | '.join(titles)} |\n|---|{'--:|' * (len(titles) - 1)}")

    def add(self, title: str, megabytes: float, cells: Sequence[str], bundle: Path | None = None) -> None:
        """Prints a row, with the cost of the export of a bundle if it is known."""
        file = None if bundle is None else bundle.with_name(f"{bundle.name}.json")
        cost = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else None
        costs = ["", ""] if cost is None else [f"{cost['seconds']:.0f} s", f"{cost['megabytes'] / 1e3:.1f} GB"]
        bits = 8e6 * megabytes / self._parameters
        print(f"| {' | '.join([title, f'{megabytes:.1f}', f'{bits:.1f}', *cells, *costs])} |", flush=True)


def main() -> None:
    options = _arguments()
    for source in options.sources:
        model = kf.load(source)
        parameters, generates = model.count_params(), model.generates
        del model
        (_decoder_table if generates else _embedding_table)(options, source, parameters)


def _bundles(options: argparse.Namespace, source: str) -> Iterator[tuple[str, Path]]:
    """Yields the title and the folder of each bundle that can be exported."""
    for recipe, format in itertools.product(options.recipes, options.formats):
        try:
            folder = exported(options, source, f"{format}-{recipe}")
        except subprocess.CalledProcessError:
            print(f"{format}-{recipe} was not exported, see above", file=sys.stderr)
            continue
        name, _, budget = recipe.partition(BUDGET)
        yield f"{RUNTIMES[format]} `{name}`{f', `budget={budget}`' if budget else ''}", folder


def _embedding_table(options: argparse.Namespace, source: str, parameters: int) -> None:
    lines = "\n".join(read_texts(options.text, 1 << 18)).splitlines()
    texts = [line.strip() for line in lines if len(line) > _LINE][:_LINES]
    reference = exported(options, source, REFERENCE)
    expected = embeddings(reference, texts, options.threads)
    table = Table(source, EMBEDDING_COLUMNS, parameters)
    table.add(f"{RUNTIMES['onnx']} `none`", size_mb(reference), embedding_cells(expected, expected), reference)
    for title, folder in _bundles(options, source):
        cells = embedding_cells(expected, embeddings(folder, texts, options.threads))
        table.add(title, size_mb(folder), cells, folder)


def _decoder_table(options: argparse.Namespace, source: str, parameters: int) -> None:
    texts = read_texts(options.text, 12 * options.length * options.rows)
    reference = exported(options, source, REFERENCE)
    rows = windows(kf.Tokenizer.load(reference), texts, options.length, options.rows)
    expected = list(log_probabilities(reference, rows, options.threads))
    plain = compared(expected, expected, rows)
    table = Table(source, COLUMNS, parameters)
    table.add(f"{RUNTIMES['onnx']} `none`", size_mb(reference), plain.cells(plain), reference)
    for title, folder in _bundles(options, source):
        figures = compared(expected, log_probabilities(folder, rows, options.threads), rows)
        table.add(title, size_mb(folder), figures.cells(plain), folder)
    if options.llama_cpp is not None:
        folder = options.out / Path(source).stem / "gguf"
        importance = options.importance or options.calibration
        peer = LlamaCpp(options.llama_cpp, Path(source), folder, importance, options.threads)
        exact = peer.figures("F32", texts[0], options.length, options.rows)
        for kind in ("F32", *options.llama_cpp_types):
            figures = exact if kind == "F32" else peer.figures(kind, texts[0], options.length, options.rows)
            table.add(f"llama.cpp `{kind}`", peer.file(kind).stat().st_size / 1e6, figures.cells(exact))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a text, plain or by gzip, or JSON lines of texts")
    parser.add_argument("out", type=Path, help="folder of the bundles, which are kept")
    parser.add_argument("sources", nargs="+", metavar="source", help="checkpoints or presets of decoders or embedders")
    rounded = (
        f"{', '.join(RECIPES)}; with {NEAREST} after the name, rounded to the nearest value; with {BUDGET}NUMBER, of "
        "this budget"
    )
    parser.add_argument("--recipes", nargs="*", default=["int8", "int8_weights", "int4_mixed", "int4"], help=rounded)
    calibration = "texts, one on each line, for recipes that round with them; int4_distilled needs some"
    parser.add_argument("--calibration", type=Path, help=calibration)
    parser.add_argument("--formats", nargs="*", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--fresh", action="store_true", help="export bundles that exist again")
    parser.add_argument("--rows", type=int, default=8, help="windows of the texts")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--threads", type=int, help="CPU threads; by default those of the runtimes")
    parser.add_argument("--llama-cpp", type=Path, help="folder build/bin in a clone of llama.cpp")
    importance = "texts of llama.cpp's importance matrices; by default those of --calibration"
    parser.add_argument("--importance", type=Path, help=importance)
    types = f"with {IMATRIX} after the name, rounded with an importance matrix"
    parser.add_argument("--llama-cpp-types", nargs="+", default=["Q8_0", "Q4_K_M", "Q4_0"], help=types)
    options = parser.parse_args()
    if not (options.calibration or options.importance) and any(IMATRIX in kind for kind in options.llama_cpp_types):
        parser.error(f"types with {IMATRIX} need --importance or --calibration")
    return options


if __name__ == "__main__":
    main()
