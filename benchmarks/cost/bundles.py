"""The compared bundles of a model, which are exported unless they exist, whatever their fidelity is."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quiet import quiet_environment
from kerasformer.bundle import MANIFEST

RUNTIMES = {"tflite": "LiteRT", "onnx": "ONNX Runtime"}
REFERENCE = "onnx-none"
"""Name of the bundle in float32 that the others are compared with; exports hold it within 1e-4 of the Keras model."""

NEAREST = "-nearest"
"""Suffix of the name of a recipe whose weights are rounded to the nearest value."""


@dataclass(frozen=True)
class Candidate:
    """A bundle.

    Attributes:
        title: Name in the tables.
        folder: Folder of the bundle.
    """

    title: str
    folder: Path

    @property
    def megabytes(self) -> float:
        """Size of the model files in MB (1e6 bytes)."""
        suffixes = (".tflite", ".onnx", ".onnx_data")
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.suffix in suffixes) / 1e6

    def stored(self, name: str, inputs: Any, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns an array that was computed earlier with the same bundle and the same inputs, or computes it.

        Args:
            name: Name of the file beside the bundle.
            inputs: What the array depends on besides the bundle; its `repr` is compared.
            compute: Computes the array.
        """
        key = hashlib.sha256((self.folder / MANIFEST).read_bytes() + repr(inputs).encode()).hexdigest()[:16]
        path = self.folder.parent / f"{self.folder.name}.{name}.{key}.npy"
        if not path.exists():
            new = path.with_suffix(".new")
            with new.open("wb") as file:
                np.save(file, compute())
            new.replace(path)
        return np.load(path)


@dataclass(frozen=True)
class Settings:
    """What is compared.

    Attributes:
        out: Folder of the bundles; each model has a folder in it.
        recipes: Names of recipes, with the suffix `NEAREST` or without.
        formats: Names of formats.
        fresh: Whether to export bundles again, except those in float32.
        threads: Number of CPU threads; by default that of the runtimes.
        bundles: Folders of further bundles.
    """

    out: Path
    recipes: Sequence[str]
    formats: Sequence[str]
    fresh: bool
    threads: int | None
    bundles: Sequence[Path]

    def reference(self, model: str, source: str | Path, **options: Any) -> Candidate:
        """Returns the bundle in float32."""
        return next(self._exported(model, source, [REFERENCE], options))

    def candidates(self, model: str, source: str | Path, **options: Any) -> Iterator[Candidate]:
        """Yields the bundles of a model, then the further ones.

        Args:
            model: Name of its folder.
            source: What is exported.
            options: Keywords of `export`.
        """
        yield from self._exported(model, source, [f"{f}-{r}" for r in self.recipes for f in self.formats], options)
        yield from (Candidate(folder.name, folder) for folder in self.bundles)

    def _exported(
        self, model: str, source: str | Path, names: Sequence[str], options: dict[str, Any]
    ) -> Iterator[Candidate]:
        script = Path(__file__).parent.with_name("exports.py")
        for name in names:
            folder = self.out / model / name
            form, recipe = name.split("-", 1)
            if not (folder / MANIFEST).exists() or (self.fresh and recipe != "none"):
                command = [sys.executable, "-P", str(script), str(source), str(self.out / model), "any"]
                arguments = {"format": form, "quantize": recipe.removesuffix(NEAREST), **options}
                arguments |= {"rounding": "nearest"} if recipe.endswith(NEAREST) else {}
                variants = json.dumps({name: arguments})
                # In a process of its own, which frees the memory of the export and may fail.
                done = subprocess.run(command, input=variants, text=True, env=quiet_environment())
                if done.returncode:
                    print(f"{name} of {model} was not exported, see above", file=sys.stderr)
                    continue
            yield Candidate(f"{RUNTIMES[form]} `{recipe}`", folder)
