"""Base class of the targets: what a third-party runtime requires of a bundle beyond the plain format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest
from kerasformer.errors import ExportError, InputError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.formats.tflite.signatures import ENCODER_LENGTHS
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import INT8_CACHES, ExportJob, ExportOptions
from kerasformer.tokenization.tokenizer import TARGET_FILE

TOKENIZED = ("input_ids", "attention_mask", "token_type_ids")
"""Arrays that the tokenizers of Hugging Face return."""


class Target:
    """A runtime that loads bundles: the base class of all targets, and itself a target without requirements.

    `export` calls the methods in the order in which they are defined here.

    Attributes:
        name: Name for `export(target=…)`.
        summary: Description for `kerasformer export --list-targets`.
        required_options: Values of `ExportOptions` that this runtime requires, such as `{"format": "tflite"}`.
        attention: Attention features that it supports.
        inputs: Input arrays that it passes to an encoder; `None` if an app passes them.
        reads_tokenizer: Whether it, or the program on the model card, reads `tokenizer.json`.
        tokenizes: Whether it takes texts, so that an app handles no token ids.
        lengths: Default lengths for which an encoder is compiled; those beyond the model's limit are dropped.
        rolling_caches: Layers with a sliding window may have caches shorter than the text (`TensorInfo.margin`).
        app_files: Files beside the model that an app needs, of those that the bundle has.
    """

    name: str = ""
    summary: str = "this package, LiteRT, ONNX Runtime"
    required_options: dict[str, Any] = {}
    attention: AttentionSupport = AttentionSupport()
    inputs: Sequence[str] | None = None
    reads_tokenizer: bool = False
    tokenizes: bool = False
    lengths: Sequence[int] = ENCODER_LENGTHS
    rolling_caches: bool = True
    app_files: Sequence[str] = ("tokenizer.json", TARGET_FILE)

    def with_requirements(self, options: ExportOptions) -> ExportOptions:
        """Returns the options with the values that this runtime requires.

        Raises:
            ExportError: The caller passed a different value.
            InputError: The caller requested signatures that only this package calls.
        """
        if self.name and options.shortlist:
            raise InputError(
                "shortlist is for bundles that this package runs on LiteRT or ONNX Runtime. Received: "
                f"shortlist=True, target={self.name!r}. Remove shortlist"
            )
        if self.name and options.lora_rank is not None:
            raise InputError(
                f"target={self.name!r} passes no adapters to a model. Received: "
                f"lora_rank={options.lora_rank!r}. Merge the adapter before the export: "
                "model.load_adapter(…), model.merge_adapter()"
            )
        if self.name and options.cache_dtype == INT8_CACHES:
            raise InputError(
                f"target={self.name!r} passes caches of float32 to a model. Received: "
                f"cache_dtype={INT8_CACHES!r}. Remove cache_dtype, or "
                "target for a bundle that this package runs"
            )
        for field in fields(options):
            received, required = getattr(options, field.name), self.required_options.get(field.name)
            if received is not None and required is not None and received != required:
                raise ExportError(
                    f"target={self.name!r} requires {field.name}={required!r}. "
                    f"Received: {field.name}={received!r}. Remove {field.name}"
                )
        return replace(options, **self.required_options)

    def check_interface(self, job: ExportJob) -> None:
        """Refuses inputs that this runtime does not pass, and tokenizers that it cannot read.

        Raises:
            ExportError: The model has another input, such as the language of each token, no `tokenizer.json`, or one of
                another vocabulary for the texts that it writes.
        """
        tokenizer, plain = job.model.tokenizer, "Remove target: the plain bundle has no such limit"
        if self.reads_tokenizer and tokenizer is not None and not tokenizer.portable:
            raise ExportError(
                f"target={self.name!r} reads tokenizer.json, which cannot contain the rules of this "
                f"tokenizer. Received: {type(tokenizer).__name__}. {plain}"
            )
        reads = self.reads_tokenizer or self.inputs is not None
        if reads and tokenizer is not None and tokenizer.writer.get_vocab() != tokenizer.get_vocab():
            raise ExportError(
                f"target={self.name!r} reads and writes texts with one vocabulary. Received: "
                f"{job.info.name} with separate vocabularies of {tokenizer.vocab_size} and "
                f"{tokenizer.writer.vocab_size} tokens. {plain}"
            )
        further = [name for name in job.model.input_names if self.inputs is not None and name not in self.inputs]
        if further and not job.model.is_encoder_decoder:
            raise ExportError(
                f"target={self.name!r} passes only {', '.join(self.inputs or ())} to a model. Received: "
                f"{job.info.name}, which also has {', '.join(further)}. {plain}"
            )

    def check(self, job: ExportJob, quantize: str) -> None:
        """Refuses what this runtime does not support, before anything is written.

        Args:
            job: The model, with its task and tokenizer, and its export options.
            quantize: Name of the recipe.

        Raises:
            ExportError: The runtime does not support the model; the message has the reason and what to do instead.
        """

    def check_name(self, name: str) -> None:
        """Checks the name of the destination folder.

        Raises:
            ExportError: This runtime does not load a folder with that name.
        """

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Selects and adapts the format's functions for this runtime."""
        return functions

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Adds files for this runtime to the folder, which already contains the verified model files.

        Returns:
            The files that were added or changed.
        """
        return ()

    def shipped(self, manifest: Manifest, folder: Path, added: Sequence[Path]) -> list[str]:
        """Returns the files that an app needs, relative to the folder: by default models, weights and `app_files`.

        Args:
            manifest: Manifest of the bundle.
            folder: Folder with all files of the bundle except the manifest and the card.
            added: Files that `finish` added or changed.
        """
        models = sorted({signature.file for signature in manifest.signatures.values()})
        weights = sorted([*folder.rglob("*.onnx_data*"), *folder.glob("variables/*")])
        others = [folder / name for name in self.app_files if (folder / name).is_file()]
        paths = (path.relative_to(folder).as_posix() for path in (*weights, *added, *others))
        return list(dict.fromkeys([*models, *paths]))

    def card(self, manifest: Manifest, folder: Path) -> str:
        """Returns a section of the model card: how to run the bundle with this runtime.

        Args:
            manifest: Manifest of the bundle.
            folder: Folder with all files of the bundle except the manifest and the card.
        """
        return ""


def refuse_signatures(target: str, job: ExportJob, *names: str) -> None:
    """Refuses signatures that the caller requested and that a runtime never calls.

    Args:
        target: Name of the target.
        job: Export options with the signatures.
        names: Fields of `DecoderSignatures` that the runtime ignores.

    Raises:
        ExportError: One of these fields has a value.
    """
    for name in names:
        if value := getattr(job.signatures, name):
            raise ExportError(
                f"target={target!r} does not call these signatures, so its bundles contain none. Received: "
                f"{name}={list(value)!r}. Remove {name}"
            )
