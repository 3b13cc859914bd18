"""What a foreign runtime asks of a bundle, beyond what every bundle has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest
from kerasformer.errors import ExportError, argument
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.formats.tflite.signatures import ENCODER_LENGTHS
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import ExportJob, ExportOptions


class Target:
    """A runtime that loads bundles; this one, which asks for nothing more, and the base of all others.

    `export` calls the methods in the order in which they stand here.

    Attributes:
        name: As `export(target=…)` takes it.
        summary: A line for `kerasformer export --list-targets`.
        needs: Settings of `ExportOptions` that this runtime dictates, such as `{"format": "tflite"}`.
        attention: What it computes of an attention, beyond what its format does.
        tokenizes: An app gives it texts and sees no ids.
        lengths: For which an encoder is compiled where the caller names none, as far as the model reads.
    """

    name: str = ""
    summary: str = "this package, LiteRT, ONNX Runtime"
    needs: dict[str, Any] = {}
    attention: AttentionSupport = AttentionSupport()
    tokenizes: bool = False
    lengths: Sequence[int] = ENCODER_LENGTHS

    def with_needs(self, options: ExportOptions) -> ExportOptions:
        """The options with what this runtime dictates.

        Raises:
            ExportError: the caller asked for something else.
        """
        for field in fields(options):
            said, needed = getattr(options, field.name), self.needs.get(field.name)
            if said is not None and needed is not None and said != needed:
                raise ExportError(
                    f"{argument('target', self.name)} needs {argument(field.name, needed)}. "
                    f"Received: {argument(field.name, said)}. Leave {argument(field.name)} out"
                )
        return replace(options, **self.needs)

    def check(self, job: ExportJob, quantize: str) -> None:
        """Refuses what this runtime cannot do, before anything is written.

        Args:
            job: With the model, its task and tokenizer.
            quantize: Name of the recipe.
        Raises:
            ExportError: with the reason, and what to do instead.
        """

    def check_name(self, name: str) -> None:
        """Looks at the name of the folder that is to be written.

        Raises:
            ExportError: this runtime does not load a folder of that name.
        """

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """The signatures, of those that the format has, as this runtime wants them."""
        return functions

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Adds this runtime's own files to the folder, which holds the verified model files.

        Returns:
            The files that were added or changed.
        """
        return ()

    def card(self, manifest: Manifest, folder: Path) -> str:
        """A section of the model card: how this runtime is given the bundle, with its real names and shapes.

        Args:
            manifest: Of the bundle.
            folder: With all files of the bundle but manifest and card.
        """
        return ""


def refuse_signatures(target: str, job: ExportJob, *names: str) -> None:
    """Refuses signatures that a runtime never calls and that the caller asked for.

    Args:
        target: Name of the runtime.
        job: With the signatures.
        names: Fields of `DecoderSignatures` that the runtime ignores.
    Raises:
        ExportError: one of them is given.
    """
    for name in names:
        if given := getattr(job.signatures, name):
            raise ExportError(
                f"{argument('target', target)} calls no such signatures, and its bundles have none. Received: "
                f"{argument(name, list(given))}. Leave {argument(name)} out"
            )
