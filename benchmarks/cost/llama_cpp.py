"""llama.cpp with its own programs: quantized files of a checkpoint, their divergence on a text, and their answers."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cost.next_tokens import Figures

REFERENCE = "F32"
TYPES = ("Q8_0", "Q4_K_M", "Q4_0")
_STATISTICS = {
    "divergence": r"Mean +KLD: +([-\d.]+)",
    "percentile": r"99\.0% +KLD: +([-\d.]+)",
    "same": r"Same top p: +([\d.]+)",
    "perplexity": r"Mean PPL\(Q\) +: +([\d.]+)",
}


@dataclass(frozen=True)
class LlamaCpp:
    """The programs of llama.cpp, applied to one checkpoint.

    Attributes:
        programs: Folder with `llama-quantize`, `llama-perplexity` and `llama-completion`.
        converter: Its script `convert_hf_to_gguf.py`.
        checkpoint: Folder of the model.
        out: Folder of its files.
        threads: Number of CPU threads; by default that of the programs.
    """

    programs: Path
    converter: Path
    checkpoint: Path
    out: Path
    threads: int | None

    def file(self, kind: str) -> Path:
        """Returns a file of a type such as `Q8_0`, which is written unless it exists."""
        path = self.out / f"{kind}.gguf"
        if not path.exists():
            self.out.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            if kind == REFERENCE:
                command = [sys.executable, self.converter, "--outtype", "f32", "--outfile", new, self.checkpoint]
                subprocess.run([*map(str, command)], check=True, capture_output=True)
            else:
                self._run("llama-quantize", str(self.file(REFERENCE)), str(new), kind)
            new.replace(path)
        return path

    def megabytes(self, kind: str) -> float:
        """Returns the size of a file in MB (1e6 bytes)."""
        return self.file(kind).stat().st_size / 1e6

    def divergence(self, kind: str, text: str, length: int, count: int) -> Figures:
        """Compares a type with float32 on the second halves of the first windows of a text.

        Args:
            kind: The type.
            text: The text.
            length: Tokens of a window.
            count: Number of windows.
        """
        source, base = self.out / "text.txt", self.out / "logits"
        # The file counts as the key of the logits beside it.
        key = f"{length} {count}\n{text}"
        if not base.exists() or not source.exists() or (self.out / "key.txt").read_text() != key:
            source.write_text(text)
            self._perplexity(REFERENCE, base, length, count, "-f", str(source))
            (self.out / "key.txt").write_text(key)
        output = self._perplexity(kind, base, length, count, "--kl-divergence")
        found = {name: float(re.search(pattern, output)[1]) for name, pattern in _STATISTICS.items()}  # type: ignore[index]
        return Figures(**{**found, "same": found["same"] / 100})

    def answer(self, kind: str, prompt: str, max_new_tokens: int) -> str:
        """Returns the greedy continuation of a prompt that may contain special tokens."""
        options = ["-n", str(max_new_tokens), "--temp", "0", "-no-cnv", "--no-display-prompt", "--no-warmup"]
        text = self._run(
            "llama-completion", "-m", str(self.file(kind)), "-p", prompt, "--no-escape", *options, *self._threads
        )
        return text.strip().removesuffix("[end of text]").strip()

    def _perplexity(self, kind: str, base: Path, length: int, count: int, *options: str) -> str:
        """Runs `llama-perplexity`, whose float32 logits are in the file `base`."""
        windows = ["-c", str(length), "--chunks", str(count), "--kl-divergence-base", str(base)]
        return self._run("llama-perplexity", "-m", str(self.file(kind)), *windows, *options, *self._threads)

    @property
    def _threads(self) -> list[str]:
        return [] if self.threads is None else ["-t", str(self.threads), "-tb", str(self.threads)]

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout
