"""Base class of the formats: their requirements, their functions, and how the model files are written.

Called by `builder`; a subclass for each format does the work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasformer.basics.arguments import shown
from kerasformer.basics.options import declared
from kerasformer.basics.progress import CountProgress
from kerasformer.bundle import GpuFinding, Manifest, Signature
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.bundle.recipes import Recipe
from kerasformer.errors import ExportError, InputError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.export.quantization.layouts import Layout
from kerasformer.extras import require
from kerasformer.files.reading import JsonObject

Converted = dict[Any, Any]
"""Intermediate results that a format keeps between exports of the same functions; keys and values are its own."""
Files = Mapping[Path, Sequence[Function]]
"""The functions of each file."""
InPlace = dict[str, Collection[str]]
"""For each function, by its name, the inputs that may share a buffer with the output that continues them."""


class Format:
    """Base class of all formats.

    Attributes:
        name: Name for `export(format=…)`.
        requires: Modules needed for writing, all of them in the extra `export`.
        packages: Packages whose versions the manifest records.
        model_paths: Model files, or folders that contain only model files, relative to the bundle.
        profiles: Sets of operators to choose from, the default first.
        static: Whether an encoder is compiled for fixed lengths.
        attention: Attention features that the format supports.
        in_graph: Whether a tokenizer can be exported as TF Text operators.
        rank_first: Whether the inputs for adapters have the ranks as rows of `A`, see `with_adapters`.
        dotted: Whether the names of these inputs may contain dots.
        streams_weights: Whether weights are read and converted one by one as they are written. Matrices of a model may
            then have 16 bits, and its weights need not be in memory.
    """

    name: str
    requires: tuple[str, ...]
    packages: tuple[str, ...]
    model_paths: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    static: bool = False
    attention: AttentionSupport = AttentionSupport()
    in_graph: bool = False
    rank_first: bool = False
    dotted: bool = True
    streams_weights: bool = True

    def check(self, options: ExportOptions, quantize: str) -> None:
        """Refuses, before a model is loaded, options that this format does not support.

        Args:
            options: The caller's options, checked.
            quantize: Name of the recipe.

        Raises:
            ExportError: The profile is unknown, or the format does not support the recipe.
            InputError: An option is for other formats.
            MissingExtraError: The format's packages are not installed.
        """
        for module in self.requires:
            require(module, "export")
        for name in options:
            formats = declared(ExportOptions)[name][1].formats
            if formats and self.name not in formats:
                raise InputError(
                    f"{name} is only for format={' or '.join(map(repr, formats))}. "
                    f"Received: {name}={shown(options[name])}, format={self.name!r}"  # type: ignore[literal-required]
                )
        profile = options.get("profile")
        if profile not in (None, *self.profiles):
            raise ExportError(f"Unknown profile. Expected one of {', '.join(self.profiles)}. Received: {profile!r}")
        if "lora_targets" in options and "lora_rank" not in options:
            raise InputError(
                "lora_targets need the rank of the adapters. "
                f"Received: lora_targets={options['lora_targets']!r} without lora_rank"
            )

    def adapted(self, recipe: Recipe) -> Recipe:
        """Returns a recipe without what has no effect in this format."""
        return recipe

    def functions(self, job: ExportJob) -> list[Function]:
        """Returns the functions of a model that this format exports, one for each signature."""
        raise NotImplementedError

    def file(self, function: Function, recipe: str) -> str:
        """Returns the path of a function's file, relative to the bundle, for a recipe of that name."""
        return self.model_paths[0]

    def write(self, job: ExportJob, files: Files, progress: CountProgress, converted: Converted) -> InPlace:
        """Writes the model files.

        Args:
            job: The model, whose variables the functions read, and its export options.
            files: Functions of each file.
            progress: Called with the number of bytes of weights that are written, and the total.
            converted: Intermediate results, kept between calls for the same functions with different recipes.

        Returns:
            See `InPlace`.
        """
        raise NotImplementedError

    def gpu_findings(self, converted: Converted) -> tuple[GpuFinding, ...] | None:
        """Returns what LiteRT's GPU delegate is known to compute wrongly or to leave to the CPU.

        Args:
            converted: The intermediate results of the last `write`.

        Returns:
            The findings; `None` for a format whose files do not run there.
        """
        return None

    def config_entries(self, manifest: Manifest, folder: Path) -> JsonObject:
        """Returns entries of `config.json` by which runtimes find the model files that were written to a folder."""
        return {}

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """Returns how these files store matrices; only for formats that store weights by a recipe."""
        raise NotImplementedError

    def add_tokenizer(self, job: ExportJob, folder: Path) -> dict[str, Signature]:
        """Writes the tokenizer as TF Text operators into a bundle, unless it is a part of the model file.

        Returns:
            Its signatures for the manifest.
        """
        return {}

    def model_files(self, folder: Path) -> list[Path]:
        """Returns the model files that a folder contains."""
        paths = [folder / name for name in self.model_paths]
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.glob("*")))]
        return [file for file in files if file.is_file()]
