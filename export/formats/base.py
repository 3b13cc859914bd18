"""A kind of model file: what it needs, which functions it has, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import ExportError, InputError, argument, require
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import ExportJob, ExportOptions
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.progress import CountProgress


class Format:
    """The base of all formats.

    Attributes:
        name: As `export(format=…)` takes it.
        requires: Modules without which it cannot be written; the extra `export` has them.
        packages: Whose versions the manifest names.
        places: The model files, or folders of nothing else, relative to the bundle.
        profiles: Sets of operators to choose from, the default first.
        static: A text is read in one of several fixed lengths.
        attention: What it computes of an attention.
        in_graph: It can have a tokenizer in operators of TF Text.
    """

    name: str
    requires: tuple[str, ...]
    packages: tuple[str, ...]
    places: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    static: bool = False
    attention: AttentionSupport = AttentionSupport()
    in_graph: bool = False

    def check(self, options: ExportOptions, quantize: str) -> None:
        """Refuses, before a model is loaded, settings that this format does not have.

        Args:
            options: What the caller asked for.
            quantize: Name of the recipe.
        Raises:
            ExportError: an unknown profile, or a recipe that the format cannot store.
            InputError: settings of another format.
            MissingExtraError: the format's packages are not installed.
        """
        for module in self.requires:
            require(module, "export")
        if not self.profiles and (options.profile is not None or options.opset is not None):
            raise InputError(
                f"profile and opset are for {argument('format', 'onnx')}. Received: "
                f"{argument('profile', options.profile)}, {argument('opset', options.opset)}"
            )
        if options.profile not in (None, *self.profiles):
            raise ExportError(
                f"Unknown profile. Expected one of {', '.join(self.profiles)}. Received: {options.profile!r}"
            )
        if options.signatures is not None and not self.static:
            raise InputError(
                f"signatures are for {argument('format', 'tflite')}. Received: "
                f"{argument('signatures', options.signatures)}, {argument('format', self.name)}"
            )
        if options.encoder_capacity is not None and self.static:
            raise InputError(
                f"encoder_capacity is for {argument('format', 'onnx')} or 'saved-model'; in this format, the largest "
                f"of {argument('lengths')} is it. Received: {argument('encoder_capacity', options.encoder_capacity)}"
            )

    def functions(self, job: ExportJob) -> list[Function]:
        """The signatures of a model's files."""
        raise NotImplementedError

    def file(self, function: Function, recipe: str) -> str:
        """The file of a function, relative to the bundle, for a recipe of that name."""
        return self.places[0]

    def write(
        self,
        job: ExportJob,
        files: Mapping[Path, Sequence[Function]],
        recipe: Recipe,
        calibration: Calibration | None,
        progress: CountProgress,
        converted: dict[Any, Any],
    ) -> None:
        """Writes the model files.

        Args:
            job: With the model whose variables the functions read.
            files: What each file computes.
            recipe: How weights are stored.
            calibration: For a recipe with static activations.
            progress: Is told how far the writing of the weights is.
            converted: What earlier calls for the same files left for the next one, which need not do it again.
        """
        raise NotImplementedError

    def found_by(self, manifest: Manifest, folder: Path) -> dict[str, Any]:
        """Keys of `config.json` by which runtimes find the model files of a folder, once these are written."""
        return {}

    def layout(self, profile: str | None, opset: int | None) -> Layout:
        """What a matrix becomes in these files; for formats that store weights by a recipe."""
        raise NotImplementedError

    def add_tokenizer(self, job: ExportJob, folder: Path) -> dict[str, Signature]:
        """Writes the tokenizer in operators of TF Text into a bundle, where it is no part of the model file.

        Returns:
            The signatures that the manifest has of it.
        """
        return {}

    def written(self, folder: Path) -> list[Path]:
        """The model files that are there."""
        places = [folder / place for place in self.places]
        files = [path for place in places for path in ([place] if place.is_file() else sorted(place.glob("*")))]
        return [path for path in files if path.is_file()]
